"""Event bus of the local org: one durable, ordered log. Each topic of the org is a view of it.

An event has the same replay ID on its own topic and on every channel. Positions rise and are not contiguous, so that
clients that compute with replay IDs fail here as they would at Salesforce. Topics that only the Streaming API has
(``/topic/...`` and ``/u/...``) are on the same log, with their own retention.
"""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sfstream_localorg.pubsub import pubsub_api_pb2 as pb

_FIRST_POSITION = 0x5A94F0
_REPLAY_ID = struct.Struct(">Qxx")
_TIP_AGE_SECONDS = 60.0
_RESET_JUMP = 1_000_003
_STREAMING = "streaming"
_STANDARD_VOLUME = "standard volume"
"""Names of retention groups: topics that only the Streaming API has, and standard-volume platform events. The group of
all other topics is ``""``. Each group has one floor, the position of its last expired event."""


class ReplayIdCorruptedError(Exception):
    """The replay ID is malformed, was never issued, has expired, or precedes a stream reset."""


@dataclass(frozen=True, slots=True)
class BusEvent:
    """An event to publish. ``channels`` are further topics, besides its own topic and the channels of that topic.

    ``schema_id`` is empty for events of PushTopics and generic channels, which have no schema and a JSON payload.
    """

    topic: str
    schema_id: str
    payload: bytes
    event_id: str | None = None
    channels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event on the bus. ``published_at`` is in seconds since the epoch on the bus's clock."""

    replay_id: bytes
    event_id: str | None
    schema_id: str
    payload: bytes
    published_at: float
    expired: bool

    @property
    def position(self) -> int:
        """Position on the bus: the replay ID that the Streaming API shows."""
        return int.from_bytes(self.replay_id[:8], "big")


class EventBus:
    """Durable log of events: append, read, expire. Only the thread of the event loop may use it.

    :param clock: returns the bus's time, in seconds since the epoch.
    :param retention: returns the retention of events, in seconds.
    :param streaming_retention: the retention of ``/topic/...`` and ``/u/...``; ``None`` for ``retention``.
    :param standard_retention: the retention of standard-volume platform events; ``None`` for ``retention``.
    :param channels_of: returns the channels of a topic.
    :param is_standard_volume: returns whether a topic is a standard-volume platform event.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        *,
        clock: Callable[[], float],
        retention: Callable[[], float],
        channels_of: Callable[[str], Sequence[str]],
        streaming_retention: Callable[[], float] | None = None,
        standard_retention: Callable[[], float] | None = None,
        is_standard_volume: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        self._database = database
        self._clock = clock
        self._retention = {
            "": retention,
            _STREAMING: streaming_retention or retention,
            _STANDARD_VOLUME: standard_retention or retention,
        }
        self._is_standard_volume = is_standard_volume
        self._channels_of = channels_of
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._topics: dict[str, int] = dict(database.execute("SELECT name, number FROM topic_number"))
        self._floors: dict[str, int] = dict(database.execute("SELECT topic, position FROM floor"))
        self._oldest_at = dict.fromkeys(self._retention, 0.0)
        row = database.execute("SELECT position, published_at FROM event ORDER BY position DESC LIMIT 1").fetchone()
        self._last: int = row[0] if row else _FIRST_POSITION
        self._last_at: float = row[1] if row else 0.0

    def publish(
        self, events: Sequence[BusEvent], *, within_transaction: Callable[[], None] | None = None
    ) -> list[bytes]:
        """Append all events or none, wake the subscribers, and return the replay IDs, in the same order.

        The events survive a killed process when the call returns.

        :param within_transaction: writes to the same database in the transaction of the events. It must not commit. If
            it raises, nothing was published.
        """
        now, position = self._clock(), self._last
        rows: list[tuple[int, float, bytes]] = []
        memberships: list[tuple[int, int]] = []
        replay_ids: list[bytes] = []
        awake: set[str] = set()
        for event in events:
            position = _next(position)
            replay_id = _REPLAY_ID.pack(position)
            frame = pb.FetchResponse(
                events=[
                    pb.ConsumerEvent(
                        event=pb.ProducerEvent(
                            id=event.event_id or "", schema_id=event.schema_id, payload=event.payload
                        ),
                        replay_id=replay_id,
                    )
                ]
            ).SerializeToString()
            rows.append((position, now, frame))
            names = {event.topic, *event.channels, *self._channels_of(event.topic)}
            memberships.extend((self._topic(name), position) for name in names)
            awake |= names
            replay_ids.append(replay_id)
        with self._database:
            if within_transaction is not None:
                within_transaction()
            self._database.executemany("INSERT INTO event VALUES (?, ?, ?)", rows)
            self._database.executemany("INSERT INTO topic_event VALUES (?, ?)", memberships)
        if rows:
            self._last, self._last_at = position, now
        for name in awake:
            for listener in self._listeners.get(name, ()):
                listener.set()
        return replay_ids

    def read(self, topic: str, after: int, limit: int, max_bytes: int) -> tuple[int, list[bytes]]:
        """Return the retained events of a topic strictly after a position, at least one if one exists.

        Each event is a serialised ``FetchResponse`` of its own; the concatenation is a response with all events.

        :returns: the position of the last event (``after`` if the list is empty), and the events.
        """
        rows = self._database.execute(
            "SELECT event.position, frame FROM topic_event CROSS JOIN event ON event.position = topic_event.position "
            "WHERE topic = ? AND topic_event.position > ? ORDER BY topic_event.position LIMIT ?",
            (self._topics.get(topic, 0), max(after, self.earliest(topic)), limit),
        ).fetchall()
        total = 0
        for index, (_, frame) in enumerate(rows):
            total += len(frame)
            if total > max_bytes and index:
                rows = rows[:index]
                break
        return (rows[-1][0] if rows else after), [frame for _, frame in rows]

    def earliest(self, topic: str) -> int:
        """Return the position before the first retained event of a topic."""
        group = self._group(topic)
        cutoff = self._clock() - self._retention[group]()
        if self._oldest_at[group] < cutoff:
            self._expire_until(group, cutoff)
        return max(self._floors.get(group, 0), self._floors.get(topic, 0))

    def reserve_between(self, after: int, before: int, part: float) -> int | None:
        """Return a resumable position without an event, strictly between two positions.

        Event positions are not contiguous, so positions between two events are free.

        :param part: the relative place between the two positions, from 0 to 1.
        :returns: ``None`` if no position lies between.
        """
        low = max(after, _FIRST_POSITION)
        if before - low < 2:
            return None
        position = min(max(low + int((before - low) * part), low + 1), before - 1)
        with self._database:
            self._database.execute(
                "INSERT OR IGNORE INTO event SELECT ?, published_at, NULL FROM event WHERE position > ? "
                "ORDER BY position LIMIT 1",
                (position, position),
            )
        return position

    def advance(self) -> int:
        """Return a new position after all published events."""
        self._skip(_next(self._last), self._clock())
        return self._last

    def is_resumable(self, topic: str, position: int) -> bool:
        """Return whether a subscription can resume from a position."""
        try:
            return self.position_of(topic, self.replay_id(position)) == position
        except ReplayIdCorruptedError:
            return False

    def last(self) -> int:
        """Return the position of the newest event; later events have higher positions."""
        return self._last

    def tip(self) -> int:
        """Return a position after all published events, never one that is about to expire.

        The bus of a real org always has recent events; here a quiet bus uses a new position without an event.
        """
        now = self._clock()
        if self._last <= self.earliest("") or now - self._last_at > _TIP_AGE_SECONDS:
            self._skip(_next(self._last), now)
        return self._last

    def position_of(self, topic: str, replay_id: bytes) -> int:
        """Return the position of a replay ID of 8 or 10 bytes.

        :raises ReplayIdCorruptedError: if a subscription cannot resume from it.
        """
        if len(replay_id) not in (8, 10) or replay_id[8:].strip(b"\0"):
            raise ReplayIdCorruptedError
        position = int.from_bytes(replay_id[:8], "big")
        if position <= self.earliest(topic) or position > self._last:
            raise ReplayIdCorruptedError
        known = "SELECT 1 FROM event WHERE position = :p AND NOT EXISTS (SELECT 1 FROM expired WHERE position = :p)"
        if not self._database.execute(known, {"p": position}).fetchone():
            raise ReplayIdCorruptedError
        return position

    def replay_id(self, position: int) -> bytes:
        """Return the replay ID of a position: the ten bytes that clients see."""
        return _REPLAY_ID.pack(position)

    @contextmanager
    def listen(self, topic: str, listener: asyncio.Event) -> Iterator[None]:
        """Set ``listener`` whenever an event is published to ``topic``, within the context."""
        listeners = self._listeners.setdefault(topic, set())
        listeners.add(listener)
        try:
            yield
        finally:
            listeners.discard(listener)

    def expire(self, topic: str, replay_id: bytes) -> None:
        """Expire one replay ID.

        :raises ReplayIdCorruptedError: if it has already expired.
        """
        position = self.position_of(topic, replay_id)
        with self._database:
            self._database.execute("INSERT OR IGNORE INTO expired VALUES (?)", (position,))

    def expire_before(self, topic: str, replay_id: bytes) -> None:
        """Expire all events of a topic before a replay ID; the event of this replay ID stays readable.

        :raises ReplayIdCorruptedError: if the replay ID has already expired.
        """
        self._set_floor(topic, self._before(self.position_of(topic, replay_id)))

    def reset(self, topic: str) -> None:
        """Reset a topic's stream, as the move of an org to another instance may; earlier replay IDs become invalid."""
        self._skip(self._last + _RESET_JUMP, self._clock())
        self._set_floor(topic, self._last)

    def record(self, topic: str, after: int, limit: int) -> list[StoredEvent]:
        """Return all events ever published to a topic strictly after a position, expired events included."""
        return self._stored(topic, after, limit)

    def retained(self, topic: str, after: int, limit: int) -> list[StoredEvent]:
        """Return the retained events of a topic strictly after a position, in order."""
        return self._stored(topic, max(after, self.earliest(topic)), limit)

    def _stored(self, topic: str, after: int, limit: int) -> list[StoredEvent]:
        floor = self.earliest(topic)
        rows = self._database.execute(
            "SELECT event.position, published_at, frame "
            "FROM topic_event CROSS JOIN event ON event.position = topic_event.position "
            "WHERE topic = ? AND topic_event.position > ? ORDER BY topic_event.position LIMIT ?",
            (self._topics.get(topic, 0), after, limit),
        )
        stored = []
        for position, published_at, frame in rows:
            event = pb.FetchResponse.FromString(frame).events[0]
            producer = event.event
            stored.append(
                StoredEvent(
                    event.replay_id,
                    producer.id or None,
                    producer.schema_id,
                    producer.payload,
                    published_at,
                    position <= floor,
                )
            )
        return stored

    def _expire_until(self, group: str, cutoff: float) -> None:
        floor = self._floors.get(group, 0)
        row = self._database.execute(
            "SELECT position, published_at FROM event WHERE position > ? AND published_at >= ? "
            "ORDER BY position LIMIT 1",
            (floor, cutoff),
        ).fetchone()
        oldest, self._oldest_at[group] = row or (self._last + 1, cutoff)
        if (expired := self._before(oldest)) > floor:
            self._set_floor(group, expired)

    def _before(self, position: int) -> int:
        """Return the last issued position on the bus before another position."""
        row = self._database.execute("SELECT max(position) FROM event WHERE position < ?", (position,)).fetchone()
        return int(row[0] or 0)

    def _skip(self, position: int, now: float) -> None:
        with self._database:
            self._database.execute("INSERT INTO event VALUES (?, ?, NULL)", (position, now))
        self._last, self._last_at = position, now

    def _set_floor(self, topic: str, position: int) -> None:
        with self._database:
            self._database.execute("INSERT OR REPLACE INTO floor VALUES (?, ?)", (topic, position))
        self._floors[topic] = position

    def _group(self, topic: str) -> str:
        if topic.startswith(("/topic/", "/u/")):
            return _STREAMING
        return _STANDARD_VOLUME if self._is_standard_volume(topic) else ""

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            with self._database:
                cursor = self._database.execute("INSERT INTO topic_number (name) VALUES (?)", (name,))
            self._topics[name] = int(cursor.lastrowid or 0)
        return self._topics[name]


def _next(position: int) -> int:
    """Return the position of the next event; it skips at least 31, which :meth:`EventBus.reserve_between` uses."""
    return position + 32 + position % 7
