"""Random change rows, as dictionaries for the replica model and as Arrow batches."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.rows.replica_columns import CHANGE_ENVELOPE
from tests.support.replica_model import Row

START = datetime(2026, 3, 1, tzinfo=UTC)
COLUMNS: dict[str, ColumnType] = {
    "Name": "string",
    "AnnualRevenue": "double",
    "IsActive__c": "boolean",
    "SystemModstamp": "timestamp",
    "Founded__c": "date",
    "Logo__c": "binary",
    "Tags__c": {"array": "string"},
    "Place__c": {"struct": {"Latitude": "double", "Note": "string"}},
    **{f"Number{number}__c": "long" for number in range(62)},
    "Last__c": "string",
}
"""Columns of all types; too many columns for one 64-bit word of ``_set``."""


def random_value(type_: ColumnType, shape: random.Random) -> Any:
    """Return a random value of a column type, or null."""
    if shape.random() < 0.3:
        return None
    if isinstance(type_, dict):
        if "array" in type_:
            return [random_value(type_["array"], shape) for _ in range(shape.randrange(3))]
        return {name: random_value(member, shape) for name, member in type_["struct"].items()}
    number = shape.randrange(1_000)
    makers: dict[str, Any] = {
        "string": f"text {number}",
        "double": number / 4,
        "boolean": number % 2 == 0,
        "timestamp": START + timedelta(milliseconds=number),
        "date": date(2026, 1, 1) + timedelta(days=number),
        "binary": number.to_bytes(2, "big"),
        "long": number,
    }
    return makers[type_]


def random_changes(
    shape: random.Random,
    records: Sequence[str],
    count: int,
    columns: dict[str, ColumnType],
    first_sequence: int = 1,
    *,
    disorder: int = 0,
) -> list[Row]:
    """Return ``count`` random changes of ``records``, one second apart, in the order of their sequences.

    :param disorder: maximum offset of some commit times, in seconds.
    """
    changes = [
        _change(shape, shape.choice(records), number, columns)
        for number in range(first_sequence, first_sequence + count)
    ]
    for change in changes:
        if disorder and shape.random() < 0.3:
            change["_commit_time"] += timedelta(seconds=shape.randint(-disorder, disorder))
    return changes


def _change(shape: random.Random, record_id: str, sequence: int, columns: dict[str, ColumnType]) -> Row:
    operation = shape.choices(("full", "patch", "delete", "gap"), (3, 8, 2, 1))[0]
    names = (
        list(columns) if operation == "full" else shape.sample(list(columns), min(len(columns), shape.randrange(1, 6)))
    )
    chosen = frozenset(names if operation in ("full", "patch") else ())
    return {
        "Id": record_id,
        "_sequence": sequence,
        "_operation": operation,
        "_dirty_reason": shape.choice(("gap", "diff")) if operation == "gap" else None,
        "_set": chosen,
        "_replay_id": sequence.to_bytes(8, "big"),
        "_commit_time": START + timedelta(seconds=sequence),
        "_transaction_key": f"transaction {sequence // 3}",
    } | {name: random_value(columns[name], shape) for name in sorted(chosen)}


def set_words(chosen: Iterable[str], columns: dict[str, ColumnType]) -> list[int]:
    """Return the ``_set`` value of a change that sets these columns."""
    names = list(columns)
    bits = sum(1 << names.index(name) for name in chosen)
    words = [bits >> (64 * word) & ((1 << 64) - 1) for word in range(-(-len(names) // 64))]
    return [word - (1 << 64) if word >> 63 else word for word in words]


def change_batch(changes: Iterable[Row], columns: dict[str, ColumnType]) -> pa.RecordBatch:
    """Return change rows as an input batch of the merge."""
    rows = [change | {"_set": set_words(change["_set"], columns)} for change in changes]
    return batch_of(rows, CHANGE_ENVELOPE | columns)


def batch_of(rows: Sequence[Row], types: dict[str, ColumnType]) -> pa.RecordBatch:
    """Return rows as a batch; missing values are null."""
    schema = pa.schema([(name, arrow_type(type_)) for name, type_ in types.items()])
    arrays = [pa.array([row.get(name) for row in rows], field.type) for name, field in zip(types, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
