"""Conversion of parsed JSON to Arrow arrays with the types of an Avro schema: the same columns as for events in Avro.

The kind of a value selects its column, so a union of text and a record is split as in Avro. A missing key is null. An
unsupported value raises an error; no value is changed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, TypeAlias

import pyarrow as pa

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type, let_through
from airflow_provider_sfstream.tables.decode.avro_columns import Member, Value
from airflow_provider_sfstream.tables.decode.json_values import (
    as_double,
    digits_survive,
    json_text,
    kind_name,
    milliseconds_of_day,
    read_dates,
    read_times,
)

Reader: TypeAlias = Callable[[list[Any]], pa.Array]

_EVERY_KIND: tuple[type, ...] = (str, bool, int, float, Decimal, dict, list)
_KINDS: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int, float),
    "long": (int, float, str),
    "float": (float, int),
    "double": (float, int),
    "string": (str,),
    "timestamp": (str, int),
    "date": (str, int),
    "struct": (dict,),
    "map": (dict,),
    "array": (list,),
}
"""JSON kinds that a column type accepts, the usual one first. None for bytes: JSON has no bytes."""


class SchemaMismatchError(ValueError):
    """Error for invalid values: the reason by index in the list. All other values are valid."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = reasons


class RecordReader:
    """Reader that converts JSON objects to the columns of a record's members."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._readers = [_reader(member.value) for member in members]
        self._places: dict[str, dict[type, int]] = {member.field: {} for member in members}
        # If two branches of a union accept one kind of value, use the branch for which it is more usual.
        for rank in range(len(_EVERY_KIND)):
            for number, member in enumerate(members):
                for kind in kinds_of(member.value)[rank : rank + 1]:
                    self._places[member.field].setdefault(kind, number)

    def read(self, records: Sequence[dict[str, Any] | None]) -> list[pa.Array]:
        """Return one array for each member; a ``None`` record becomes nulls.

        :raises SchemaMismatchError: if a record has a key without a field, or a value that does not fit its field.
        """
        columns: dict[int, list[Any]] = {}
        mismatches: dict[int, str] = {}
        for row, record in enumerate(records):
            for key, value in record.items() if record else ():
                kinds = self._places.get(key)
                if kinds is None:
                    mismatches[row] = f"the schema has no field {key!r}"
                    break
                if value is None:
                    continue
                number = kinds.get(type(value))
                if number is None:
                    mismatches[row] = f"{key}: {kind_name(value)} does not fit the field's type"
                    break
                if number not in columns:
                    columns[number] = [None] * len(records)
                columns[number][row] = value
        arrays = [
            self._array(number, columns.get(number), len(records), mismatches) for number in range(len(self._members))
        ]
        if mismatches:
            raise SchemaMismatchError(mismatches)
        return arrays

    def _array(self, number: int, values: list[Any] | None, size: int, mismatches: dict[int, str]) -> pa.Array | None:
        member = self._members[number]
        if values is None:
            return pa.nulls(size, arrow_type(member.value.type))
        try:
            return convert(self._readers[number], values)
        except SchemaMismatchError as error:
            for row, reason in error.reasons.items():
                mismatches.setdefault(row, f"{member.field}: {reason}")
        return None


def convert(reader: Reader, values: list[Any]) -> pa.Array:
    """Return the array that a reader creates from values.

    :raises SchemaMismatchError: if it cannot convert some values; the error names each of them.
    """
    try:
        return reader(values)
    except SchemaMismatchError:
        raise
    except Exception as error:
        let_through(error)
        reasons = {row: reason for row, value in enumerate(values) if (reason := _refusal(reader, value)) is not None}
        if not reasons:
            raise
        raise SchemaMismatchError(reasons) from error


def _refusal(reader: Reader, value: Any) -> str | None:
    try:
        reader([value])
    except Exception as error:
        let_through(error)
        return str(error)
    return None


def kinds_of(value: Value) -> tuple[type, ...]:
    """Return the accepted kinds of JSON value."""
    if value.conversion == "json":
        return _EVERY_KIND
    return _KINDS.get(value.type if isinstance(value.type, str) else next(iter(value.type)), ())


def _reader(value: Value) -> Reader:
    """Return the function that converts a list of values (of accepted kinds, or ``None``) to an array."""
    if value.conversion == "struct":
        return _struct_reader(value)
    if value.item is not None:
        return _items_reader(value, value.item)
    if value.conversion == "json":
        return _each(json_text, pa.string())
    return _PRIMITIVE_READERS[str(value.type)]


def _each(convert: Callable[[Any], Any], type_: pa.DataType) -> Reader:
    return lambda values: pa.array([None if value is None else convert(value) for value in values], type_)


def _whole(value: Any) -> int:
    if type(value) is str:
        return milliseconds_of_day(value)
    if value != int(value):
        raise ValueError(f"{value} is not a whole number")
    return int(value)


def _single(value: Any) -> float:
    """Return a 32-bit number with the same digits as the JSON."""
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    if not digits_survive(repr(value), single):
        raise ValueError(f"{value} would lose digits as a 32-bit number")
    return float(single)


def _doubles(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.float64())
    except pa.ArrowInvalid:  # an integer of more than 53 bits can still be a double
        return pa.array([as_double(value) if type(value) is int else value for value in values], pa.float64())


def _longs(values: list[Any]) -> pa.Array:
    kinds = set(map(type, values))
    return pa.array(values, pa.int64()) if kinds <= {int, type(None)} else _each(_whole, pa.int64())(values)


_PRIMITIVE_READERS: dict[str, Reader] = {
    "boolean": lambda values: pa.array(values, pa.bool_()),
    "int": _each(_whole, pa.int32()),
    "long": _longs,
    "float": _each(_single, pa.float32()),
    "double": _doubles,
    "string": lambda values: pa.array(values, pa.string()),
    "binary": lambda values: pa.array(values, pa.binary()),
    "timestamp": read_times,
    "date": read_dates,
}


def _struct_reader(value: Value) -> Reader:
    reader = RecordReader(value.members)
    names = [member.name for member in value.members]

    def read(values: list[Any]) -> pa.Array:
        return pa.StructArray.from_arrays(reader.read(values), names, mask=_missing(values))

    return read


def _items_reader(value: Value, item: Value) -> Reader:
    """Return the function for arrays, or maps, whose items are ``item``."""
    kinds, reader, is_map = {*kinds_of(item), type(None)}, _reader(item), value.conversion == "map"

    def read(values: list[Any]) -> pa.Array:
        items = [inner for value in values if value for inner in (value.values() if is_map else value)]
        for inner in items:
            if type(inner) not in kinds:
                raise ValueError(f"{kind_name(inner)} does not fit the type of the items")
        try:
            flat = reader(items)
        except SchemaMismatchError as mismatches:  # indexes of items are not those of their arrays
            raise ValueError(str(mismatches)) from mismatches
        offsets = pa.array(accumulate((len(value or ()) for value in values), initial=0), pa.int32())
        if not is_map:
            return pa.ListArray.from_arrays(offsets, flat, mask=_missing(values))
        keys = pa.array([key for value in values if value for key in value], pa.string())
        return pa.MapArray.from_arrays(offsets, keys, flat, mask=_missing(values))

    return read


def _missing(values: list[Any]) -> pa.Array | None:
    return pa.array([value is None for value in values], pa.bool_()) if None in values else None
