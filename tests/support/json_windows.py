"""Windows of the Streaming API, landed by the package's writer, with JSON payloads as received."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_integer
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream
from airflow_provider_sfstream.salesforce.topics import channel_of
from airflow_provider_sfstream.streams.source import EventBatch

RECEIVED_AT = datetime(2026, 1, 20, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class JsonEvent:
    """One event: its replay ID as a number, its ``data`` (a value or its JSON bytes), and its schema ID, if any."""

    number: int
    data: dict[str, Any] | bytes
    schema_id: str | None = None

    @property
    def replay_id(self) -> bytes:
        return replay_id_from_integer(self.number)

    @property
    def payload(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else json.dumps(self.data, ensure_ascii=False).encode()


def event(number: int, payload: dict[str, Any], schema_id: str = "one", **head: Any) -> JsonEvent:
    """Return a platform or change event."""
    data = {"schema": schema_id, "payload": payload, "event": {"replayId": number, "EventUuid": f"u-{number}"} | head}
    return JsonEvent(number, data, schema_id)


def push_topic_event(number: int, sobject: dict[str, Any], created: datetime, type_: str = "updated") -> JsonEvent:
    head = {"createdDate": created.strftime("%Y-%m-%dT%H:%M:%S.000Z"), "replayId": number, "type": type_}
    return JsonEvent(number, {"event": head, "sobject": sobject})


def generic_event(number: int, content: Any, created: datetime | None) -> JsonEvent:
    head: dict[str, Any] = {"replayId": number}
    if created is not None:
        head["createdDate"] = created.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return JsonEvent(number, {"event": head, "payload": content})


def land_json_window(
    base: Path,
    window_id: str,
    topic: str,
    events: Sequence[JsonEvent],
    schemas: Mapping[str, dict[str, Any]] | None = None,
    received_at: datetime = RECEIVED_AT,
) -> str:
    """Land a window below ``base`` and return the URL of its manifest.

    :param window_id: ID that begins with a date, ``20260110...``.
    :param schemas: Avro schemas by ID; events of other schemas must contain their own field names.
    """
    landing, stream = Landing.from_url(str(base)), Stream("00D000000000001EAA", "streaming", topic)
    texts = {schema_id: json.dumps(schema) for schema_id, schema in (schemas or {}).items()}
    batch = EventBatch(
        replay_ids=[event.replay_id for event in events],
        event_ids=[f"event-{event.number}" for event in events],
        schema_ids=[event.schema_id or channel_of(topic) for event in events],
        payloads=[event.payload for event in events],
        latest_replay_id=events[-1].replay_id if events else b"",
        pending=0,
        received_at=int(received_at.timestamp() * 1e9),
    )
    with ParquetWindowWriter(
        landing, stream, window_id, attempt="1", schema=texts.get, payload_encoding="json"
    ) as writer:
        writer.append(batch)
        landed = writer.finish()
    manifest = Manifest(
        stream=stream,
        window=ReplayWindow(
            window_id=window_id,
            kind="live",
            after=None,
            through=batch.latest_replay_id or None,
            event_count=landed.event_count,
            first_event_time=landed.first_event_time,
            last_event_time=landed.last_event_time,
            manifest_url=landing.manifest_url(stream, window_id),
            run=RunIdentity("dag", "task", "run", received_at),
        ),
        fence=0,
        files=landed.files,
        schemas=landed.schemas,
        payload_bytes=landed.payload_bytes,
        stop_reason="caught_up",
        started_at=received_at,
        finished_at=received_at,
        provider_version="0",
        payload_encoding="json",
    )
    return LandingCatalog(landing).write_manifest(manifest).window.manifest_url
