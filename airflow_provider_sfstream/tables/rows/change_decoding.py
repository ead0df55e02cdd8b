"""Decoder of the change events of one schema: their operations, the columns that they set, and the values.

CREATE and UNDELETE carry the whole record, UPDATE the fields in its bitmaps, DELETE no fields. GAP events, and unknown
change types, report that records changed but not how; so does an UPDATE with ``diffFields``, which carries a text
difference instead of the value.
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
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules
from airflow_provider_sfstream.salesforce.bitmaps import FieldPositions, decode_bitmap
from airflow_provider_sfstream.tables.decode.arrow_columns import DecodedEvents, Undecodable, decoded_rows
from airflow_provider_sfstream.tables.decode.avro_decoding import AvroDecoder
from airflow_provider_sfstream.tables.rows.applied_changes import set_array
from airflow_provider_sfstream.tables.rows.arrow_rows import is_true
from airflow_provider_sfstream.tables.rows.event_batches import SchemaPlan
from airflow_provider_sfstream.tables.rows.hidden_values import stored
from airflow_provider_sfstream.tables.rows.replica_columns import (
    OPERATIONS,
    Operation,
    ReplicaColumn,
    replica_columns,
)

OVERFLOW = "GAP_OVERFLOW"
_OPERATION_OF: dict[str, Operation] = {"CREATE": "full", "UNDELETE": "full", "UPDATE": "patch", "DELETE": "delete"}
_REASONS = ("gap", "diff")
_RECORD_ID = r"^[A-Za-z0-9]{3}(?:\*|[A-Za-z0-9]{12}(?:[A-Z0-5]{3})?)$"
"""Record ID of 15 characters, of 18 with its checksum, or a key prefix that stands for many records (``001*``)."""
_CACHED_BITMAPS = 1 << 16
"""Most distinct pairs of bitmaps to cache for a schema."""


@dataclass(frozen=True)
class DecodedChanges:
    """Decoded changes: each attribute has one element for each event.

    :param landed: the landed rows.
    :param types: ``changeType``; ``record_ids`` are also from the header.
    :param values: columns of change rows, except ``Id`` and ``_sequence``; only columns of this schema.
    """

    landed: pa.RecordBatch
    types: pa.Array
    record_ids: pa.ListArray
    values: dict[str, pa.Array]


class ChangeDecoder:
    """Decoder for the events of one schema.

    :param table: all columns of the table, in the order of the bits of ``_set``.
    :param rules: those by which the schema's plan protects values.
    :raises ValueError: if the schema is not that of a change event.
    """

    def __init__(self, schema: SchemaPlan, table: Sequence[str], rules: FieldRules = NO_RULES) -> None:
        self._decoder = AvroDecoder(schema.schema_json)
        self._columns = replica_columns(schema.schema_json)
        self._names = schema.columns
        indexes = {name: index for index, name in enumerate(table)}
        self._hidden, self._rules = schema.hidden, rules
        self._bitmaps = BitmapReader(
            self._columns, [None if name is None else indexes[name] for name in schema.columns], len(table)
        )

    def decode(self, landed: pa.RecordBatch) -> tuple[DecodedChanges | None, list[Undecodable]]:
        """Return the changes of all events that can be read and applied, in order, and the failed events."""
        decoded, failures = self._decoder.decode_all(landed.column("payload").to_pylist())
        if decoded is None:
            return None, failures
        readable = decoded_rows(len(landed), failures)
        changes, unreadable = self._changes(landed.take(readable) if failures else landed, decoded)
        if not unreadable:
            return changes, failures
        # Rare: decode the remaining events again, without the failed ones.
        failures += (Undecodable.because(int(readable[row]), reason) for row, reason in unreadable.items())
        failures.sort(key=lambda failure: failure.row)
        remaining = landed.take(decoded_rows(len(landed), failures))
        return (self.decode(remaining)[0] if len(remaining) else None), failures

    def _changes(self, landed: pa.RecordBatch, decoded: DecodedEvents) -> tuple[DecodedChanges, dict[int, str]]:
        """Return the changes, and by row why an event cannot be applied. Changes are correct only if there is none."""
        header = header_of(decoded)
        types, record_ids = header["changeType"], header["recordIds"]
        operations, reasons = _operations(types, lengths(header["diffFields"]) > 0)
        patches = np.flatnonzero(operations == OPERATIONS.index("patch"))
        updates = (header[name].take(pa.array(patches)) for name in ("changedFields", "nulledFields"))
        set_columns = self._bitmaps.read(*updates)
        unreadable = {int(patches[row]): reason for row, reason in set_columns.unreadable.items()}
        without_id = np.flatnonzero((lengths(record_ids) == 0) & ~is_overflow(types))
        unreadable |= {int(row): "the event has no record ID" for row in without_id}
        unreadable |= _wrong_ids(record_ids)
        everything = self._bitmaps.everything()
        bits = np.zeros((len(landed), len(everything)), np.int64)
        bits[operations == OPERATIONS.index("full")] = everything
        bits[patches] = set_columns.bits
        values = self._values(decoded)
        for column, nulled in set_columns.nulled.items():
            values[column] = _with_nulls(values[column], patches[nulled])
        columns = {
            "_operation": pa.array(OPERATIONS, pa.string()).take(pa.array(operations)),
            "_dirty_reason": pa.array(_REASONS, pa.string()).take(pa.array(reasons, mask=reasons < 0)),
            "_set": set_array(bits),
            "_replay_id": landed["replay_id"],
            "_commit_time": decoded.event_times,
            "_transaction_key": header["transactionKey"],
        }
        for name, array, protection in zip(self._names, values, self._hidden, strict=True):
            if name is not None:
                columns[name] = stored(array, protection, self._rules)
        return DecodedChanges(landed, types, record_ids, columns), unreadable

    def _values(self, decoded: DecodedEvents) -> list[pa.Array]:
        parts: dict[int, list[pa.Array]] = {}
        values: list[pa.Array] = []
        for column in self._columns:
            if column.inside is None:
                values.append(decoded.columns[column.member])
                continue
            if column.member not in parts:
                parts[column.member] = decoded.columns[column.member].flatten()  # null parts where the field is null
            values.append(parts[column.member][column.inside])
        return values


def lengths(lists: pa.ListArray) -> npt.NDArray[Any]:
    return pa.compute.list_value_length(lists).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def is_overflow(types: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the change types that are :data:`OVERFLOW`."""
    return is_true(pa.compute.equal(types, OVERFLOW))


def _wrong_ids(record_ids: pa.ListArray) -> dict[int, str]:
    """Return the reason for each event with a text that is neither a record ID nor stands for many (``001*``)."""
    ids = record_ids.flatten()
    places = np.flatnonzero(~is_true(pa.compute.match_substring_regex(ids, _RECORD_ID)))
    events = np.repeat(np.arange(len(record_ids)), lengths(record_ids))
    return {int(events[place]): f"{str(ids[int(place)].as_py())[:40]!r} is not a record ID" for place in places}


def header_of(decoded: DecodedEvents) -> dict[str, pa.Array]:
    """Return the headers of change events by member."""
    header = decoded.columns[0]
    return {member.name: array for member, array in zip(header.type, header.flatten(), strict=True)}


def _operations(types: pa.Array, with_diff: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the indexes of operations and reasons in their lists, -1 for no reason."""
    encoded = types.dictionary_encode()
    operation_numbers = [OPERATIONS.index(_OPERATION_OF.get(type_, "gap")) for type_ in encoded.dictionary.to_pylist()]
    operations = np.array(operation_numbers, np.int64)[encoded.indices.to_numpy()]
    gap, with_diff = OPERATIONS.index("gap"), with_diff & (operations == OPERATIONS.index("patch"))
    operations[with_diff] = gap
    return operations, np.where(operations == gap, with_diff.astype(np.int64), -1)


def _with_nulls(array: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Return the array with nulls in these rows; most of them are null already."""
    if array.null_count == len(array) or array.take(pa.array(rows)).null_count == len(rows):
        return array
    mask = np.zeros(len(array), np.bool_)
    mask[rows] = True
    return pa.compute.if_else(pa.array(mask), pa.scalar(None, array.type), array)


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
    """Bitmap reader for the events of one schema: the columns that each event sets, and those that it sets to null.

    Events of one schema share few bitmaps. Each bitmap is read once, with
    :mod:`airflow_provider_sfstream.salesforce.bitmaps`, and cached; the work for each event is a lookup in arrays.

    Meaning of the bits (bits of the header and beyond the schema are ignored):

    - An event sets the fields in ``changedFields`` and ``nulledFields``; those in ``nulledFields`` become null.
    - The bit of a compound field stands for all its columns. If its array (for ``nulledFields``, either array) also
      names parts of the field, the bit stands only for the text value that the field may have in place of a record: the
      array lists the changed parts one by one, and unlisted parts did not change.

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
    counts = pa.compute.add(pa.compute.list_value_length(changed), pa.compute.list_value_length(nulled))
    joined = (pa.compute.binary_join(texts, " ") for texts in (changed, nulled))
    return pa.compute.binary_join_element_wise(counts.cast(pa.string()), *joined, "|").fill_null("")


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
