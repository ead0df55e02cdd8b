"""Rows of event tables and of the quarantine without records that are to be erased."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.privacy.record_ids import RecordIds
from airflow_provider_sfstream.salesforce.topics import can_carry_changes

HEADER = "ChangeEventHeader"
_REASON = "erased: the payload held an id of a record that was to be erased"


def is_header(column: str) -> bool:
    """Return whether a column of a table has headers of change events, of whatever type."""
    return column.partition("__")[0] == HEADER


def is_outcast(column: str) -> bool:
    """Return whether a column of the quarantine is one by which its rows are told."""
    return column in ("reason", "payload", "topic")


def erased_records(batch: pa.RecordBatch, ids: RecordIds) -> tuple[int, pa.RecordBatch]:
    """Return how many rows of a replica's table are of the records, and the others."""
    gone = [record_id in ids for record_id in batch.column("Id").to_pylist()]
    return sum(gone), batch.filter(pa.array([not each for each in gone], pa.bool_())) if any(gone) else batch


def erased_events(batch: pa.RecordBatch, ids: RecordIds) -> tuple[int, pa.RecordBatch]:
    """Return how many rows of change events are other than before, and the rows that are left: those of none of the
    records, and those of several, which have lost the ids."""
    changed: set[int] = set()
    gone: set[int] = set()
    for name in batch.schema.names:
        if not is_header(name):
            continue
        column = batch.column(name)
        is_struct = pa.types.is_struct(column.type)
        if is_struct and column.type.get_field_index("recordIds") < 0:
            continue
        values = (column.field("recordIds") if is_struct else column).to_pylist()
        for row, value in enumerate(values):
            named = value if is_struct else _named(value)
            kept = [each for each in named or () if each not in ids]
            if named and len(kept) < len(named):
                changed.add(row)
                values[row] = kept if is_struct else json.dumps({**json.loads(value), "recordIds": kept})
                gone.update(() if kept else (row,))
        if changed:
            new = _with_ids(column, values) if is_struct else pa.array(values, column.type)
            batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), new)
    stays = pa.array([row not in gone for row in range(len(batch))], pa.bool_())
    return len(changed), batch.filter(stays) if gone else batch


def erased_outcasts(batch: pa.RecordBatch, ids: RecordIds, entity: str) -> tuple[int, pa.RecordBatch]:
    """Return how many rows of the quarantine changed, and all rows. An event of the object's topic or of a channel that
    has one of the ids in its bytes has lost its payload, and the reason that may quote it."""
    payloads, reasons = batch.column("payload").to_pylist(), batch.column("reason").to_pylist()
    changed = 0
    for row, topic in enumerate(batch.column("topic").to_pylist()):
        if can_carry_changes(topic, entity) and payloads[row] is not None and ids.are_in(payloads[row]):
            payloads[row], reasons[row] = None, _REASON
            changed += 1
    if changed:
        for name, values in (("payload", payloads), ("reason", reasons)):
            field = batch.schema.field(name)
            batch = batch.set_column(batch.schema.get_field_index(name), field, pa.array(values, field.type))
    return changed, batch


def _named(text: str | None) -> Any:
    header = json.loads(text) if text else None
    return header.get("recordIds") if isinstance(header, dict) else None


def _with_ids(headers: pa.StructArray, values: list[Any]) -> pa.StructArray:
    fields = list(headers.type)
    members = [
        pa.array(values, field.type) if field.name == "recordIds" else headers.field(number)
        for number, field in enumerate(fields)
    ]
    return pa.StructArray.from_arrays(members, fields=fields, mask=headers.is_null())
