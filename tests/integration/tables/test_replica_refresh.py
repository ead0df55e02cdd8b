"""Fetched records as a job reads them, and their types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.replica.refresh import image_schema, typed
from airflow_provider_sfstream.tables.replica.refresh_document import TableRefresh
from airflow_provider_sfstream.tables.rows.shuffle import packed, unpacked
from airflow_provider_sfstream.tables.runner.engine import Engine

COLUMNS: dict[str, ColumnType] = {"Name": "string", "Amount__c": "double", "Secret__c": "string"}
FULL = TableRefresh("full", ("Name", "Amount__c"), (), 0, "stream", 10, 13, "window-1", "2026-01-01T00:00:00+00:00")
REFRESHED = datetime(2026, 1, 2, tzinfo=UTC)
Row = dict[str, Any]


def fetched(record_id: str, **values: Any) -> Row:
    """Return the line of a record that exists in the org."""
    usual = {"_found": "true", "_deleted": "false", "_refreshed_at": "2026-01-02T00:00:00.000+0000"}
    return {"Id": record_id, **usual, "Name": "new", **values}


@pytest.fixture
def read(engine: Callable[[], Engine], tmp_path: Path) -> Callable[..., list[Row]]:
    def read(lines: Iterable[Row], refresh: TableRefresh, columns: dict[str, ColumnType]) -> list[Row]:
        (tmp_path / "part-00000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        schema, run = image_schema(refresh, columns), engine()
        texts = run.text_rows(run.files.url(tmp_path.as_uri()), ["part-00000.jsonl"], schema.names)
        packed_rows = texts.map_batches(typed(schema), schema).map_batches(_packed, PACKED).collect()
        return [row for each in packed_rows for row in unpacked(bytes(each["rows"])).to_pylist()]

    return read


PACKED = pa.schema([("rows", pa.binary())])


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack rows as Arrow bytes, which Spark does not convert on the way to the driver."""
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"rows": packed(batch).to_pybytes()}], schema=PACKED)


VALUES = {
    "Text__c": ("string", "two\nlines 💧", "two\nlines 💧"),
    "Flag__c": ("boolean", "true", True),
    "Number__c": ("double", "12345678.125", 12345678.125),
    "Large__c": ("double", "1.5E10", 1.5e10),
    "Int__c": ("int", "-7", -7),
    "Long__c": ("long", "9007199254740993", 9007199254740993),
    "Whole__c": ("int", "5.0", 5),
    "Time__c": ("long", "10:20:30.125Z", 37230125),
    "Moment__c": ("timestamp", "1970-01-31T10:00:00.000+0000", datetime(1970, 1, 31, 10, tzinfo=UTC)),
    "Bulk__c": ("timestamp", "2026-01-31T10:00:00.000Z", datetime(2026, 1, 31, 10, tzinfo=UTC)),
    "Old__c": ("timestamp", "1701-02-03T04:05:06.007+0000", datetime(1701, 2, 3, 4, 5, 6, 7000, tzinfo=UTC)),
    "Day__c": ("date", "4000-12-31", date(4000, 12, 31)),
    "First_day__c": ("date", "1700-01-01", date(1700, 1, 1)),
    "Moment_as_long__c": ("long", "1970-01-02T00:00:01.000+0000", 86_401_000),
    "Day_as_long__c": ("long", "1970-01-02", 86_400_000),
}


def test_fetched_texts_are_read_with_the_types_of_their_columns(read: Callable[..., list[Row]]) -> None:
    columns: dict[str, ColumnType] = {name: type_ for name, (type_, _, _) in VALUES.items()}
    lines = [fetched("A", **{name: text for name, (_, text, _) in VALUES.items()}), fetched("B")]
    given = replace(FULL, columns=tuple(VALUES))
    found = {row["Id"]: row for row in read(lines, given, columns)}
    assert {name: found["A"][name] for name in VALUES} == {name: value for name, (_, _, value) in VALUES.items()}
    assert all(found["B"][name] is None for name in VALUES)
    assert (found["A"]["_found"], found["A"]["_deleted"], found["A"]["_refreshed_at"]) == (True, False, REFRESHED)


@pytest.mark.parametrize(("type_", "text"), [("double", "a lot"), ("date", "soon"), ("timestamp", "now"), ("int", "x")])
def test_a_fetched_text_of_another_type_is_an_error_that_hides_the_value(
    read: Callable[..., list[Row]], type_: str, text: str
) -> None:
    with pytest.raises(Exception, match="A fetched value of the column Value__c cannot be converted") as caught:
        read([fetched("A", Value__c=text)], replace(FULL, columns=("Value__c",)), {"Value__c": type_})
    assert f"'{text}'" not in str(caught.value), "the error must not contain the value, which may be personal data"


def test_a_refresh_without_files_has_no_records(engine: Callable[[], Engine]) -> None:
    assert engine().text_rows("file:///nowhere", [], ["Id"]).collect() == []
