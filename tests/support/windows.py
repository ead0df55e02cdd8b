"""Batches, streams and manifests for tests of landings and stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.parquet import WrittenWindow
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream, window_id_for
from airflow_provider_sfstream.streams.source import EventBatch
from tests.support.scripted_source import SCHEMA_ID, avro_payload, replay_id

STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e")
DUE = datetime(2026, 1, 31, 12, tzinfo=UTC)
EPOCH_MS = int(DUE.timestamp() * 1000)
RECEIVED = 1_769_860_800_123_456_789


def run_identity(number: int = 0, due: datetime = DUE) -> RunIdentity:
    return RunIdentity("orders", "drain", f"scheduled__{number}", due)


def batch(first: int, count: int, *, size: int = 20, schema_id: str = SCHEMA_ID) -> EventBatch:
    numbers = range(first, first + count)
    return EventBatch(
        replay_ids=[replay_id(number + 1) for number in numbers],
        event_ids=[None if number % 3 else f"event-{number}" for number in numbers],
        schema_ids=[schema_id] * count,
        payloads=[avro_payload(EPOCH_MS + number * 1000, "x" * size) for number in numbers],
        latest_replay_id=replay_id(first + count),
        pending=0,
        received_at=RECEIVED + first,
    )


def manifest(
    landing: Landing,
    landed: WrittenWindow | None = None,
    *,
    number: int = 0,
    due: datetime = DUE,
    previous: str | None = None,
) -> Manifest:
    run = run_identity(number, due)
    window_id = window_id_for(run, "live", None)
    window = ReplayWindow(
        window_id=window_id,
        kind="live",
        after=None,
        through=replay_id(landed.event_count) if landed and landed.event_count else None,
        event_count=landed.event_count if landed else 0,
        first_event_time=landed.first_event_time if landed else None,
        last_event_time=landed.last_event_time if landed else None,
        manifest_url=landing.manifest_url(STREAM, window_id),
        run=run,
        previous_window_id=previous,
    )
    return Manifest(
        stream=STREAM,
        window=window,
        fence=0,
        files=landed.files if landed else (),
        schemas=landed.schemas if landed else {},
        payload_bytes=landed.payload_bytes if landed else 0,
        stop_reason="caught_up",
        started_at=due,
        finished_at=due,
        provider_version="0",
    )


def with_stop_reason(original: Manifest, stop_reason: str) -> Manifest:
    return replace(original, stop_reason=stop_reason)
