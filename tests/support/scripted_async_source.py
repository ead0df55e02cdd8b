"""Asyncio event source that plays a script of responses, pauses and faults over a retained stream."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import ClassVar

from airflow_provider_sfstream.exceptions import ReplayIdLostError, SalesforceStreamError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import EventBatch, PayloadEncoding, StartFrom
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from tests.support.scripted_source import SCHEMA, SCHEMA_ID, Deliver, End, Event, Keepalive, Silence, replay_id
from tests.support.virtual_time import virtual_clock, virtual_now

KEEPALIVE_SECONDS = 120.0


@dataclass(frozen=True)
class Pause:
    """Pause before the next step."""

    seconds: float


Step = Deliver | Keepalive | Silence | End | Pause | SalesforceStreamError


def unused_replay_id_after(position: bytes) -> bytes:
    """Return an unused replay ID right after another replay ID."""
    return (int.from_bytes(position[:8], "big") + 1).to_bytes(8, "big") + b"\0\0"


@dataclass
class ScriptedAsyncSource:
    """Source that plays ``script`` over ``stream``, then delivers the other events and sends keepalives.

    Keepalives follow every two minutes. Each contains a new position, after the last delivered event. Requires virtual
    time.

    :param retained_from: index of the oldest readable event; earlier replay IDs are lost.
    :param latest_from: index at which ``LATEST`` starts; default: after the last event.
    :param schema_fault: error that ``schema`` raises.
    :param latest_places: recorded start index of each subscription at ``LATEST``.
    :param delivered_at: recorded time of the last delivery of each event.
    :param place: number of delivered events of the stream.
    :param reference: source of the second subscription of a wait for the end of the stream (``LATEST``, one event).
    :param measures_time: whether Salesforce's time can be measured.
    """

    payload_encoding: ClassVar[PayloadEncoding] = "avro"
    confirms_positions: ClassVar[bool] = True
    stream: list[Event]
    script: list[Step] = field(default_factory=list)
    retained_from: int = 0
    latest_from: int | None = None
    schema_fault: SalesforceStreamError | None = None
    starts: list[bytes | StartFrom] = field(default_factory=list)
    limits: list[int | None] = field(default_factory=list)
    schemas_read: list[str] = field(default_factory=list)
    schema_json: str = SCHEMA
    latest_places: list[int] = field(default_factory=list)
    delivered_at: dict[bytes, float] = field(default_factory=dict)
    place: int = 0
    renewals: int = 0
    open_subscriptions: int = 0
    reference: ScriptedAsyncSource | None = None
    measures_time: bool = True

    async def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        return ServerTime(virtual_now(), clock(), clock()) if self.measures_time else None

    def subscribe(
        self, topic: str, after: bytes | StartFrom, *, limit: int | None, silence_timeout: float
    ) -> AsyncGenerator[EventBatch, None]:
        is_second = self.reference is not None and (after, limit) == (StartFrom.LATEST, 1)
        source = self.reference if self.reference is not None and is_second else self
        return source._responses(topic, after, limit, silence_timeout)

    async def _responses(
        self, topic: str, after: bytes | StartFrom, limit: int | None, silence_timeout: float
    ) -> AsyncGenerator[EventBatch, None]:
        assert limit is None or limit >= 1
        self.starts.append(after)
        self.limits.append(limit)
        self.open_subscriptions += 1
        try:
            place = self.place = self._place_after(after)
            left = sys.maxsize if limit is None else limit
            named = after
            while left > 0:
                step = self._step(place)
                match step:
                    case Deliver(count, repeat):
                        if repeat and place and self.stream[place - 1].replay_id == named:
                            place -= 1
                        part = self.stream[place : place + min(count, left)]
                        place += len(part)
                        left -= len(part)
                        if part:
                            named = part[-1].replay_id
                            self.place = place
                            self.delivered_at |= {event.replay_id: virtual_clock() for event in part}
                            yield self._batch(part, named, min(100, left))
                    case Keepalive(pending, at):
                        fresh = unused_replay_id_after(self.stream[place - 1].replay_id if place else replay_id(0))
                        named = fresh if at is None else at
                        yield self._batch([], named, pending)
                    case End():
                        return
                    case Silence():
                        await asyncio.sleep(silence_timeout)
                        raise ServiceUnavailableError(f"{topic}: no response for {silence_timeout} s.")
                    case Pause(seconds):
                        await asyncio.sleep(seconds)
                    case error:
                        raise error
        finally:
            self.open_subscriptions -= 1
            await asyncio.sleep(0)  # while the source closes, the waiting task may be cancelled

    def _step(self, place: int) -> Step:
        if self.script:
            return self.script.pop(0)
        if place < len(self.stream):
            return Deliver(100)
        self.script.append(Keepalive())
        return Pause(KEEPALIVE_SECONDS)

    def _place_after(self, after: bytes | StartFrom) -> int:
        if after is StartFrom.EARLIEST:
            return self.retained_from
        if after is StartFrom.LATEST:
            self.latest_places.append(len(self.stream) if self.latest_from is None else self.latest_from)
            return self.latest_places[-1]
        place = self.number_through(after)
        if place <= self.retained_from and self.retained_from > 0:
            raise ReplayIdLostError("The Replay ID validation failed.")
        return place

    def number_through(self, position: bytes) -> int:
        """Return the number of events of the stream up to ``position``."""
        return sum(event.replay_id <= position for event in self.stream)

    def _batch(self, part: list[Event], latest: bytes, pending: int) -> EventBatch:
        return EventBatch(
            replay_ids=[event.replay_id for event in part],
            event_ids=[None] * len(part),
            schema_ids=[SCHEMA_ID] * len(part),
            payloads=[event.payload for event in part],
            latest_replay_id=latest,
            pending=pending,
            received_at=round(virtual_now().timestamp() * 1_000_000) * 1_000,
        )

    async def schema(self, schema_id: str) -> str:
        self.schemas_read.append(schema_id)
        if self.schema_fault is not None:
            raise self.schema_fault
        assert schema_id == SCHEMA_ID
        return self.schema_json

    def renew_session(self) -> None:
        self.renewals += 1
