"""An asyncio event source that plays a script of responses, pauses and faults over a retained stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from airflow_provider_sfstream.exceptions import ReplayIdLostError, SalesforceStreamError, ServiceUnavailableError
from airflow_provider_sfstream.protocol.events import EventBatch, StartFrom
from tests.support.scripted_source import SCHEMA, SCHEMA_ID, Deliver, End, Event, Keepalive, Silence, replay_id

KEEPALIVE_SECONDS = 120.0


@dataclass(frozen=True)
class Pass:
    """Time passes before the next step."""

    seconds: float


Step = Deliver | Keepalive | Silence | End | Pass | SalesforceStreamError


@dataclass
class ScriptedAsyncSource:
    """Plays ``script`` over ``stream``; when the script is over, delivers the rest, then keepalives every two minutes.

    ``retained_from`` is the index of the oldest readable event: an earlier replay ID is lost. ``latest_from`` is where
    ``LATEST`` begins, by default behind the stream's end. ``schema_fault`` is raised by ``schema``.
    """

    stream: list[Event]
    script: list[Step] = field(default_factory=list)
    retained_from: int = 0
    latest_from: int | None = None
    schema_fault: SalesforceStreamError | None = None
    starts: list[bytes | StartFrom] = field(default_factory=list)
    limits: list[int | None] = field(default_factory=list)
    schemas_read: list[str] = field(default_factory=list)
    received_at: int = 1_700_000_000_000_000_000
    renewals: int = 0
    open_subscriptions: int = 0

    async def subscribe(
        self, topic: str, start: bytes | StartFrom, *, limit: int | None, silence_timeout: float
    ) -> AsyncIterator[EventBatch]:
        assert limit is None or limit >= 1
        self.starts.append(start)
        self.limits.append(limit)
        self.open_subscriptions += 1
        try:
            place = self._place_after(start)
            left = len(self.stream) if limit is None else limit
            while limit is None or left > 0:
                step = self._step(place)
                match step:
                    case Deliver(count, repeat):
                        place = max(0, place - 1) if repeat else place
                        part = self.stream[place : place + min(count, left)]
                        place += len(part)
                        left -= len(part)
                        if part:
                            yield self._batch(part, part[-1].replay_id, left)
                    case Keepalive(pending, at):
                        last = self.stream[place - 1].replay_id if place else replay_id(0)
                        yield self._batch([], last if at is None else at, pending)
                    case End():
                        return
                    case Silence():
                        await asyncio.sleep(silence_timeout)
                        raise ServiceUnavailableError(f"{topic}: nothing came for {silence_timeout} s.")
                    case Pass(seconds):
                        await asyncio.sleep(seconds)
                    case error:
                        raise error
        finally:
            await asyncio.sleep(0)  # closing a real subscription takes its turn too
            self.open_subscriptions -= 1

    def _step(self, place: int) -> Step:
        if self.script:
            return self.script.pop(0)
        if place < len(self.stream):
            return Deliver(100)
        self.script.append(Keepalive())
        return Pass(KEEPALIVE_SECONDS)

    def _place_after(self, start: bytes | StartFrom) -> int:
        if start is StartFrom.EARLIEST:
            return self.retained_from
        if start is StartFrom.LATEST:
            return len(self.stream) if self.latest_from is None else self.latest_from
        if start == replay_id(0):
            return 0
        places = [place for place, event in enumerate(self.stream) if event.replay_id == start]
        if not places or places[0] < self.retained_from:
            raise ReplayIdLostError("The Replay ID validation failed.")
        return places[0] + 1

    def _batch(self, part: list[Event], latest: bytes, pending: int) -> EventBatch:
        return EventBatch(
            replay_ids=[event.replay_id for event in part],
            event_ids=[None] * len(part),
            schema_ids=[SCHEMA_ID] * len(part),
            payloads=[event.payload for event in part],
            latest_replay_id=latest,
            pending=pending,
            received_at=self.received_at,
        )

    async def schema(self, schema_id: str) -> str:
        self.schemas_read.append(schema_id)
        if self.schema_fault is not None:
            raise self.schema_fault
        assert schema_id == SCHEMA_ID
        return SCHEMA

    def renew_session(self) -> None:
        self.renewals += 1
