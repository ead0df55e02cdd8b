"""Blocks that a task receives, in memory or in a temporary file."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_sfstream.tables.rows import shuffle
from airflow_provider_sfstream.tables.rows.shuffle import BLOCK, ShuffleBlocks, block, unpacked


def rows(*ids: str) -> pa.Table:
    return pa.table({"Id": list(ids), "Text": [each * 50 for each in ids]})


def ids(blocks: ShuffleBlocks, file_group: int) -> list[str]:
    return [id_ for content in blocks.read(file_group) for id_ in unpacked(content, ["Id"])["Id"].to_pylist()]


@pytest.mark.parametrize("held", [1 << 20, 1, 1_500])
def test_blocks_are_read_by_file_group_in_order(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(shuffle, "_MEMORY_LIMIT", held)
    with ShuffleBlocks() as blocks:
        for number in range(6):
            blocks.add(block(number % 2, rows(f"a{number}", f"b{number}")))
        assert (blocks._spool is None) is (held == 1 << 20)
        assert sorted(blocks.file_groups()) == [0, 1]
        assert ids(blocks, 0) == ["a0", "b0", "a2", "b2", "a4", "b4"]
        assert ids(blocks, 1) == ["a1", "b1", "a3", "b3", "a5", "b5"]
        assert blocks.size(0) == sum(rows(f"a{number}", f"b{number}").nbytes for number in (0, 2, 4))


def test_memory_use_stays_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(block(0, rows("a"))["rows"][0].as_py())
    monkeypatch.setattr(shuffle, "_MEMORY_LIMIT", 3 * size)
    with ShuffleBlocks() as blocks:
        for number in range(20):
            blocks.add(block(number % 3, rows("a")))
            assert blocks._bytes_in_memory <= 3 * size
            contents = (content for buffers in blocks._in_memory.values() for content in buffers)
            assert blocks._bytes_in_memory == sum(content.size for content in contents)
        assert [len(ids(blocks, file_group)) for file_group in range(3)] == [7, 7, 6]


def test_file_group_without_rows_is_listed() -> None:
    with ShuffleBlocks() as blocks:
        blocks.add(pa.RecordBatch.from_pylist([{"file_group": 7}], schema=BLOCK))
        assert blocks.file_groups() == [7]
        assert blocks.size(7) == 0
        assert list(blocks.read(7)) == []
        assert list(blocks.read(8)) == []


def test_forgotten_blocks_free_their_memory() -> None:
    with ShuffleBlocks() as blocks:
        blocks.add(block(0, rows("a")))
        blocks.add(block(1, rows("b")))
        blocks.forget(0)
        assert ids(blocks, 0) == []
        assert ids(blocks, 1) == ["b"]


def test_temporary_file_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "_MEMORY_LIMIT", 1)
    with ShuffleBlocks() as blocks:
        blocks.add(block(0, rows("a")))
        file = blocks._spool._file
    assert file.closed


def test_one_column_of_packed_rows_can_be_unpacked() -> None:
    assert unpacked(shuffle.packed(rows("a", "b")), ["Text"]).to_pydict() == {"Text": ["a" * 50, "b" * 50]}
