"""An event source that plays a script of responses, silences and faults over a retained stream, without a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

from airflow_provider_sfstream.exceptions import ReplayIdLostError, SalesforceStreamError
from airflow_provider_sfstream.reading.source import EventBatch, PayloadEncoding, StartFrom

SCHEMA_ID = "K98aAtiNFBjA-PJlcvaQ2g"
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order__e",
        "namespace": "com.sforce.eventbus",
        "fields": [
            {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
            {"name": "CreatedById", "type": "string", "doc": "CreatedBy:EntityId"},
        ],
    }
)


@dataclass(frozen=True)
class Event:
    """One retained event. ``time`` is milliseconds since the epoch."""

    replay_id: bytes
    payload: bytes
    time: int | None = None
    schema_id: str = SCHEMA_ID


def replay_id(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"\0\0"


def avro_payload(time: int, text: str = "005xx") -> bytes:
    """Return ``SCHEMA``'s Avro encoding of an event of that time."""
    return _zigzag(time) + _zigzag(len(text)) + text.encode()


def _zigzag(value: int) -> bytes:
    value = value << 1 if value >= 0 else ((-value) << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def events(count: int, *, first: int = 1, size: int = 10) -> list[Event]:
    return [
        Event(replay_id(number * 3), bytes([number % 256]) * size, number) for number in range(first, first + count)
    ]


@dataclass(frozen=True)
class Deliver:
    """Deliver up to ``count`` events, the first of them the start itself once more if ``repeat``."""

    count: int
    repeat: bool = False


@dataclass(frozen=True)
class Keepalive:
    """An empty response. ``at`` is its ``latest_replay_id``, by default that of the stream's last event."""

    pending: int = 1
    at: bytes | None = None


@dataclass(frozen=True)
class Silence:
    """No response for so many seconds, by default the idle timeout of a drain."""

    seconds: float = 10.0


@dataclass(frozen=True)
class End:
    """The iteration ends without a fault."""


Step = Deliver | Keepalive | Silence | End | SalesforceStreamError


@dataclass
class FakeTime:
    """A clock that only moves when somebody waits."""

    seconds: float = 0.0
    sleeps: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds


@dataclass
class ScriptedSource:
    """Plays ``script`` over ``stream``; when the script is over, delivers the rest and then keepalives.

    ``retained_from`` is the index of the oldest readable event: an earlier replay ID is lost.
    """

    payload_encoding: ClassVar[PayloadEncoding] = "avro"
    confirms_positions: ClassVar[bool] = True
    stream: list[Event]
    script: list[Step] = field(default_factory=list)
    time: FakeTime = field(default_factory=FakeTime)
    retained_from: int = 0
    latest_from: int | None = None
    starts: list[bytes | StartFrom] = field(default_factory=list)
    limits: list[int | None] = field(default_factory=list)
    out_of_contact: list[SalesforceStreamError] = field(default_factory=list)
    proofs: int = 0
    renewals: int = 0
    open_subscriptions: int = 0

    def prove_contact(self, topic: str) -> None:
        """Answer, after the faults of ``out_of_contact``."""
        self.proofs += 1
        if self.out_of_contact:
            raise self.out_of_contact.pop(0)

    def subscribe(
        self,
        topic: str,
        start: bytes | StartFrom,
        *,
        limit: int | None,
        idle_timeout: float,
        answer_within: float | None = None,
    ) -> Iterator[EventBatch | None]:
        if start is StartFrom.LATEST and limit == 1:  # what looks for the end of a busy stream: this one falls silent
            while True:
                yield None
        self.starts.append(start)
        self.limits.append(limit)
        self.open_subscriptions += 1
        try:
            yield from self._play(start, limit, idle_timeout)
        finally:
            self.open_subscriptions -= 1

    def _play(self, start: bytes | StartFrom, limit: int | None, idle_timeout: float) -> Iterator[EventBatch | None]:
        place = self._place_after(start)
        left = len(self.stream) if limit is None else limit
        while True:
            rest = min(100, left, len(self.stream) - place)
            step = self.script.pop(0) if self.script else Deliver(rest) if rest > 0 else Keepalive()
            match step:
                case Deliver(count, repeat):
                    place = max(0, place - 1) if repeat else place
                    part = self.stream[place : place + min(count, left)]
                    place += len(part)
                    left -= len(part)
                    if part:
                        yield self._batch(part, part[-1].replay_id, left)
                    if limit is not None and left == 0:
                        return
                case Keepalive(pending, at):
                    if at is None:
                        at = self.stream[-1].replay_id if self.stream else replay_id(0)
                    yield self._batch([], at, pending)
                case Silence(seconds):
                    for _ in range(ceil(seconds / idle_timeout)):
                        self.time.seconds += idle_timeout
                        yield None
                case End():
                    return
                case error:
                    raise error

    def _place_after(self, start: bytes | StartFrom) -> int:
        if start is StartFrom.EARLIEST:
            return self.retained_from
        if start is StartFrom.LATEST:
            return len(self.stream) if self.latest_from is None else self.latest_from
        places = [place for place, event in enumerate(self.stream) if event.replay_id == start]
        if not places or places[0] < self.retained_from:
            raise ReplayIdLostError("The Replay ID validation failed.")
        return places[0] + 1

    def _batch(self, part: list[Event], latest: bytes, pending: int) -> EventBatch:
        return EventBatch(
            replay_ids=[event.replay_id for event in part],
            event_ids=[None] * len(part),
            schema_ids=[event.schema_id for event in part],
            payloads=[event.payload for event in part],
            latest_replay_id=latest,
            pending=pending,
            received_at=1_700_000_000_000_000_000,
        )

    def schema(self, schema_id: str) -> str:
        assert schema_id in {SCHEMA_ID, *(event.schema_id for event in self.stream)}
        return SCHEMA

    def renew_session(self) -> None:
        self.renewals += 1


@dataclass
class ListSink:
    """Keeps what it is given."""

    batches: list[EventBatch] = field(default_factory=list)

    def append(self, batch: EventBatch) -> None:
        self.batches.append(batch)

    @property
    def replay_ids(self) -> list[bytes]:
        return [replay_id for batch in self.batches for replay_id in batch.replay_ids]

    @property
    def payload_bytes(self) -> int:
        return sum(len(payload) for batch in self.batches for payload in batch.payloads)
