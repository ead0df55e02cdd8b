"""Row sources: lists, landed windows and tables return the same rows in the same order at each read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_sfstream.actions.row_sources import RowSource, open_source
from airflow_provider_sfstream.exceptions import ConfigurationError, ManifestError
from airflow_provider_sfstream.tables.event_log.job import events_in_order
from tests.support.landing_files import LandedEvent, encode, land_window

ORDER = {
    "type": "record",
    "name": "Order__e",
    "fields": [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "Number__c", "type": ["null", "double"], "default": None},
    ],
}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "Note__c", "type": ["null", "string"], "default": None}]}  # type: ignore[misc]
LOADED = events_in_order  # imported with its dependencies before the first test
TIME = datetime(2026, 1, 10, tzinfo=UTC)


@contextmanager
def opened(
    rows: Any = None, windows: Any = None, table: Path | None = None, pinned: dict[str, Any] | None = None
) -> Iterator[RowSource]:
    url = None if table is None else str(table)
    with open_source(
        rows, windows, url, landing_conn_id=None, table_conn_id=None, pinned={} if pinned is None else pinned
    ) as source:
        yield source


def event(number: int, schema: str = "one") -> LandedEvent:
    record = {"CreatedDate": int(TIME.timestamp() * 1000), "Number__c": float(number)}
    if schema == "two":
        record["Note__c"] = f"note {number}"  # type: ignore[assignment]
    return LandedEvent(number, schema, encode({"one": ORDER, "two": WIDER}[schema], record))


def land(folder: Path, window_id: str, events: list[LandedEvent], **arguments: Any) -> str:
    return land_window(folder, window_id, events, {"one": ORDER, "two": WIDER}, event_times=(TIME, TIME), **arguments)


def test_a_list_has_the_columns_of_all_its_rows() -> None:
    with opened(rows=[{"a": 1}, {"b": 2}]) as source:
        assert list(source.columns) == list(source.fields) == ["a", "b"]
        assert [(row.identity, row.values) for row in source.rows()] == [("0", {"a": 1}), ("1", {"b": 2})]
        pinned = source.pinned
    with opened(rows=[{"a": 1}, {"b": 3}]) as other:
        assert other.pinned != pinned
    with opened(rows=({"a": 1}, {"b": 2})) as same:
        assert same.pinned == pinned


@pytest.mark.parametrize("wrong", ["[]", {"a": 1}, [1], [{1: 2}], 5, [["a"]]])
def test_rows_other_than_a_list_of_dicts_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="rows must be a list of dicts"), opened(rows=wrong):
        pass


def test_windows_return_each_event_once_in_order_across_schemas(tmp_path: Path) -> None:
    mixed = [event(number, "two" if number % 3 else "one") for number in range(40)]
    first = land(tmp_path, "20260110T000000Z-a", [*mixed, LandedEvent(40, "one", b"\xff")])
    second = land(tmp_path, "20260110T010000Z-b", [mixed[39], *(event(number) for number in range(41, 50))])
    with opened(windows=[second, first]) as source:
        assert list(source.fields) == ["Number__c", "Note__c"]
        assert {"_event_id", "CreatedDate"} <= set(source.columns)
        rows = list(source.rows())
    assert [row.values.get("Number__c") for row in rows] == [*range(40), None, *range(41, 50)]
    assert rows[1].values["Note__c"] == "note 1"
    assert len({row.identity for row in rows}) == 50
    assert [row.problem is not None for row in rows] == [number == 40 for number in range(50)]


def test_the_result_of_an_interval_bounds_the_events(tmp_path: Path) -> None:
    manifest = land(tmp_path, "20260110T000000Z-a", [event(1)])
    window = {"manifest_url": manifest, "window_id": "20260110T000000Z-a", "kind": "live", "origin": "landed"}
    interval = {"mode": "interval", "windows": [window]}
    for hour, count in ((0, 1), (1, 0)):
        bounds = {"event_time_from": f"2026-01-10T0{hour}:00:00Z", "event_time_to": f"2026-01-10T0{hour + 1}:00:00Z"}
        with opened(windows={**interval, **bounds}) as source:
            assert len(list(source.rows())) == count


def test_windows_of_two_events_have_no_common_order(tmp_path: Path) -> None:
    other = {**ORDER, "name": "Invoice__e"}
    events = [event(1), LandedEvent(2, "other", encode(other, {"CreatedDate": 0, "Number__c": 1.0}))]
    manifest = land_window(tmp_path, "20260110T000000Z-a", events, {"one": ORDER, "other": other})
    with pytest.raises(ConfigurationError, match="events of Invoice__e, Order__e"), opened(windows=manifest):
        pass


def test_windows_without_events_have_no_rows_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    with opened(windows=[]) as source:
        assert list(source.rows()) == []
    missing = str(tmp_path / "manifest.json")
    with pytest.raises(ManifestError), opened(windows=missing):
        pass


def table(*numbers: int) -> pa.Table:
    times = [datetime(2026, 1, number, tzinfo=UTC) for number in numbers]
    columns = {"Id": list(numbers), "At": times, "Day": [time.date() for time in times], "_own": list(numbers)}
    return pa.table(columns)


def test_a_delta_table_is_read_at_the_version_of_the_first_try(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "orders", table(1, 2, 3), partition_by=["Day"])
    with opened(table=tmp_path / "orders") as source:
        assert set(source.fields) == {"Id", "At", "Day"}
        pinned = dict(source.pinned)
        first = {row.identity: row.values for row in source.rows()}
    assert sorted(row["Id"] for row in first.values()) == [1, 2, 3]
    one = next(row for row in first.values() if row["Id"] == 2)
    assert (one["At"], one["Day"]) == (datetime(2026, 1, 2, tzinfo=UTC), date(2026, 1, 2))
    write_deltalake(tmp_path / "orders", table(4), mode="append")
    DeltaTable(tmp_path / "orders").delete("Id = 1")
    with opened(table=tmp_path / "orders", pinned=pinned) as again:
        assert {row.identity: row.values for row in again.rows()} == first
        assert again.pinned == pinned
    with opened(table=tmp_path / "orders") as newest:
        assert sorted(row.values["Id"] for row in newest.rows()) == [2, 3, 4]


def test_parquet_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    for day, numbers in (("2026-01-01", [1, 2]), ("2026-01-02", [3])):
        (folder / f"day={day}").mkdir(parents=True)
        pq.write_table(table(*numbers), folder / f"day={day}" / "part-0.parquet")
    wider = table(4).append_column("Note", pa.array(["new"]))
    pq.write_table(wider, folder / "day=2026-01-02" / "part-1.parquet")
    (folder / "_SUCCESS").touch()
    with opened(table=folder) as source:
        rows = [row.values for row in source.rows()]
        assert len(source.pinned["files"]) == 3
    assert [row["Id"] for row in rows] == [1, 2, 3, 4]
    assert [row["Note"] for row in rows] == [None, None, None, "new"]
    assert str(rows[0]["day"]) == "2026-01-01"
    with opened(table=folder / "day=2026-01-01" / "part-0.parquet") as one:
        assert [row.values["Id"] for row in one.rows()] == [1, 2]


def test_path_without_a_table_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    for name in ("empty", "missing", "broken.parquet"):
        with pytest.raises(ConfigurationError, match=name), opened(table=tmp_path / name):
            pass
