"""Rows on their way to the task that rewrites their piece."""

from __future__ import annotations

import random

import pyarrow as pa

from airflow_provider_sfstream.tables.rows.routing import combined, parcels
from airflow_provider_sfstream.tables.rows.spool import unpacked

SCHEMA = pa.schema([("Id", pa.string()), ("_sequence", pa.int64()), *((f"Text{n}", pa.string()) for n in range(20))])

POOL = pa.proxy_memory_pool(pa.system_memory_pool())
"""Counts by itself, and stays for as long as what it gave."""


def batch(ids: list[str], sequences: list[int]) -> pa.RecordBatch:
    keys = list(zip(ids, sequences, strict=True))
    texts = [[f"{n} of {id_} {sequence} ".ljust(200, "x") for id_, sequence in keys] for n in range(20)]
    return pa.RecordBatch.from_arrays([ids, sequences, *texts], schema=SCHEMA)


def sent(batches: list[pa.RecordBatch], ends: tuple[str, ...] = ()) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for each in parcels(lambda given: given, ends)(iter(batches)):
        for piece, rows, _size in zip(*(column.to_pylist() for column in each.columns), strict=True):
            found.setdefault(piece, []).append(rows)
    return found


def test_each_piece_receives_its_rows_in_order() -> None:
    keys = [(f"001{n:03d}", sequence) for n in range(40) for sequence in range(5)]
    random.Random(1).shuffle(keys)
    halves = [keys[:90], keys[90:]]
    found = sent([batch([id_ for id_, _ in half], [number for _, number in half]) for half in halves], ("001019",))
    for piece, rows in found.items():
        came = combined(SCHEMA, tables := list(map(unpacked, rows)), ["Id", "_sequence"])
        own = sorted(key for key in keys if (key[0] > "001019") == bool(piece))
        assert came.to_pylist() == batch([id_ for id_, _ in own], [number for _, number in own]).to_pylist()
        assert tables == []
    assert len(combined(SCHEMA, [SCHEMA.empty_table()], ["Id"])) == 0


def test_many_wide_rows_of_one_piece_are_held_once() -> None:
    ids = ["001000"] * 4_000
    (parcel,) = sent([batch(ids, list(range(first, first + 4_000))) for first in (4_000, 0)]).values()
    before = pa.default_memory_pool()
    pa.set_memory_pool(POOL)
    try:
        came = combined(SCHEMA, list(map(unpacked, parcel)), ["Id", "_sequence"])
        assert POOL.max_memory() < 1.4 * came.nbytes
    finally:
        pa.set_memory_pool(before)
    assert came["_sequence"].to_pylist() == list(range(8_000))
