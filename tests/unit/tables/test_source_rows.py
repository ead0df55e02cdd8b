"""Rows of landed windows that executors decode, without Spark, compared with rows of the event log."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, SchemaError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_schema
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.delta.landed_windows import load_windows as windows_of
from airflow_provider_sfstream.tables.source.files import SourceFiles
from airflow_provider_sfstream.tables.source.options import SourceOptions
from airflow_provider_sfstream.tables.source.parts import Planner, all_columns, event_columns, part_rows
from airflow_provider_sfstream.windows import read_windows
from tests.support.json_windows import JsonEvent, land_json_window
from tests.support.landing_files import LandedEvent, land_window

DAY = datetime(2026, 1, 10, tzinfo=UTC)
SPAN = DAY, DAY + timedelta(days=1)
ADDRESS = {
    "type": "record",
    "name": "Address",
    "fields": [{"name": each, "type": ["null", "string"]} for each in ("City", "Zip")],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order__e",
    "fields": [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "Amount__c", "type": ["null", "double"], "doc": "Data:Double:00N1"},
        {"name": "Address__c", "type": ["null", ADDRESS]},
    ],
}
ORDER_TEXT = copy.deepcopy(ORDER)
ORDER_TEXT["fields"][1]["type"] = ["null", "string"]
ORDER_MORE = copy.deepcopy(ORDER)
ORDER_MORE["fields"].append({"name": "Note__c", "type": ["null", "string"]})


def order(number: int, schema_id: str = "one", **fields: Any) -> LandedEvent:
    moment = int((DAY + timedelta(hours=number)).timestamp() * 1000)
    record = {"CreatedDate": moment, "Amount__c": number / 4, "Address__c": {"City": f"Köln {number}", "Zip": None}}
    return LandedEvent(number, schema_id, record | fields)


class Reader:
    """Reader that reads windows part by part, with pickled parts and options, as Spark does."""

    def __init__(self, *manifests: str, events: dict[str, ColumnType] | None = None, **options: str) -> None:
        self.options = SourceOptions.from_options({"manifests": ",".join(manifests), **options})
        self.files = SourceFiles({})
        self.windows: Sequence[Manifest] = windows_of(self.files, manifests)
        decoded = self.options.rows == "decoded"
        found = Planner(self.files, {}, is_given=False).columns(self.windows) if decoded and events is None else events
        self.events = dict(found or {})
        self.planner = Planner(self.files, self.events, is_given=events is not None or not decoded)

    def table(self) -> pa.Table:
        schema = arrow_schema(all_columns(self.options.rows, self.events))
        parts = self.planner.parts(self.windows, decode=self.options.rows != "raw")
        batches = [
            batch
            for part in pickle.loads(pickle.dumps(parts))
            for batch in part_rows(part, pickle.loads(pickle.dumps(self.options)), schema)
        ]
        return pa.Table.from_batches(batches, schema)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["_replay_id"], row["window_id"]))


def test_decoded_rows_are_those_of_the_event_log(tmp_path: Path) -> None:
    first = [order(number, Address__c=None if number % 2 else {"City": None, "Zip": "50667"}) for number in range(5)]
    later = [order(number, "two", Note__c="x" * number) for number in range(5, 9)]
    urls = [
        land_window(tmp_path, "20260110T000000Z-a", first, {"one": ORDER}, parts=2),
        land_window(tmp_path, "20260110T010000Z-b", later, {"two": ORDER_MORE}),
        land_window(tmp_path, "20260110T020000Z-c", [], {}),
    ]
    read, expected = Reader(*urls).table(), read_windows(urls)["Order__e"]
    assert sorted(read.column_names) == sorted(expected.column_names)
    assert rows_of(read) == rows_of(expected.select(read.column_names))


def test_each_type_of_a_field_has_a_column_as_in_the_event_log(tmp_path: Path) -> None:
    urls = [
        land_window(tmp_path, "20260110T000000Z-a", [order(1)], {"one": ORDER}),
        land_window(tmp_path, "20260110T010000Z-b", [order(2, "two", Amount__c="2,5")], {"two": ORDER_TEXT}),
    ]
    read = Reader(*urls).table()
    assert [(row["Amount__c"], row["Amount__c__string"]) for row in rows_of(read)] == [(0.25, None), (None, "2,5")]
    assert rows_of(read) == rows_of(read_windows(urls)["Order__e"].select(read.column_names))


def test_self_describing_events_have_columns_of_their_fields(tmp_path: Path) -> None:
    body = b'{"event": {"createdDate": "2026-01-10T08:00:00.000Z", "type": "%s"}, "sobject": {"Id": "a", "Total": %s}}'
    events = [JsonEvent(number, body % (b"created", value)) for number, value in enumerate((b"1.5", b"null", b'"x"'))]
    url = land_json_window(tmp_path, "20260110T000000Z-a", "/topic/Orders", events)
    read = Reader(url).table()
    assert rows_of(read) == rows_of(read_windows([url])["Orders"].select(read.column_names))
    assert [row["Total"] for row in rows_of(read)] == [1.5, None, None]


def test_raw_rows_have_the_landed_payload_and_its_origin(tmp_path: Path) -> None:
    events = [order(1), LandedEvent(2, "nobody knows", b"\xff\x00")]
    url = land_window(tmp_path, "20260110T000000Z-a", events, {"one": ORDER})
    rows = Reader(url, rows="raw").table().to_pylist()
    assert [row["replay_id"] for row in rows] == [event.replay_id for event in events]
    assert rows[1]["payload"] == b"\xff\x00"
    assert {(row["topic"], row["org_id"], row["window_id"]) for row in rows} == {
        ("/event/Order__e", "00D000000000001EAA", "20260110T000000Z-a")
    }


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """Land a window with an undecodable event, an event without a schema, and two valid events."""
    events = [order(1), LandedEvent(2, "one", b"\xff"), LandedEvent(3, "lost", b"x"), order(4)]
    return land_window(tmp_path, "20260110T000000Z-a", events, {"one": ORDER}, event_times=SPAN)


def test_undecodable_events_fail_the_read_without_quoting_them(damaged: str) -> None:
    with pytest.raises(SchemaError, match=r"2 of 4 events .* cannot be decoded. No event is lost") as caught:
        Reader(damaged).table()
    assert "xff" not in str(caught.value)


def test_undecodable_events_are_only_in_the_quarantine(damaged: str) -> None:
    decoded = Reader(damaged, on_undecodable="leave_out").table()
    quarantine = Reader(damaged, rows="quarantine").table()
    expected = read_windows([damaged])
    assert rows_of(decoded) == rows_of(expected["Order__e"].select(decoded.column_names))
    ours, theirs = (
        {row["replay_id"]: row["payload"] for row in table.to_pylist()}
        for table in (quarantine, expected["_quarantine"])
    )
    assert ours == theirs
    assert all(row["reason"] for row in quarantine.to_pylist())


def test_changed_or_missing_file_is_refused(tmp_path: Path) -> None:
    url = land_window(tmp_path, "20260110T000000Z-a", [order(1)], {"one": ORDER})
    (file,) = tmp_path.rglob("*.parquet")
    other = land_window(tmp_path / "other", "20260110T000000Z-a", [order(2)], {"one": ORDER})
    file.write_bytes(next((tmp_path / "other").rglob("*.parquet")).read_bytes())
    with pytest.raises(ConfigurationError, match="differs from the manifest of its window"):
        Reader(url, rows="raw").table()
    assert len(Reader(url, rows="raw", verify_files="false").table()) == len(Reader(other, rows="raw").table())
    file.unlink()
    with pytest.raises(ConfigurationError, match="Files of windows are missing"):
        Reader(url, rows="raw").table()


def test_new_field_fails_a_query_with_inferred_schema_but_not_with_a_user_schema(tmp_path: Path) -> None:
    land_window(tmp_path, "20260110T000000Z-a", [order(1)], {"one": ORDER})
    url = land_window(tmp_path, "20260110T010000Z-b", [order(2, "two", Note__c="x")], {"two": ORDER_MORE})
    reader = Reader(url)
    del reader.events["Note__c"]
    inferred = Planner(reader.files, reader.events, is_given=False)
    with pytest.raises(ConfigurationError, match=r"a field Note__c of type string, .* start the query again"):
        inferred.parts(reader.windows, decode=True)
    chosen = Reader(
        url, events={"amount__c": "double", "Nobody__c": "string", "Address__c": {"struct": {"City": "string"}}}
    ).table()
    assert chosen.column("amount__c").to_pylist() == [0.5]
    assert chosen.column("Nobody__c").to_pylist() == [None]
    with pytest.raises(ConfigurationError, match=r"a field Amount__c of type double.*Change the column to that type"):
        Reader(url, events={"Amount__c": "string"}).table()


def test_struct_with_a_new_member_fails_a_query(tmp_path: Path) -> None:
    url = land_window(tmp_path, "20260110T000000Z-a", [order(1)], {"one": ORDER})
    reader = Reader(url)
    narrow = reader.events | {"Address__c": {"struct": {"City": "string"}}}
    with pytest.raises(ConfigurationError, match="a field Address__c"):
        Planner(reader.files, narrow, is_given=False).parts(reader.windows, decode=True)


@pytest.mark.parametrize(
    ("rows", "column", "message"),
    [
        ("decoded", {"name": "_ordinal", "type": "string"}, "_ordinal must have the name _ordinal and the type long"),
        ("decoded", {"name": "Amount__c", "type": "decimal(9,2)"}, "which is not a type of event fields"),
        ("raw", {"name": "Amount__c", "type": "double"}, "is not a column of rows=raw"),
    ],
)
def test_impossible_user_schema_is_refused(rows: Any, column: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        event_columns(rows, [column])


def test_erased_events_are_left_out_without_an_error(tmp_path: Path) -> None:
    url = land_window(tmp_path, "20260110T000000Z-e", [order(1), LandedEvent(2, "one", b""), order(3)], {"one": ORDER})
    with pytest.raises(SchemaError, match="1 of 3 events"):
        Reader(url).table()
    path = Path(url.removeprefix("file://"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "erased": {"20260111T000000Z-e": 1}}))
    assert [row["Amount__c"] for row in rows_of(Reader(url).table())] == [0.25, 0.75]
    (quarantined,) = Reader(url, rows="quarantine").table().to_pylist()
    assert "erased" in quarantined["reason"]
