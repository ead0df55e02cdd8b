"""Bitmaps of batches of change events: the columns that each event sets, and those that it sets to null.

Events of one schema share few bitmaps. Each bitmap is read once, with
:mod:`airflow_provider_sfstream.salesforce.bitmaps`, and cached; the work for each event is a lookup in arrays.

Meaning of the bits (bits of the header and beyond the schema are ignored):

- An event sets the fields in ``changedFields`` and ``nulledFields``; those in ``nulledFields`` become null.
- The bit of a compound field stands for all its columns. If its array (for ``nulledFields``, either array) also names
  parts of the field, the bit stands only for the text value that the field may have in place of a record: the array
  lists the changed parts one by one, and unlisted parts did not change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from airflow_provider_sfstream.exceptions import SchemaError
from airflow_provider_sfstream.salesforce.bitmaps import FieldPositions, decode_bitmap
from airflow_provider_sfstream.tables.rows.replica_columns import ReplicaColumn

_CACHED_BITMAPS = 1 << 16
"""Most distinct pairs of bitmaps to cache for a schema."""


@dataclass(frozen=True)
class SetColumns:
    """Columns that a batch of events sets.

    :param bits: one row for each event, of 64-bit words: bit ``n % 64`` of word ``n // 64`` for column ``n`` of the
        table.
    :param nulled: by index of the schema's column: mask of the events that set it to null.
    :param unreadable: by index of the event: the reason why its bitmaps cannot be read; these events set no column.
    """

    bits: npt.NDArray[np.int64]
    nulled: dict[int, npt.NDArray[np.bool_]]
    unreadable: dict[int, str]


class BitmapReader:
    """Bitmap reader for the events of one schema.

    :param columns: columns of the schema.
    :param places: index of each column in the table, ``None`` if the table lacks the column.
    :param width: number of columns of the table.
    """

    def __init__(self, columns: Sequence[ReplicaColumn], places: Sequence[int | None], width: int) -> None:
        self._table_indexes = places
        self._word_count = -(-width // 64)
        self._field_columns: dict[int, set[int]] = defaultdict(set)
        self._field_values: dict[int, set[int]] = defaultdict(set)
        self._part_columns: dict[tuple[int, int], set[int]] = defaultdict(set)
        for index, column in enumerate(columns):
            self._field_columns[column.position].add(index)
            if column.part is None:
                self._field_values[column.position].add(index)
            else:
                self._part_columns[column.position, column.part].add(index)
        self._without_parts = self._field_columns.keys() - {position for position, _ in self._part_columns}
        self._cached_reading = lru_cache(_CACHED_BITMAPS)(self._read_texts)

    def everything(self) -> npt.NDArray[np.int64]:
        """Return the bits of an event that sets all columns of the schema."""
        return np.frombuffer(self._bits(range(len(self._table_indexes))), "<i8")

    def read(self, changed: pa.ListArray, nulled: pa.ListArray) -> SetColumns:
        """Return the columns that the events with these ``changedFields`` and ``nulledFields`` set."""
        texts = _joined(changed, nulled).dictionary_encode()
        reading_numbers = texts.indices.to_numpy()
        readings = [self._cached_reading(text) for text in texts.dictionary.to_pylist()]
        nulling_readings: dict[int, list[int]] = defaultdict(list)
        for number, reading in enumerate(readings):
            for column in reading.nulled:
                nulling_readings[column].append(number)
        failed = [number for number, reading in enumerate(readings) if reading.error]
        rows = np.flatnonzero(_chosen(failed, reading_numbers, len(readings))) if failed else ()
        words = np.frombuffer(b"".join(reading.bits for reading in readings), "<i8")
        return SetColumns(
            words.reshape(len(readings), self._word_count)[reading_numbers],
            {column: _chosen(numbers, reading_numbers, len(readings)) for column, numbers in nulling_readings.items()},
            {int(row): readings[reading_numbers[row]].error for row in rows},
        )

    def _read_texts(self, text: str) -> _Reading:
        try:
            changed, nulled = map(decode_bitmap, _parted(text))
            to_null = self._columns_of(nulled, {*changed.nested, *nulled.nested})
            return _Reading(self._bits(self._columns_of(changed, changed.nested) | to_null), tuple(sorted(to_null)))
        except SchemaError as error:
            return _Reading(self._bits(()), (), str(error))

    def _columns_of(self, positions: FieldPositions, listed_by_part: Container[int]) -> set[int]:
        indexes: set[int] = set()
        for position in positions.top:
            indexes |= (self._field_values if position in listed_by_part else self._field_columns).get(position, set())
        for position, parts in positions.nested.items():
            if position in self._without_parts and parts:
                raise SchemaError(
                    f"A bitmap names parts of the field at position {position}, but the field has no parts in the "
                    "event's schema. The event was not applied. Report this error with the payload of the event."
                )
            for part in parts:
                indexes |= self._part_columns.get((position, part), set())
        return indexes

    def _bits(self, columns: Iterable[int]) -> bytes:
        bits = 0
        for column in columns:
            if (index := self._table_indexes[column]) is not None:
                bits |= 1 << index
        return bits.to_bytes(8 * self._word_count, "little")


@dataclass(frozen=True)
class _Reading:
    bits: bytes
    nulled: tuple[int, ...]
    error: str = ""


def _joined(changed: pa.ListArray, nulled: pa.ListArray) -> pa.Array:
    """Return one text for each event, which :func:`_parted` splits into the original entries."""
    lengths = pa.compute.add(pa.compute.list_value_length(changed), pa.compute.list_value_length(nulled))
    joined = (pa.compute.binary_join(texts, " ") for texts in (changed, nulled))
    return pa.compute.binary_join_element_wise(lengths.cast(pa.string()), *joined, "|").fill_null("")


def _parted(text: str) -> tuple[list[str], list[str]]:
    """Return the entries of ``changedFields`` and ``nulledFields``; malformed text becomes an invalid entry."""
    length, *joined = text.split("|")
    parts = tuple(part.split(" ") if part else [] for part in joined)
    if len(parts) != 2 or len(parts[0]) + len(parts[1]) != int(length):
        return [text], []
    return parts


def _chosen(numbers: Sequence[int], reading_numbers: npt.NDArray[Any], count: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the events whose reading is one of ``numbers``."""
    flags = np.zeros(count, np.bool_)
    flags[list(numbers)] = True
    chosen: npt.NDArray[np.bool_] = flags[reading_numbers]
    return chosen
