"""The parcels that a task receives, in memory or in a temporary file."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_sfstream.tables.rows import spool
from airflow_provider_sfstream.tables.rows.routing import PARCEL, parcel
from airflow_provider_sfstream.tables.rows.spool import Parcels, unpacked


def rows(*ids: str) -> pa.Table:
    return pa.table({"Id": list(ids), "Text": [each * 50 for each in ids]})


def ids(parcels: Parcels, piece: int) -> list[str]:
    return [id_ for content in parcels.read(piece) for id_ in unpacked(content, ["Id"])["Id"].to_pylist()]


@pytest.mark.parametrize("held", [1 << 20, 1, 1_500])
def test_parcels_are_read_by_piece_in_order(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(spool, "_HELD", held)
    with Parcels() as parcels:
        for number in range(6):
            parcels.add(parcel(number % 2, rows(f"a{number}", f"b{number}")))
        assert (parcels._spool is None) is (held == 1 << 20)
        assert sorted(parcels.pieces()) == [0, 1]
        assert ids(parcels, 0) == ["a0", "b0", "a2", "b2", "a4", "b4"]
        assert ids(parcels, 1) == ["a1", "b1", "a3", "b3", "a5", "b5"]
        assert parcels.size(0) == sum(rows(f"a{number}", f"b{number}").nbytes for number in (0, 2, 4))


def test_memory_has_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(parcel(0, rows("a"))["rows"][0].as_py())
    monkeypatch.setattr(spool, "_HELD", 3 * size)
    with Parcels() as parcels:
        for number in range(20):
            parcels.add(parcel(number % 3, rows("a")))
            assert parcels._held_bytes <= 3 * size
            assert parcels._held_bytes == sum(content.size for held in parcels._held.values() for content in held)
        assert [len(ids(parcels, piece)) for piece in range(3)] == [7, 7, 6]


def test_a_piece_without_rows_is_a_piece() -> None:
    with Parcels() as parcels:
        parcels.add(pa.RecordBatch.from_pylist([{"piece": 7}], schema=PARCEL))
        assert parcels.pieces() == [7]
        assert parcels.size(7) == 0
        assert list(parcels.read(7)) == []
        assert list(parcels.read(8)) == []


def test_forgotten_parcels_free_their_memory() -> None:
    with Parcels() as parcels:
        parcels.add(parcel(0, rows("a")))
        parcels.add(parcel(1, rows("b")))
        parcels.forget(0)
        assert ids(parcels, 0) == []
        assert ids(parcels, 1) == ["b"]


def test_the_file_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "_HELD", 1)
    with Parcels() as parcels:
        parcels.add(parcel(0, rows("a")))
        file = parcels._spool._file
    assert file.closed


def test_one_column_of_packed_rows() -> None:
    assert unpacked(spool.packed(rows("a", "b")), ["Text"]).to_pydict() == {"Text": ["a" * 50, "b" * 50]}
