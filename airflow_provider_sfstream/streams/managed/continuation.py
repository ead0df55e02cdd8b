"""Continuation of a managed subscription: the events it delivers again, and those after the position of the reader.

The next stream delivers the events again that were delivered and not committed (Pub/Sub API guide, "Managed Event
Subscriptions"), from the same event on and in the same order. Replay IDs can only be compared for equality. The last
redelivered event is therefore either the one that was delivered last, or the last one that is landed.

Salesforce drops the committed replay ID of a managed subscription that is stopped or deleted, moves it when another
client commits, and restarts from ``errorRecoveryReplay`` when it aged out. The stream reports none of this. A drain
with a recorded position therefore also opens an ordinary subscription at that position: its first event must be the
first new event of the managed stream. Until that is confirmed, events are read from the ordinary subscription only. A
wrong guess costs deliveries, never events.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from airflow_provider_sfstream.salesforce.events import EventBatch, Responses, StartFrom
from airflow_provider_sfstream.salesforce.replay_ids import is_later
from airflow_provider_sfstream.streams.managed.exclusive_stream import ExclusiveStream

log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0
"""Seconds between two reads of the managed stream while events are read from the topic."""

IsLanded = Callable[[bytes], bool]
"""Callable that returns whether the event with a replay ID is in a landed window. Landed windows are an unbroken run of
the stream: it is called for a few events of each response, until one is not landed."""


@dataclass
class Redelivery:
    """Events at the beginning of a stream that were delivered before.

    ``through`` is the last of them, itself included. With ``is_landed`` they may also end earlier, with the last event
    that is landed; without, every event until ``through`` is one. ``is_over``: all of them were received.
    """

    through: bytes | None = None
    is_landed: IsLanded | None = None
    is_over: bool = field(default=False, init=False)
    last: bytes | None = field(default=None, init=False)
    """The last of them that was received."""

    def __post_init__(self) -> None:
        self.is_over = self.through is None and self.is_landed is None

    def known(self, replay_ids: Sequence[bytes]) -> int:
        """Return the number of events at the start of ``replay_ids`` that were delivered before."""
        if self.is_over or not replay_ids:
            return 0
        if self.through in replay_ids:
            count, self.is_over = replay_ids.index(self.through) + 1, True
        else:
            count = self._count_landed(replay_ids)
            self.is_over = count < len(replay_ids)
        self.last = replay_ids[count - 1] if count else self.last
        return count

    def _count_landed(self, replay_ids: Sequence[bytes]) -> int:
        is_landed = self.is_landed
        if is_landed is None:
            return len(replay_ids)
        if not is_landed(replay_ids[0]):
            return 0
        if is_landed(replay_ids[-1]):
            return len(replay_ids)
        return bisect_left(replay_ids, True, key=lambda replay_id: not is_landed(replay_id))


@dataclass
class DeliveredEvents:
    """Events that a reader received since the last commit: a new stream begins with them again.

    ``first`` and ``last`` are its events. ``confirmed`` is the position that an empty response confirmed last, with the
    last event before it. ``base`` is the start of the subscription that delivered the first of them.
    """

    base: bytes | StartFrom = StartFrom.COMMITTED
    first: bytes | None = None
    last: bytes | None = None
    confirmed: tuple[bytes, bytes | None] | None = None

    def begin(self, after: bytes | StartFrom, is_landed: IsLanded | None) -> Redelivery:
        """Return the events that are delivered again before those after ``after``.

        :param is_landed: used if no event was received, or reading restarts at ``base``.
        """
        if self.first is None:
            self.base = after
        through = after if isinstance(after, bytes) else None
        if self.first is None or after == self.base:
            return Redelivery(through if is_landed is not None else None, is_landed)
        if self.confirmed is not None and after == self.confirmed[0]:
            return Redelivery(self.confirmed[1])
        return Redelivery(through)

    def add(self, batch: EventBatch) -> None:
        """Record the events of a batch that the reader receives."""
        if len(batch):
            self.first = self.first or batch.replay_ids[0]
            self.last = batch.replay_ids[-1]

    def confirm(self, replay_id: bytes) -> None:
        """Record that an empty response confirmed ``replay_id``."""
        self.confirmed = replay_id, self.last

    def forget(self) -> None:
        """Discard the events: a new stream does not deliver them again."""
        self.first = self.last = self.confirmed = None


def without_known(batch: EventBatch, count: int) -> EventBatch:
    """Return ``batch`` without its first ``count`` events. An empty result confirms no position."""
    if count < len(batch):
        return batch.part(count, len(batch))
    return EventBatch.without_events(received_at=batch.received_at)


def _is_same(batch: EventBatch, index: int, other: EventBatch) -> bool:
    """Return whether the event at ``index`` is the first one of ``other``. Replay IDs of two topics may be equal."""
    columns = ("replay_ids", "event_ids", "schema_ids")
    return all(getattr(batch, name)[index] == getattr(other, name)[0] for name in columns)


class Comparison:
    """Comparison of an ordinary subscription with the managed stream, until both deliver the same events.

    :param stream: the managed stream. Its limit is raised by the number of events that are discarded here.
    :param managed: its responses without the events that are already stored.
    :param patience: seconds to wait for the first event of the managed stream, after the ordinary one delivered it.
    """

    def __init__(
        self,
        stream: ExclusiveStream,
        managed: Iterator[EventBatch | None],
        *,
        after: bytes | StartFrom,
        limit: int | None,
        patience: float,
    ) -> None:
        self._stream, self._managed, self._clock = stream, managed, stream.clock
        self._after, self._limit, self._patience = after, limit, patience
        self._head: EventBatch | None = None
        self._last_id: bytes | None = None
        self._next_look = self._clock()
        self._has_differed = self._is_exhausted = False
        self.agrees = False
        """True if the managed stream continues after the position, so that its events may be read."""

    @property
    def differs(self) -> bool:
        """Return whether the managed stream was found to continue at another position, and not to agree since."""
        return not self.agrees and (self._has_differed or self._head is not None)

    def responses(self) -> Responses:
        """Yield the responses of the ordinary subscription. End when both agree, or at the limit of events.

        :raises ReplayIdLostError: if the position can no longer be read.
        """
        self._look()
        expected: EventBatch | None = None
        with closing(self._stream.open_topic(self._after, 1)) as ordinary:
            for response in ordinary:
                if response is not None and len(response):
                    expected = response
                    break
                self._advance(response)
                yield response
                self._look()
        if expected is None:
            return
        deadline = self._clock() + self._patience
        while self._head is None and not self._is_past(expected) and self._clock() < deadline:
            self._look()  # without yielding None, which would report no event although one was received
        if self._head is not None and _is_same(expected, 0, self._head):
            self.agrees = True
        else:
            self._warn(expected.replay_ids[0])
            yield from self._read_topic(expected)

    def _is_past(self, expected: EventBatch) -> bool:
        """Return whether the managed stream has ended, or has named a position after the expected event."""
        return self._is_exhausted or is_later(self._stream.quiet_at or b"", expected.replay_ids[0])

    def rest(self) -> Responses:
        """Yield the responses of the managed stream after the events that were yielded, once the two agree."""
        redelivery = Redelivery(self._last_id)
        head, self._head = self._head, None
        if head is not None:
            yield without_known(head, redelivery.known(head.replay_ids))
        for response in self._managed:
            if response is not None and len(response):
                yield without_known(response, redelivery.known(response.replay_ids))
            elif response is None or redelivery.is_over:
                yield response

    def _read_topic(self, expected: EventBatch) -> Responses:
        self._advance(expected)
        yield expected
        if self._limit == 1:
            return
        remaining = None if self._limit is None else self._limit - 1
        with closing(self._stream.open_topic(self._after, remaining)) as ordinary:
            for response in ordinary:
                self._advance(response)
                self.agrees = self._reaches_head(response)
                yield response
                if self.agrees:
                    log.info(
                        "%s: the stream continues after the events that were read. Reading from it again.",
                        self._stream.name,
                    )
                    return
                if response is None or self._clock() >= self._next_look:
                    self._look()

    def _reaches_head(self, response: EventBatch | None) -> bool:
        head = self._head
        if head is None or response is None or head.replay_ids[0] not in response.replay_ids:
            return False
        return _is_same(response, response.replay_ids.index(head.replay_ids[0]), head)

    def _advance(self, response: EventBatch | None) -> None:
        if response is None:
            return
        if len(response):
            self._after = self._last_id = response.replay_ids[-1]
        elif response.confirms_position:
            self._after = response.latest_replay_id

    def _look(self) -> None:
        """Look for the first event of the managed stream that may lie after the position, unless it was found."""
        if self._head is not None or self._is_exhausted:
            return
        self._next_look = self._clock() + _LOOK_EVERY
        try:
            response = next(self._managed)
        except StopIteration:
            self._is_exhausted = True
            return
        if response is None or not len(response):
            return
        earlier_count = self._count_earlier(response.replay_ids)
        self._stream.allow(earlier_count)
        if earlier_count < len(response):
            self._head = response.part(earlier_count, len(response))

    def _count_earlier(self, replay_ids: Sequence[bytes]) -> int:
        """Return the number of events not after the position. Of an unknown form, only those up to the position."""
        after = self._after
        if not isinstance(after, bytes):
            return 0
        if after in replay_ids:
            return replay_ids.index(after) + 1
        count = len(list(takewhile(partial(is_later, after), replay_ids)))
        self._has_differed = self._has_differed or count > 0
        return count

    def _warn(self, expected: bytes) -> None:
        self._has_differed = True
        delivered, slow = "no event after it", ", or the stream is slow"
        if self._head is not None:
            delivered, slow = self._head.replay_ids[0].hex(), ""
        log.warning(
            "%s: the stream does not continue after the recorded position so far: the next event of the topic is %s, "
            "and the stream has delivered %s. Salesforce dropped the position of the subscription (it was deleted and "
            "recreated, or stopped and started), or another client commits on it%s. Nothing is lost: the events are "
            "read from the topic itself, after the recorded position. Use one managed subscription for each consumer.",
            self._stream.name,
            expected.hex(),
            delivered,
            slow,
        )
