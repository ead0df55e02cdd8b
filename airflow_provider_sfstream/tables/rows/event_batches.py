"""Executor functions: Arrow batches of landed rows in, batches of table rows or quarantine rows out.

Requires pyarrow and fastavro, uses pyruhvro if installed, and no other dependency of this package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute

from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules
from airflow_provider_sfstream.tables.decode.arrow_columns import (
    DecodedEvents,
    Undecodable,
    arrow_schema,
    arrow_type,
    decoded_rows,
    record_batch,
)
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.decode.avro_decoding import AvroDecoder
from airflow_provider_sfstream.tables.decode.json_decoding import JsonDecoder, SelfDescribedDecoder
from airflow_provider_sfstream.tables.decode.self_described import Field, Format
from airflow_provider_sfstream.tables.rows.arrow_rows import split
from airflow_provider_sfstream.tables.rows.hidden_values import Hidden, stored

ENVELOPE: dict[str, ColumnType] = {
    "_replay_id": "binary",
    "_event_id": "string",
    "_schema_id": "string",
    "_event_time": "timestamp",
    "_received_at": "timestamp",
    "_ordinal": "long",
    "_topic": "string",
    "_org_id": "string",
}
"""Columns that precede the event's own fields."""
PARTITIONS: dict[str, ColumnType] = {"event_date": "date", "window_id": "string"}
QUARANTINE: dict[str, ColumnType] = {
    "reason": "string",
    "ordinal": "long",
    "replay_id": "binary",
    "event_id": "string",
    "schema_id": "string",
    "payload": "binary",
    "received_at": "timestamp",
    "topic": "string",
    "org_id": "string",
    "window_id": "string",
}

_DETAILS_OMITTED = "details and payload are omitted: rules protect fields of the event. The landed row has the payload"

NO_PAYLOAD = "the landed row has no payload: the event was erased, as the manifest records"
"""Quarantine reason of an event with an empty payload."""
Batches = Iterator[pa.RecordBatch]
Rows = Callable[[Batches], Batches]


@dataclass(frozen=True)
class WindowReference:
    """Partition and stream of a window, referenced by the ``window`` number of landed rows.

    In an interval, no event of the window counts before ``counts_from`` (microseconds since the epoch), nor, if
    ``is_timed``, after its receipt. Events that count before ``late_before`` are read too. ``has_rules``: fields of its
    events must not be stored as received, so the quarantine keeps no payload.
    """

    partition: str
    org_id: str
    topic: str
    counts_from: int | None = None
    late_before: int | None = None
    is_timed: bool = True
    has_rules: bool = False


@dataclass(frozen=True)
class SchemaPlan:
    """Avro schema of a table, for payloads of either encoding. For each of its members, or each of its
    ``replica_columns`` in a replica: the table's column, or ``None``, and the protection of its values."""

    schema_json: str
    columns: tuple[str | None, ...]
    hidden: tuple[Hidden, ...] = field(hash=False)


@dataclass(frozen=True)
class FieldsPlan:
    """Fields of self-described events of one format: the table's column for each, and the protection of its values."""

    fields: tuple[Field, ...]
    columns: tuple[str | None, ...]
    hidden: tuple[Hidden, ...] = field(hash=False)


@dataclass(frozen=True)
class TablePlan:
    """Decoding plan for the rows of one table. Times are microseconds since the epoch, ``[time_from, time_to)``.

    ``rules``: those by which the sources of rows protect values.
    """

    columns: dict[str, ColumnType]
    schemas: dict[str, SchemaPlan]
    fields: dict[Format, FieldsPlan]
    windows: tuple[WindowReference, ...]
    time_from: int | None = None
    time_to: int | None = None
    rules: FieldRules = NO_RULES

    def arrow_schema(self) -> pa.Schema:
        return arrow_schema(ENVELOPE | self.columns | PARTITIONS)


def quarantine_schema() -> pa.Schema:
    return arrow_schema(QUARANTINE)


@dataclass
class DecodedRows:
    """Decoded landed rows: ``rows`` of their table, and ``quarantined`` rows that cannot be decoded.

    ``outside_interval``: number of decoded events that do not count in the plan's interval. ``decoders``: number of
    events read by each decoder.
    """

    rows: list[pa.RecordBatch] = field(default_factory=list)
    quarantined: list[pa.RecordBatch] = field(default_factory=list)
    outside_interval: int = 0
    decoders: Counter[str] = field(default_factory=Counter)


def decode_rows(batch: pa.RecordBatch, plan: TablePlan) -> DecodedRows:
    """Decode landed rows of one table, each once."""
    result = DecodedRows()
    for group, format_, source in _by_source(batch, plan):
        decoder = _decoder(format_, source)
        decoded, failures = decoder.decode_all(group.column("payload").to_pylist())
        if failures:
            result.quarantined.append(undecodable_rows(group, failures, plan.windows))
            group = group.take(decoded_rows(len(group), failures))
        if decoded is not None:
            result.decoders[decoder.decoder] += len(group)
            rows = _assemble(plan, source, decoded, group)
            result.outside_interval += len(group) - len(rows)
            result.rows.append(rows)
    return result


def refused_rows(
    landed: pa.RecordBatch, reasons: Mapping[str, str], windows: tuple[WindowReference, ...]
) -> pa.RecordBatch:
    """Return all rows as quarantine rows, with the reason of their schema ID."""
    schema_ids = landed.column("schema_id").to_pylist()
    texts = [reasons.get(name, f"the manifest has no schema {name!r}") for name in schema_ids]
    return quarantined(landed, texts, windows)


@lru_cache(maxsize=256)
def _decoder(format_: Format, source: SchemaPlan | FieldsPlan) -> AvroDecoder | JsonDecoder | SelfDescribedDecoder:
    """Return a cached decoder, shared by the tasks of a Python worker with the result of probing its first payloads."""
    if isinstance(source, FieldsPlan):
        return SelfDescribedDecoder(format_, source.fields)
    return AvroDecoder(source.schema_json) if format_ == "avro" else JsonDecoder(source.schema_json)


def _by_source(
    batch: pa.RecordBatch, plan: TablePlan
) -> Iterator[tuple[pa.RecordBatch, Format, SchemaPlan | FieldsPlan]]:
    """Split a batch by format and schema, and yield each part with its plan."""
    for format_, part in by_value(batch, "format"):
        if format_ in plan.fields:
            yield part, format_, plan.fields[format_]
            continue
        for schema_id, group in by_value(part, "schema_id"):
            yield group, format_, plan.schemas[schema_id]


def by_value(batch: pa.RecordBatch, column: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Split a batch by the values of a column."""
    encoded = batch.column(column).dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    for number, rows in split(batch, encoded.indices.to_numpy()):
        yield values[number], rows


def _assemble(
    plan: TablePlan, source: SchemaPlan | FieldsPlan, decoded: DecodedEvents, group: pa.RecordBatch
) -> pa.RecordBatch:
    """Return decoded events as rows of their table: only those that count in the plan's interval."""
    received = group.column("received_at").cast(arrow_type("timestamp"))
    times = pa.compute.coalesce(decoded.event_times, received)
    values = _envelope(plan.windows, group) | {"_received_at": received, "_event_time": times}
    values["event_date"] = times.cast(pa.date32())
    for column, array, protection in zip(source.columns, decoded.columns, source.hidden, strict=True):
        if column is not None:
            values[column] = stored(array, protection, plan.rules)
    rows = record_batch(values, plan.arrow_schema(), len(group))
    inside = _inside(times.cast(pa.int64()), received.cast(pa.int64()), group.column("window"), plan)
    return rows if inside is None else rows.filter(inside)


def _inside(times: pa.Array, received: pa.Array, windows: pa.Array, plan: TablePlan) -> pa.Array | None:
    """Return a mask of the events that count in the plan's interval, all times in microseconds; ``None`` without one.

    An event counts at its event time, limited to the range between publication and receipt, because publishers set
    event times and can be wrong.
    """
    if plan.time_from is None or plan.time_to is None:
        return None
    earliest = pa.array([window.counts_from for window in plan.windows], pa.int64()).take(windows)
    is_timed = pa.array([window.is_timed for window in plan.windows], pa.bool_()).take(windows)
    received = pa.compute.if_else(is_timed, received, None)  # a worker's clock otherwise, which can be wrong
    times = pa.compute.max_element_wise(pa.compute.min_element_wise(times, received), earliest)  # skips nulls
    inside = pa.compute.and_(pa.compute.greater_equal(times, plan.time_from), pa.compute.less(times, plan.time_to))
    late_before = pa.array([window.late_before for window in plan.windows], pa.int64()).take(windows)
    return pa.compute.or_(inside, pa.compute.fill_null(pa.compute.less(times, late_before), False))


def _envelope(windows: tuple[WindowReference, ...], group: pa.RecordBatch) -> dict[str, pa.Array]:
    numbers = group.column("window")
    return {
        "_replay_id": group.column("replay_id"),
        "_event_id": group.column("event_id"),
        "_schema_id": group.column("schema_id"),
        "_ordinal": group.column("ordinal"),
        "_topic": pa.array([window.topic for window in windows]).take(numbers),
        "_org_id": pa.array([window.org_id for window in windows]).take(numbers),
        "window_id": pa.array([window.partition for window in windows]).take(numbers),
    }


def undecodable_rows(
    landed: pa.RecordBatch, failures: Sequence[Undecodable], windows: tuple[WindowReference, ...]
) -> pa.RecordBatch:
    """Return the undecodable rows as quarantine rows. Reasons quote no values that must not be stored."""
    failed_rows = landed.take([failure.row for failure in failures])
    has_rules = any(window.has_rules for window in windows)
    reasons = []
    for failure, payload in zip(failures, failed_rows.column("payload"), strict=True):
        kind = failure.reason.partition(":")[0]
        hidden_reason = f"{kind if kind.isidentifier() else 'unusable'} ({_DETAILS_OMITTED})"
        reason = hidden_reason if has_rules else failure.reason
        reasons.append(reason if payload.as_py() else NO_PAYLOAD)
    return quarantined(failed_rows, reasons, windows)


def quarantined(group: pa.RecordBatch, reasons: list[str], windows: tuple[WindowReference, ...]) -> pa.RecordBatch:
    """Return landed rows as quarantine rows, each with its reason. A payload with fields that must not be stored stays
    only in the landing."""
    envelope = _envelope(windows, group)
    values = {name: group.column(name) for name in group.schema.names} | {
        "reason": pa.array(reasons, pa.string()),
        "topic": envelope["_topic"],
        "org_id": envelope["_org_id"],
        "window_id": envelope["window_id"],
    }
    if any(window.has_rules for window in windows):
        values["payload"] = pa.nulls(len(group), pa.binary())
    return record_batch(values, quarantine_schema(), len(group))
