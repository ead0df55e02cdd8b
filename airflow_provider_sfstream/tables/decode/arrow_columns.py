"""Result of decoding: Arrow arrays of the values' real types, and event times.

pyruhvro's arrays, whose unions Parquet cannot store, and fastavro's Python values give the same result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType, Member, Value

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_DAY = 86_400_000
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
"""Milliseconds since the epoch of the years 1 to 9999: a time outside is corrupt, and few readers support it."""
_PYTHON_TYPES: dict[str, type] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "timestamp": int,
    "date": int,
    "float": float,
    "double": float,
    "string": str,
    "binary": bytes,
    "struct": dict,
    "map": dict,
    "array": list,
}


def arrow_type(type_: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column type."""
    if isinstance(type_, str):
        return _PRIMITIVES[type_]
    ((kind, inside),) = type_.items()
    if kind == "struct":
        return pa.struct([(name, arrow_type(member)) for name, member in inside.items()])
    return pa.list_(arrow_type(inside)) if kind == "array" else pa.map_(pa.string(), arrow_type(inside))


def arrow_schema(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """Return columns as an Arrow schema."""
    return pa.schema([(name, arrow_type(type_)) for name, type_ in columns.items()])


# From pyruhvro's arrays


def convert_member(array: pa.Array, member: Member) -> pa.Array:
    """Return the column of one member, from the array of the whole field.

    :raises pyarrow.ArrowInvalid: if a value does not fit its type.
    """
    if member.branch is not None:
        is_branch = pa.compute.equal(array.type_codes, pa.scalar(member.branch, pa.int8()))
        # In a sparse union, the branches that were not chosen hold placeholders.
        array = pa.compute.if_else(is_branch, array.field(member.branch), None)
    return _convert(array, member.value)


def _convert(array: pa.Array, value: Value) -> pa.Array:
    if value.conversion == "milliseconds":
        return times_of_milliseconds(array)
    if value.conversion == "milliseconds_to_date":
        return _checked(array).cast(pa.timestamp("ms")).cast(pa.date32())
    if value.conversion == "struct":
        members = [convert_member(array.field(member.field), member) for member in value.members]
        names = [member.name for member in value.members]
        return pa.StructArray.from_arrays(members, names, mask=array.is_null() if array.null_count else None)
    if value.conversion in ("array", "map") and array.type != arrow_type(value.type):
        return _convert_items(array, value)
    target = arrow_type(value.type)
    return array if array.type == target else array.cast(target)


def times_of_milliseconds(array: pa.Array) -> pa.Array:
    """Return milliseconds since the epoch as timestamps.

    :raises ValueError: if one is not between the years 1 and 9999.
    """
    return _checked(array).cast(pa.timestamp("ms", tz="UTC")).cast(_PRIMITIVES["timestamp"])


def _checked(milliseconds: pa.Array) -> pa.Array:
    bounds = pa.compute.min_max(milliseconds).as_py()
    if bounds["min"] is not None:
        _check_milliseconds(bounds["min"])
        _check_milliseconds(bounds["max"])
    return milliseconds


def _check_milliseconds(value: int) -> int:
    if not _FIRST <= value <= _LAST:
        raise ValueError(f"{value} milliseconds since the epoch are not between the years 1 and 9999")
    return value


def _convert_items(array: pa.Array, value: Value) -> pa.Array:
    assert value.item is not None  # noqa: S101 (an array or a map has an item)
    mask = array.is_null() if array.null_count else None
    first, last = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
    offsets = pa.compute.subtract(array.offsets, first)
    if value.conversion == "array":
        items = _convert(array.values.slice(first, last - first), value.item)
        return pa.ListArray.from_arrays(offsets, items, mask=mask)
    keys = array.keys.slice(first, last - first)
    items = _convert(array.items.slice(first, last - first), value.item)
    return pa.MapArray.from_arrays(offsets, keys, items, mask=mask)


# From fastavro's Python values


def member_from_python(values: Sequence[Any], member: Member) -> pa.Array:
    """Return the column of one member, from the field's values as fastavro decodes them.

    :raises pyarrow.ArrowInvalid: if a value does not fit its type.
    :raises OverflowError: the same, for some types.
    """
    return pa.array([_member(value, member) for value in values], arrow_type(member.value.type))


def _member(value: Any, member: Member) -> Any:
    if value is None or (member.branch is not None and not _is_of(value, member.value)):
        return None
    return _plain(value, member.value)


def _is_of(value: Any, target: Value) -> bool:
    kind = target.type if isinstance(target.type, str) else next(iter(target.type))
    expected = _PYTHON_TYPES[kind]
    # In Python, a boolean is an int too, and would otherwise be stored as 0 or 1 of another branch.
    return isinstance(value, expected) and (expected is bool or not isinstance(value, bool))


def _plain(value: Any, target: Value) -> Any:
    match target.conversion:
        case "milliseconds":
            return _check_milliseconds(value) * 1000
        case "milliseconds_to_date":
            return _check_milliseconds(value) // _DAY
        case "json":
            return json.dumps(value, default=_json_text)
        case "struct":
            return {member.name: _member(value[member.field], member) for member in target.members}
        case "array":
            return [_optional(item, target.item) for item in value]
        case "map":
            return [(key, _optional(item, target.item)) for key, item in value.items()]
    return value


def _optional(value: Any, target: Value | None) -> Any:
    return None if value is None or target is None else _plain(value, target)


def _json_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


# To the columns of the table


def conform(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return ``array`` as the wider ``type_``; members that its structs lack are null."""
    if array.type == type_:
        return array
    if pa.types.is_struct(type_):
        positions = {member.name: index for index, member in enumerate(array.type)}
        members = [
            conform(array.field(positions[member.name]), member.type)
            if member.name in positions
            else pa.nulls(len(array), member.type)
            for member in type_
        ]
        return pa.StructArray.from_arrays(members, fields=list(type_), mask=array.is_null())
    return array.cast(type_)


def record_batch(values: Mapping[str, pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Return ``count`` rows with the columns of ``schema``, which can be wider; missing columns are null."""
    arrays = [
        conform(values[field.name], field.type) if field.name in values else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_table(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of ``schema``; missing columns are null."""
    return record_batch(dict(zip(rows.schema.names, rows.columns, strict=True)), schema, len(rows))


TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class DecodedEvents:
    """Columns of equal length: those of the decoder's plan, and the event times (null if missing)."""

    columns: list[pa.Array]
    event_times: pa.Array


@dataclass(frozen=True)
class Undecodable:
    """Payload (its index in the list) that cannot be decoded, and the reason."""

    row: int
    reason: str

    @classmethod
    def because(cls, row: int, reason: BaseException | str) -> Undecodable:
        text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
        return cls(row, text[:500].encode(errors="backslashreplace").decode())


def decoded_rows(count: int, failures: Sequence[Undecodable]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the indexes of the decodable payloads among ``count``."""
    return np.delete(np.arange(count), [failure.row for failure in failures])


def joined(parts: Sequence[DecodedEvents]) -> DecodedEvents | None:
    """Return decoded parts combined into one; ``None`` if there are none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    columns = [pa.concat_arrays(arrays) for arrays in zip(*(part.columns for part in parts), strict=True)]
    return DecodedEvents(columns, pa.concat_arrays([part.event_times for part in parts]))


def let_through(error: BaseException) -> None:
    """Raise an error again if a payload did not cause it."""
    is_of_payload = isinstance(error, Exception) or type(error).__name__ == "PanicException"
    if not is_of_payload or isinstance(error, MemoryError):
        raise error


def event_times(members: Sequence[Member], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the time of each event: the commit of a change event, otherwise ``CreatedDate``."""
    times = pa.nulls(rows, TIME)
    for member, column in zip(members, columns, strict=True):
        if member.name == "ChangeEventHeader" and pa.types.is_struct(column.type):
            return times_of_milliseconds(column.field("commitTimestamp"))
        if member.name == "CreatedDate" and column.type == TIME:
            times = column
    return times
