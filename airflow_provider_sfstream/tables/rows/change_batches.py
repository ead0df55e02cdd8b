"""Executor functions of the ``replica`` job: Arrow batches of landed change events in, change rows out.

Each change of each record (``recordIds`` is exploded) becomes one change row with the layout of
:data:`~airflow_provider_sfstream.tables.rows.replica_columns.CHANGE_ENVELOPE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules
from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_schema, decoded_rows, record_batch
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.decode.avro_decoding import AvroDecoder
from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from airflow_provider_sfstream.tables.rows.change_decoding import (
    ChangeDecoder,
    DecodedChanges,
    header_of,
    is_overflow,
    lengths,
)
from airflow_provider_sfstream.tables.rows.event_batches import (
    Batches,
    Rows,
    SchemaPlan,
    WindowReference,
    by_value,
    undecodable_rows,
)
from airflow_provider_sfstream.tables.rows.replica_columns import CHANGE_ENVELOPE, FlagReason, replica_columns

TableFlag: TypeAlias = tuple[FlagReason, int, int]
"""Reason to fetch a whole table, milliseconds since the epoch of the event that shows it, and its ``_sequence``."""
TRANSACTION = pa.schema([("_sequence", pa.int64()), ("_transaction_key", pa.string()), ("replay_id", pa.binary())])
"""Layout of the rows of :func:`transactions`."""


@dataclass(frozen=True)
class ChangePlan:
    """Decoding plan for the change rows of one entity.

    :param columns: all columns of the table, in the order of the bits of ``_set``.
    :param schemas: change event schemas by schema ID.
    :param first_sequences: for each window the ``_sequence`` of its event with ordinal 0.
    :param rules: rules about fields that must not be stored as received.
    :param windows: windows of the run, as referenced by quarantine rows.
    :param batch_bytes: most bytes of a batch of change rows, besides one row per event: an event can refer to very many
        records.
    """

    columns: dict[str, ColumnType]
    schemas: dict[str, SchemaPlan]
    first_sequences: tuple[int, ...]
    rules: FieldRules = NO_RULES
    windows: tuple[WindowReference, ...] = ()
    batch_bytes: int = BATCH_BYTES

    @cached_property
    def layout(self) -> pa.Schema:
        """Layout of change rows."""
        return arrow_schema({**CHANGE_ENVELOPE, **self.columns})


def change_rows(
    plan: ChangePlan,
    flag: Callable[[TableFlag], object],
    quarantine: Callable[[pa.RecordBatch], None] = lambda _: None,
) -> Rows:
    """Return a function for ``mapInArrow`` that yields change rows of landed events of the plan's schemas, unordered.

    It skips undecodable events, GAP_OVERFLOW, and record IDs that stand for many (``001*``).

    :param flag: receives a flag for each overflow (``overflow``) and each event for all records (``all_records``).
    :param quarantine: receives undecodable events as quarantine rows.
    """

    def rows(batches: Batches) -> Batches:
        for batch in batches:
            for schema_id, group in by_value(batch, "schema_id"):
                decoder = _decoder(plan.schemas[schema_id], tuple(plan.columns), plan.rules)
                changes, failures = decoder.decode(group)
                if failures:
                    quarantine(undecodable_rows(group, failures, plan.windows))
                if changes is not None:
                    yield from _exploded(plan, changes, flag)

    return rows


def transactions(schemas: dict[str, str], first_sequences: tuple[int, ...]) -> Rows:
    """Return a function for ``mapInArrow`` that yields :data:`TRANSACTION` of landed events of any entity, except those
    that cannot be decoded or have no change event schema.

    :param schemas: Avro schemas by ID.
    :param first_sequences: for each window the ``_sequence`` of its event with ordinal 0.
    """

    def rows(batches: Batches) -> Batches:
        for batch in batches:
            for schema_id, group in by_value(batch, "schema_id"):
                if (decoder := _key_decoder(schemas.get(schema_id, ""))) is None:
                    continue
                decoded, failures = decoder.decode_all(group.column("payload").to_pylist())
                if decoded is not None:
                    events = group.take(decoded_rows(len(group), failures)) if failures else group
                    keys = header_of(decoded)["transactionKey"]
                    arrays = [sequences_of(events, first_sequences), keys, events.column("replay_id")]
                    yield pa.RecordBatch.from_arrays(arrays, schema=TRANSACTION)

    return rows


@lru_cache(maxsize=256)
def _decoder(schema: SchemaPlan, table: tuple[str, ...], rules: FieldRules) -> ChangeDecoder:
    """Return a cached decoder, shared by the tasks of a Python worker together with the bitmaps that it has read."""
    return ChangeDecoder(schema, table, rules)


@lru_cache(maxsize=256)
def _key_decoder(schema_json: str) -> AvroDecoder | None:
    try:
        replica_columns(schema_json)
        return AvroDecoder(schema_json)
    except ValueError:
        return None


def _exploded(plan: ChangePlan, changes: DecodedChanges, flag: Callable[[TableFlag], object]) -> Batches:
    """Yield one change row for each record of each event, and flag the events with records that have no row."""
    sequences = sequences_of(changes.landed, plan.first_sequences)
    is_overflow_event = is_overflow(changes.types)
    ids = changes.record_ids.flatten()
    events = np.repeat(np.arange(len(changes.landed)), lengths(changes.record_ids))
    is_wildcard = pa.compute.match_substring(ids, "*").to_numpy(zero_copy_only=False)
    with_row = np.flatnonzero(~is_wildcard & ~is_overflow_event[events])
    wildcard_events = np.setdiff1d(events[is_wildcard], np.flatnonzero(is_overflow_event))
    flagged_events: dict[FlagReason, npt.NDArray[np.int64]] = {
        "overflow": np.flatnonzero(is_overflow_event),
        "all_records": wildcard_events,
    }
    for reason, rows in flagged_events.items():
        for row in map(int, rows):
            microseconds = changes.values["_commit_time"][row].cast(pa.int64()).as_py()
            flag((reason, microseconds // 1000, sequences[row].as_py()))
    by_event = record_batch(changes.values | {"_sequence": sequences}, plan.layout, len(changes.landed))
    # Most events refer to one record: yield all first records in one batch, because copying wide rows is expensive.
    first = np.diff(events[with_row], prepend=-1) > 0
    for chosen in (with_row[first], *_pieces(with_row[~first], events, by_event, plan.batch_bytes)):
        chosen_events = events[chosen]
        one_each = len(chosen_events) == len(by_event) and bool((np.diff(chosen_events) > 0).all())
        rows = by_event if one_each else by_event.take(pa.array(chosen_events))
        if len(rows):
            yield rows.set_column(0, rows.schema.field(0), ids.take(pa.array(chosen)))


def _pieces(
    rows: npt.NDArray[np.int64], events: npt.NDArray[np.int64], by_event: pa.RecordBatch, batch_bytes: int
) -> list[npt.NDArray[np.int64]]:
    """Split rows, which are indexes into ``events``, into parts of at most half of ``batch_bytes``, or of one row."""
    if not len(rows):
        return []
    row_bytes = (_text_bytes(by_event) + 8 * by_event.num_columns)[events[rows]]
    return np.split(rows, np.flatnonzero(np.diff(2 * np.cumsum(row_bytes) // batch_bytes)) + 1)


def _text_bytes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the bytes of text and binary values of each row, without values inside lists and structs."""
    total = np.zeros(len(rows), np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            lengths_ = pa.compute.fill_null(pa.compute.binary_length(column), 0)
            total += lengths_.to_numpy(zero_copy_only=False)
    return total


def sequences_of(landed: pa.RecordBatch, first_sequences: tuple[int, ...]) -> pa.Array:
    """Return the ``_sequence`` of each landed row: the first sequence of its window plus its ordinal."""
    return pa.compute.add(pa.array(first_sequences, pa.int64()).take(landed.column("window")), landed.column("ordinal"))
