"""Shuffle of rows to the task that rewrites their file group."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, get_ident

import pyarrow as pa
import pytest

from airflow_provider_sfstream.tables.rows.shuffle import SMALL, Spool, blocks, combined, small_first, unpacked

SCHEMA = pa.schema([("Id", pa.string()), ("_sequence", pa.int64()), *((f"Text{n}", pa.string()) for n in range(20))])

POOL = pa.proxy_memory_pool(pa.system_memory_pool())
"""Memory pool with its own counter. It must outlive the memory that it allocates."""


def batch(ids: list[str], sequences: list[int]) -> pa.RecordBatch:
    keys = list(zip(ids, sequences, strict=True))
    texts = [[f"{n} of {id_} {sequence} ".ljust(200, "x") for id_, sequence in keys] for n in range(20)]
    return pa.RecordBatch.from_arrays([ids, sequences, *texts], schema=SCHEMA)


def sent(batches: list[pa.RecordBatch], ends: tuple[str, ...] = ()) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for each in blocks(lambda incoming: incoming, ends)(iter(batches)):
        for file_group, rows, _size in zip(*(column.to_pylist() for column in each.columns), strict=True):
            found.setdefault(file_group, []).append(rows)
    return found


def test_each_file_group_receives_its_rows_in_order() -> None:
    keys = [(f"001{n:03d}", sequence) for n in range(40) for sequence in range(5)]
    random.Random(1).shuffle(keys)
    halves = [keys[:90], keys[90:]]
    found = sent([batch([id_ for id_, _ in half], [number for _, number in half]) for half in halves], ("001019",))
    for file_group, rows in found.items():
        received = combined(SCHEMA, tables := list(map(unpacked, rows)), ["Id", "_sequence"])
        own = sorted(key for key in keys if (key[0] > "001019") == bool(file_group))
        assert received.to_pylist() == batch([id_ for id_, _ in own], [number for _, number in own]).to_pylist()
        assert tables == []
    assert len(combined(SCHEMA, [], ["Id"])) == 0


def test_wide_rows_of_one_file_group_are_in_memory_once() -> None:
    ids = ["001000"] * 4_000
    (block,) = sent([batch(ids, list(range(first, first + 4_000))) for first in (4_000, 0)]).values()
    before = pa.default_memory_pool()
    pa.set_memory_pool(POOL)
    try:
        received = combined(SCHEMA, list(map(unpacked, block)), ["Id", "_sequence"])
        assert POOL.max_memory() < 1.4 * received.nbytes
    finally:
        pa.set_memory_pool(before)
    assert received["_sequence"].to_pylist() == list(range(8_000))


def test_small_rows_are_processed_at_the_same_time_and_larger_ones_after_them() -> None:
    sizes = {"large": SMALL + 1, "first": SMALL, "other": 1, "larger": 10 * SMALL}
    both, done = Barrier(2), list[str]()
    own_thread = get_ident()

    def work(key: str) -> str:
        if sizes[key] <= SMALL:
            both.wait(60)  # fails unless both are processed at the same time
        else:
            assert get_ident() == own_thread
            assert {"first", "other"} <= {*done}
        done.append(key)
        return key.upper()

    assert list(small_first(work, sizes, sizes.__getitem__)) == ["FIRST", "OTHER", "LARGE", "LARGER"]


def test_error_of_small_rows_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(small_first(lambda number: 1 // number, [1, 0, 2], lambda _: 0))


def test_spooled_rows_are_read_by_several_threads() -> None:
    with Spool[int]() as spool, ThreadPoolExecutor(4) as pool:
        for number in range(4_000):
            spool.add(number % 8, f"{number},".encode())
        assert spool.size(0) == sum(len(f"{number},") for number in range(0, 4_000, 8))
        expected = ["".join(f"{number}," for number in range(key, 4_000, 8)) for key in range(8)]
        for _ in range(5):
            assert list(pool.map(lambda key: b"".join(spool.read(key)).decode(), range(8))) == expected
