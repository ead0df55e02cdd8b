"""Landed windows written without a drain: raw Parquet files, schema files and a manifest."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_sfstream.landing.manifest import Manifest, WindowFile
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream

RECEIVED_AT = datetime(2026, 1, 20, 12, 0, tzinfo=UTC)
RAW = pa.schema(
    [
        ("ordinal", pa.int64()),
        ("replay_id", pa.binary()),
        ("event_id", pa.string()),
        ("schema_id", pa.string()),
        ("payload", pa.binary()),
        ("received_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True)
class LandedEvent:
    """One event: the number in its replay ID, its schema, and its record (or bytes of an invalid payload)."""

    number: int
    schema_id: str | None
    record: dict[str, Any] | bytes

    @property
    def replay_id(self) -> bytes:
        return self.number.to_bytes(8, "big") + b"\x00\x00"


def encode(schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    """Return a record in schemaless Avro encoding."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def land_window(
    base: Path,
    window_id: str,
    events: Sequence[LandedEvent],
    schemas: dict[str, dict[str, Any]],
    *,
    event_times: tuple[datetime, datetime] | None = None,
    topic: str = "/event/Order__e",
    parts: int = 1,
    **window: Any,
) -> str:
    """Write a window below ``base`` and return the URL of its manifest.

    :param schemas: schemas by ID, each written to a file. Events of other schemas must already be encoded.
    :param event_times: first and last event time for the manifest.
    :param window: further values of the ``ReplayWindow``, and ``stop_reason``.
    """
    stop_reason = window.pop("stop_reason", "caught_up")
    stream = Stream("00D000000000001EAA", "pubsub", topic)
    stream_folder = base / stream.path
    folder = stream_folder / "windows/2026/01/10" / window_id
    folder.mkdir(parents=True)
    (stream_folder / "schemas").mkdir(exist_ok=True)
    for schema_id, schema in schemas.items():
        (stream_folder / f"schemas/{schema_id}.avsc").write_text(json.dumps(schema))
    payloads = [
        e.record if isinstance(e.record, bytes) else encode(schemas[e.schema_id or ""], e.record) for e in events
    ]
    table = pa.table(
        [
            range(len(events)),
            [event.replay_id for event in events],
            [f"event-{event.number}" for event in events],
            [event.schema_id for event in events],
            payloads,
            [RECEIVED_AT] * len(events),
        ],
        schema=RAW,
    )
    manifest = Manifest(
        stream=stream,
        window=ReplayWindow(
            **{
                "window_id": window_id,
                "kind": "live",
                "after": None,
                "through": events[-1].replay_id if events else None,
                "event_count": len(events),
                "first_event_time": event_times[0] if event_times else None,
                "last_event_time": event_times[1] if event_times else None,
                "manifest_url": folder.as_uri() + "/manifest.json",
                "run": RunIdentity("dag", "task", "run", RECEIVED_AT),
                **window,
            }
        ),
        fence=0,
        files=tuple(_write_part(folder / f"part-{n:05d}.parquet", part) for n, part in enumerate(_parts(table, parts))),
        schemas={schema_id: f"../../../../../schemas/{schema_id}.avsc" for schema_id in schemas},
        payload_bytes=sum(map(len, payloads)),
        stop_reason=stop_reason,
        started_at=RECEIVED_AT,
        finished_at=RECEIVED_AT,
        provider_version="0",
    )
    path = folder / "manifest.json"
    path.write_text(manifest.to_json())
    return path.as_uri()


def drop_column(manifest_url: str, column: str) -> None:
    """Replace the files of a window by files without a column, as if it had been landed before the column existed."""
    path = Path(manifest_url.removeprefix("file://"))
    manifest = Manifest.from_json(path.read_text(), str(path))
    parts = [pq.ParquetFile(path.with_name(file.name)).read().drop_columns(column) for file in manifest.files]
    files = tuple(
        _write_part(path.with_name(file.name), part) for file, part in zip(manifest.files, parts, strict=True)
    )
    path.write_text(replace(manifest, files=files).to_json())


def _parts(table: pa.Table, parts: int) -> list[pa.Table]:
    if not len(table):
        return []
    size = -(-len(table) // parts)
    return [table.slice(start, size) for start in range(0, len(table), size)]


def _write_part(path: Path, part: pa.Table) -> WindowFile:
    pq.write_table(part, path, compression="zstd", compression_level=1)
    data = path.read_bytes()
    return WindowFile(path.name, len(part), len(data), hashlib.sha256(data).hexdigest())
