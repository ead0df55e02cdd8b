"""Spark source of landed windows, batch and streaming, compared row by row with the event log's tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.tables.test_event_log import ORDER, ORDER_2, order
from tests.support.event_log import DAY, Lake
from tests.support.guides import SNIPPETS
from tests.support.landing_files import LandedEvent

TOPIC = "/event/Order__e"
NUMBERS = "replay_id"


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def land(lake: Lake, number: int, events: list[LandedEvent], schema: dict[str, Any] = ORDER, **given: Any) -> str:
    """Land a window that follows the window ``number - 1`` by one day."""
    previous = name(number - 1) if number else None
    day = DAY + timedelta(days=number)
    (id_,) = {event.schema_id for event in events} or {"one"}
    span = {"event_times": (day, day + timedelta(hours=20)), "previous_window_id": previous}
    return lake.land(name(number), events, {str(id_): schema}, **span | given)


def name(number: int) -> str:
    return f"20260110T00000{number}Z-w"


def numbers(rows: list[Any], column: str = "_replay_id") -> list[int]:
    return sorted(int.from_bytes(row[column][:8], "big") for row in rows)


def reader(lake: Lake, *, stream: bool = False, **options: Any) -> Any:
    made = lake.spark.readStream if stream else lake.spark.read
    return made.format("sfstream").options(**{"topic": TOPIC, **options})


@pytest.fixture
def with_pushdown(spark: Any) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_source_is_registered_automatically_and_has_the_rows_of_the_event_log(lake: Lake) -> None:
    first = [order(number) for number in range(9)]
    later = [order(number, "two", Note__c="x" * number) for number in range(9, 12)]
    urls = [land(lake, 0, first, parts=3), land(lake, 1, later, ORDER_2)]
    lake.run(*urls)
    frame = reader(lake, manifests=",".join(urls), topic="").load()
    rows = sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: row["_replay_id"])
    expected = lake.rows()
    assert rows == [{column: row[column] for column in frame.columns} for row in expected]
    assert frame.rdd.getNumPartitions() == 4


def test_nested_fields_are_read_and_a_schema_argument_is_used(lake: Lake) -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "Code", "type": ["null", "string"]}]}
    more: list[dict[str, Any]] = [
        {"name": "Line__c", "type": ["null", line]},
        {"name": "Tags__c", "type": {"type": "array", "items": "string"}},
        {"name": "Rates__c", "type": {"type": "map", "values": "double"}},
    ]
    schema = {**ORDER, "fields": [*ORDER["fields"], *more]}
    values = [
        {"Line__c": {"Code": "a"}, "Tags__c": ["x", "y"], "Rates__c": {"EUR": 1.5}},
        {"Line__c": None, "Tags__c": [], "Rates__c": {}},
    ]
    url = land(lake, 0, [order(number, **each) for number, each in enumerate(values)], schema)
    source = reader(lake, manifests=url, topic="")
    rows = [row.asDict(recursive=True) for row in source.load().orderBy("_replay_id").collect()]
    assert [{name: row[name] for name in values[0]} for row in rows] == values
    given = source.schema("event_date date not null, Tags__c array<string>, Nobody__c long, window_id string").load()
    assert [tuple(row)[1:] for row in given.collect()] == [(["x", "y"], None, name(0)), ([], None, name(0))]


def test_the_newest_window_is_read_after_another_window_follows(lake: Lake) -> None:
    land(lake, 0, [order(0), order(1)])
    land(lake, 1, [order(2)])
    rows = reader(lake, rows="raw").load(str(lake.landing)).collect()
    assert numbers(rows, NUMBERS) == [0, 1]
    land(lake, 2, [order(3)])
    assert numbers(reader(lake, rows="raw").load(str(lake.landing)).collect(), NUMBERS) == [0, 1, 2]
    with pytest.raises(Exception, match="has no window of the subscription 'other' that is certainly committed"):
        reader(lake, rows="raw", subscription="other").load(str(lake.landing)).collect()


@pytest.mark.usefixtures("with_pushdown")
def test_windows_excluded_by_a_filter_are_not_opened(lake: Lake) -> None:
    """The source reads one more day on each side, since the times in the landing may be inexact."""
    urls = [land(lake, day, [order(3 * day + step) for step in range(2)]) for day in range(3)]
    next(Path(urls[2].removeprefix("file://")).parent.glob("*.parquet")).unlink()
    source = reader(lake, manifests=",".join(urls), topic="", pushdown=True)
    assert numbers(source.load().where("event_date = date '2026-01-10'").collect()) == [0, 1]
    assert numbers(source.load().where("_event_time < timestamp '2026-01-10T03:00:00Z'").collect()) == [0]
    assert numbers(source.load().where("_topic = '/event/Other__e'").collect()) == []
    for frame in (source.load(), source.load().where("event_date = date '2026-01-11'")):
        with pytest.raises(Exception, match="Files of windows are missing"):
            frame.collect()


def test_query_plans_contain_no_secret_of_the_storage(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    land(lake, 0, [order(0)])
    land(lake, 1, [order(1)])
    secret = "4f3e2d1c0b-of-the-storage"
    frame = reader(lake, rows="raw", **{"storage.auto_mkdir": "false", "storage.secret": secret})
    frame = frame.load(str(lake.landing))
    frame.explain("extended")
    assert secret not in capsys.readouterr().out
    assert secret not in repr(frame)


class Query:
    """Streaming query into a folder of Parquet files, started repeatedly with one checkpoint."""

    def __init__(self, lake: Lake, folder: Path, **options: Any) -> None:
        self._lake, self._options = lake, options
        self._checkpoint, self._output = str(folder / "checkpoint"), str(folder / "output")

    def run(self) -> int:
        """Read all available windows; return the number of batches."""
        frame = reader(self._lake, stream=True, **self._options).load(str(self._lake.landing))
        writer = frame.writeStream.format("parquet").option("checkpointLocation", self._checkpoint)
        query = writer.trigger(availableNow=True).start(self._output)
        query.awaitTermination()
        return sum(1 for each in query.recentProgress if each.numInputRows)

    def numbers(self) -> list[int]:
        return numbers(self._lake.spark.read.parquet(self._output).collect())


def test_a_restarted_query_continues_at_its_checkpoint(lake: Lake, tmp_path: Path) -> None:
    for day in range(5):
        land(lake, day, [order(9 * day + step) for step in range(3)])
    query = Query(lake, tmp_path, max_events=6)
    assert query.run() == 2
    assert query.numbers() == [0, 1, 2, 9, 10, 11, 18, 19, 20, 27, 28, 29]
    assert query.run() == 0
    land(lake, 5, [])
    land(lake, 6, [order(60)])
    query.run()
    assert query.numbers()[12:] == [36, 37, 38]


def test_a_query_fails_at_a_new_field_and_reads_it_after_a_restart(lake: Lake, tmp_path: Path) -> None:
    land(lake, 0, [order(0)])
    land(lake, 1, [order(9)])
    query = Query(lake, tmp_path)
    query.run()
    frame = reader(lake, stream=True).load(str(lake.landing))
    land(lake, 2, [order(18, "two", Note__c="new")], ORDER_2)
    land(lake, 3, [order(27)])
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    failed = writer.trigger(availableNow=True).start(str(tmp_path / "output"))
    with pytest.raises(Exception, match="have a field Note__c of type string"):
        failed.awaitTermination()
    query.run()
    rows = lake.spark.read.option("mergeSchema", True).parquet(str(tmp_path / "output")).collect()
    assert sorted((numbers([row])[0], row["Note__c"]) for row in rows) == [(0, None), (9, None), (18, "new")]


def test_the_documented_example_reads_a_landing(lake: Lake, tmp_path: Path) -> None:
    land(lake, 0, [order(0), order(1)])
    land(lake, 1, [order(9)])
    names: dict[str, Any] = {"spark": lake.spark}
    for number in (1, 2):
        code = SNIPPETS[f"reference/spark-source-{number}"]
        exec(code.replace("s3://lake/landing", str(lake.landing)).replace("s3://lake/", f"{tmp_path}/"), names)
    names["query"].awaitTermination()
    assert names["orders"].count() == 2
    assert numbers(lake.spark.read.parquet(f"{tmp_path}/orders").collect()) == [0, 1]
