"""Event source without a server, which plays a script of responses, silences and faults over a retained stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from typing import Any, ClassVar

import pytest

from airflow_provider_sfstream.exceptions import ReplayIdLostError, SalesforceStreamError
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.source import EventBatch, PayloadEncoding, StartFrom

BEGAN = datetime(2026, 11, 20, 12, tzinfo=UTC)
"""Salesforce's time at the moment when a drain measures it."""

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
    """Return the Avro encoding, by ``SCHEMA``, of an event with this time."""
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
    """Response with up to ``count`` events; ``repeat``: it starts with the event at the start position again."""

    count: int
    repeat: bool = False


@dataclass(frozen=True)
class Keepalive:
    """An empty response. ``at`` is its ``latest_replay_id``; default: the replay ID of the stream's last event."""

    pending: int = 1
    at: bytes | None = None


@dataclass(frozen=True)
class Silence:
    """Seconds without a response; default: the idle timeout of a drain."""

    seconds: float = 10.0


@dataclass(frozen=True)
class End:
    """End of the iteration without a fault."""


Step = Deliver | Keepalive | Silence | End | SalesforceStreamError


@dataclass
class FakeTime:
    """Clock that advances only by waits."""

    seconds: float = 0.0
    sleeps: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds


@contextmanager
def use_clock(time: FakeTime) -> Iterator[None]:
    """Use ``time`` as the clock of drains: with the real clock, drains would poll in a loop until the timeout."""
    before = Drain.__init__.__kwdefaults__["clock"]
    Drain.__init__.__kwdefaults__["clock"] = time.clock
    try:
        yield
    finally:
        Drain.__init__.__kwdefaults__["clock"] = before


@dataclass
class ScriptedSource:
    """Source that plays ``script`` over ``stream``, then delivers the other events, a keepalive and silence.

    :param retained_from: index of the oldest readable event; earlier replay IDs are lost.
    :param reference: responses of the second subscription, at ``LATEST``: event indexes, replay IDs of empty responses,
        errors, or ``None``; default: one empty response at the stream's last event. A later second subscription
        continues with the next response.
    :param references: number of opened second subscriptions.
    :param began: Salesforce's time at the moment when a drain measures it.
    :param measures_time: whether Salesforce's time can be measured.
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
    contact_faults: list[SalesforceStreamError] = field(default_factory=list)
    reference: Sequence[int | bytes | SalesforceStreamError | None] | None = None
    began: datetime = BEGAN
    measures_time: bool = True
    references: int = 0
    open_references: int = 0
    proofs: int = 0
    renewals: int = 0
    open_subscriptions: int = 0

    def prove_contact(self, topic: str) -> None:
        """Raise the next fault of ``contact_faults``, if one remains."""
        self.proofs += 1
        if self.contact_faults:
            raise self.contact_faults.pop(0)

    def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        return ServerTime(self.began, clock(), clock()) if self.measures_time else None

    def latest(self, topic: str, *, idle_timeout: float) -> Iterator[EventBatch | None]:
        """Play ``reference``, then silence."""
        if self.reference is None:
            self.reference = [self._newest()]
        if not isinstance(self.reference, list):
            self.reference = list(self.reference)
        self.references += 1
        self.open_references += 1
        try:
            while True:
                match self.reference.pop(0) if self.reference else None:
                    case int(index):
                        yield self._batch([self.stream[index]], self.stream[index].replay_id, 0)
                    case bytes(at):
                        yield self._batch([], at, 1)
                    case None:
                        yield None
                    case error:
                        raise error
        finally:
            self.open_references -= 1

    def _newest(self) -> bytes:
        return self.stream[-1].replay_id if self.stream else replay_id(0)

    def subscribe(
        self,
        topic: str,
        after: bytes | StartFrom,
        *,
        limit: int | None,
        idle_timeout: float,
        answer_within: float | None = None,
    ) -> Iterator[EventBatch | None]:
        self.starts.append(after)
        self.limits.append(limit)
        self.open_subscriptions += 1
        try:
            yield from self._play(after, limit, idle_timeout)
        finally:
            self.open_subscriptions -= 1

    def _play(self, after: bytes | StartFrom, limit: int | None, idle_timeout: float) -> Iterator[EventBatch | None]:
        place = self._place_after(after)
        left = sys.maxsize if limit is None else limit
        while True:
            step = self._step(min(100, left, len(self.stream) - place))
            match step:
                case Deliver(count, repeat):
                    place = max(0, place - 1) if repeat else place
                    part = self.stream[place : place + min(count, left)]
                    place += len(part)
                    left -= len(part)
                    if part:
                        yield self._batch(part, part[-1].replay_id, min(100, left))
                    if limit is not None and left == 0:
                        return
                case Keepalive(pending, at):
                    yield self._batch([], self._newest() if at is None else at, pending)
                case Silence(seconds):
                    yield from self._silence(seconds, idle_timeout)
                case End():
                    return
                case error:
                    raise error

    def _step(self, rest: int) -> Step:
        if not self.script:
            self.script += [Deliver(rest)] if rest > 0 else [Keepalive(), Silence()]
        return self.script.pop(0)

    def _silence(self, seconds: float, idle_timeout: float) -> Iterator[None]:
        for _ in range(ceil(seconds / idle_timeout)):
            self.time.seconds += idle_timeout
            yield None

    def _place_after(self, after: bytes | StartFrom) -> int:
        if after is StartFrom.EARLIEST:
            return self.retained_from
        if after is StartFrom.LATEST:
            return len(self.stream) if self.latest_from is None else self.latest_from
        places = [place for place, event in enumerate(self.stream) if event.replay_id == after]
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
    """Sink that stores batches in a list."""

    batches: list[EventBatch] = field(default_factory=list)

    def append(self, batch: EventBatch) -> None:
        self.batches.append(batch)

    @property
    def replay_ids(self) -> list[bytes]:
        return [replay_id for batch in self.batches for replay_id in batch.replay_ids]

    @property
    def payload_bytes(self) -> int:
        return sum(len(payload) for batch in self.batches for payload in batch.payloads)


class ForbiddenSource(ScriptedSource):
    """Source that fails the test when a drain subscribes."""

    def subscribe(self, *arguments: Any, **named: Any) -> Any:
        pytest.fail("The drain subscribed at Salesforce.")
