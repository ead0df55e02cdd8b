"""Input of ``replica_merge``: rows of a table of 90 columns and changes to it, generated with NumPy, as Parquet.

Each value is computed from its record and its column, so that a table is the same in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.rows.replica_columns import CHANGE_ENVELOPE, TABLE_ENVELOPE

SET_BY_A_CHANGE = 6
_KINDS: tuple[ColumnType, ...] = ("string",) * 5 + ("double", "timestamp", "boolean", "date", "long")
COLUMNS: dict[str, ColumnType] = {f"Field{number}__c": _KINDS[number % 10] for number in range(80)}
_FILES, _CHUNK = 4, 50_000
_MICROSECONDS = 1_000_000
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)

Numbers = NDArray[np.uint64]


def write_rows(folder: Path, rows: int) -> None:
    """Write the rows of the table; a third of the fields is null."""
    _write(folder, TABLE_ENVELOPE, rows, _rows)


def write_changes(folder: Path, rows: int, kind: str) -> None:
    """Write changes, a tenth as many as rows: spread evenly, to one record in two hundred, or to one record."""

    def changes(numbers: Numbers) -> dict[str, pa.Array]:
        record = {
            "spread": _noise(numbers, 0) % np.uint64(rows),
            "hot": _noise(numbers, 0) % np.uint64(rows // 200) * np.uint64(200),
            "one": np.full(len(numbers), 4711, np.uint64),
        }[kind]
        return _changes(numbers, record)

    _write(folder, CHANGE_ENVELOPE, rows // 10, changes)


def _write(
    folder: Path, envelope: dict[str, ColumnType], count: int, make: Callable[[Numbers], dict[str, pa.Array]]
) -> None:
    folder.mkdir()
    schema = pa.schema([(name, arrow_type(type_)) for name, type_ in (envelope | COLUMNS).items()])
    for file, numbers in enumerate(np.array_split(np.arange(count, dtype=np.uint64), _FILES)):
        with pyarrow.parquet.ParquetWriter(folder / f"{file}.parquet", schema, compression="zstd") as writer:
            for chunk in _chunks(numbers):
                made = make(chunk)
                writer.write_table(
                    pa.table([made[name].cast(schema.field(name).type) for name in schema.names], schema)
                )


def _chunks(numbers: Numbers) -> Iterator[Numbers]:
    return (numbers[first : first + _CHUNK] for first in range(0, len(numbers), _CHUNK))


def _rows(numbers: Numbers) -> dict[str, pa.Array]:
    count = len(numbers)
    envelope = {
        "Id": _record_ids(numbers),
        "_deleted": pa.array([False] * count),
        "_dirty": pa.array([False] * count),
        "_dirty_since": pa.nulls(count),
        "_dirty_reason": pa.nulls(count),
        "_replay_id": pa.array([b"\0" * 8] * count),
        "_commit_time": _times(np.full(count, 1_700_000_000 * _MICROSECONDS, np.int64)),
        "_transaction_key": _texts(_noise(numbers, 1), 16),
        "_sequence": pa.array([0] * count),
        "_refreshed_at": pa.nulls(count),
    }
    return envelope | {name: _values(number, type_, numbers) for number, (name, type_) in enumerate(COLUMNS.items())}


def _changes(numbers: Numbers, records: Numbers) -> dict[str, pa.Array]:
    # The columns of one change have equal distances, and the first column differs between changes.
    step = len(COLUMNS) // SET_BY_A_CHANGE
    first = (_noise(numbers, 1) % np.uint64(len(COLUMNS))).astype(np.int64)
    chosen = [(n - first) % step == (0 if n < step * SET_BY_A_CHANGE else -1) for n in range(len(COLUMNS))]
    words = np.zeros((len(numbers), -(-len(COLUMNS) // 64)), np.uint64)
    for n, is_set in enumerate(chosen):
        words[:, n // 64] |= is_set.astype(np.uint64) << np.uint64(n % 64)
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * words.shape[1]
    sequence = numbers.astype(np.int64) + 1
    envelope = {
        "Id": _record_ids(records),
        "_sequence": pa.array(sequence),
        "_operation": pa.array(["patch"] * len(numbers)),
        "_dirty_reason": pa.nulls(len(numbers)),
        "_set": pa.ListArray.from_arrays(pa.array(offsets), pa.array(words.view(np.int64).ravel())),
        "_replay_id": _binaries(numbers),
        "_commit_time": _times((sequence + 1_750_000_000) * _MICROSECONDS),
        "_transaction_key": _texts(_noise(numbers, 2), 16),
    }
    new = numbers + np.uint64(1_000_003)
    values = {
        name: pa.compute.if_else(pa.array(is_set), _values(n, type_, new), None)
        for (n, (name, type_)), is_set in zip(enumerate(COLUMNS.items()), chosen, strict=True)
    }
    return envelope | values


def _values(column: int, type_: ColumnType, numbers: Numbers) -> pa.Array:
    """Return values of about the same size as in real records."""
    noise = _noise(numbers, column)
    makers: dict[str, Callable[[], pa.Array]] = {
        "string": lambda: _texts(noise, 4 + 3 * (column % 7)),
        "double": lambda: pa.array((noise % np.uint64(1_000_000)).astype(np.float64) / 100),
        "timestamp": lambda: _times((noise % np.uint64(1_700_000_000_000)).astype(np.int64) * 1_000),
        "boolean": lambda: pa.array(noise >> np.uint64(63) == 1),
        "date": lambda: pa.array((noise % np.uint64(20_000)).astype(np.int32)).cast(pa.date32()),
        "long": lambda: pa.array((noise % np.uint64(100_000)).astype(np.int64)),
    }
    return pa.compute.if_else(pa.array(noise % np.uint64(3) > 0), makers[str(type_)](), None)


def _noise(numbers: Numbers, salt: int) -> Numbers:
    """Return pseudo-random numbers computed from ``numbers`` with the mixing function of SplitMix64."""
    with np.errstate(over="ignore"):
        mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt) * np.uint64(
            0xD1B54A32D192ED03
        )
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _record_ids(numbers: Numbers) -> pa.Array:
    return pa.compute.binary_join_element_wise("0015g00000", _texts(numbers, 8, big_endian=True), "")


def _texts(numbers: Numbers, length: int, *, big_endian: bool = False) -> pa.Array:
    """Return ``length`` hexadecimal digits of each number; the last ones if ``big_endian``."""
    columns = [numbers, _noise(numbers, 3)] if length > 16 else [numbers]
    bytes_ = np.stack(columns, axis=1).astype(">u8").view(np.uint8)
    digits = np.stack([_HEX[bytes_ >> 4], _HEX[bytes_ & 15]], axis=2).reshape(len(numbers), -1)
    kept = digits[:, -length:] if big_endian else digits[:, :length]
    return _fixed(np.ascontiguousarray(kept)).cast(pa.string())


def _binaries(numbers: Numbers) -> pa.Array:
    return _fixed(np.ascontiguousarray(numbers.astype(">u8").view(np.uint8).reshape(len(numbers), 8)))


def _fixed(rows: NDArray[np.uint8]) -> pa.Array:
    type_ = pa.binary(rows.shape[1])
    return pa.Array.from_buffers(type_, len(rows), [None, pa.py_buffer(rows.tobytes())]).cast(pa.binary())


def _times(microseconds: NDArray[np.int64]) -> pa.Array:
    return pa.array(microseconds).cast(pa.timestamp("us", "UTC"))
