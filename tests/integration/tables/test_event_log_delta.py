"""Guarantees of the event log's Delta tables beyond rows: conflicts, killed jobs and compactions."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from deltalake.table import TableFeatures

from airflow_provider_sfstream.exceptions import ConfigurationError, PositionConflictError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.table_files import window_of
from airflow_provider_sfstream.tables.event_log import delta_tables
from airflow_provider_sfstream.tables.event_log.reader import read_event_log
from tests.integration.tables.test_event_log import ORDER, ORDER_2, ORDER_3, milliseconds, order
from tests.support.engines import BOTH_IN_TURN
from tests.support.event_log import Lake
from tests.support.killed import Killed, killed_at
from tests.support.landing_files import LandedEvent

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "City", "type": ["null", "string"]}]}
WIDE = {
    "type": "record",
    "name": "Order__e",
    "fields": [*ORDER["fields"], {"name": "Address__c", "type": ["null", ADDRESS], "default": None}],
}
WIDER_ADDRESS = {**ADDRESS, "fields": [*ADDRESS["fields"], {"name": "Zip", "type": ["null", "string"]}]}
WIDER = {
    "type": "record",
    "name": "Order__e",
    "fields": [*ORDER_2["fields"], {"name": "Address__c", "type": ["null", WIDER_ADDRESS], "default": None}],
}


@pytest.fixture
def lake(spark: Any, tmp_path: Path, engine: Any) -> Lake:
    return Lake(spark, tmp_path, engine)


def numbers(lake: Lake) -> list[int]:
    return [int.from_bytes(row["_replay_id"][:8], "big") for row in lake.rows()]


def delta_table(lake: Lake, table: str = "Order__e") -> DeltaTable:
    return DeltaTable(str(lake.output / table))


def test_every_reader_sees_equal_rows(lake: Lake, spark: Any) -> None:
    """The rows have nulls, times, dates, doubles, structs and columns that were added later."""
    due = milliseconds(datetime(1969, 12, 1, tzinfo=UTC))
    first = [order(n, Due__c=due if n % 2 else None, Address__c={"City": "Köln"} if n else None) for n in range(6)]
    later = [order(n, "two", Note__c="x" * n, Address__c={"City": None, "Zip": str(n)}) for n in range(6, 9)]
    lake.run(lake.land("w1", first, {"one": WIDE}))
    lake.run(lake.land("w2", later, {"two": WIDER}))

    table = delta_table(lake)
    arrow = table.to_pyarrow_table().sort_by("_ordinal").sort_by("window_id")
    expected = sorted(arrow.to_pylist(), key=lambda row: row["_replay_id"])
    assert [row["Address__c"] for row in expected[:2]] == [None, {"City": "Köln", "Zip": None}]
    assert [row["Note__c"] for row in expected] == [None] * 6 + ["x" * n for n in range(6, 9)]
    assert {row["Due__c"] for row in expected} == {None, date(1969, 12, 1)}
    assert {row["event_date"] for row in expected} == {date(2026, 1, day) for day in (10, 11, 12)}

    by_polars = pl.scan_delta(str(lake.output / "Order__e")).sort("_replay_id").collect()
    dataset = table.to_pyarrow_dataset()  # noqa: F841 (duckdb finds it by its name)
    by_duckdb = duckdb.sql("SELECT * FROM dataset ORDER BY _replay_id").to_arrow_table()
    by_pandas = table.to_pandas().sort_values("_replay_id")
    by_spark = read_event_log(spark, lake.output.as_uri(), "Order__e").toArrow().sort_by("_replay_id")
    names = arrow.column_names
    assert by_spark.column_names == names
    assert by_spark.to_pylist() == expected
    assert by_polars.select(names).to_dicts() == expected
    assert by_duckdb.select(names).cast(arrow.schema).to_pylist() == expected
    assert list(by_pandas["Amount__c"]) == [row["Amount__c"] for row in expected]
    assert [moment.to_pydatetime() for moment in by_pandas["_event_time"]] == [row["_event_time"] for row in expected]


@pytest.mark.parametrize("vectorized", [True, False])
def test_spark_reads_the_oldest_dates_of_salesforce_with_the_default_of_spark_3(
    lake: Lake, spark: Any, vectorized: bool
) -> None:
    settings = {
        "spark.sql.parquet.datetimeRebaseModeInRead": "EXCEPTION",
        "spark.sql.parquet.enableVectorizedReader": str(vectorized).lower(),
    }
    oldest = datetime(1700, 1, 1, tzinfo=UTC)
    lake.run(lake.land("w1", [order(1, Due__c=milliseconds(oldest), CreatedDate=milliseconds(oldest))], {"one": WIDE}))
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        (row,) = (
            read_event_log(spark, lake.output.as_uri(), "Order__e")
            .select("Due__c", "CreatedDate")
            .toArrow()
            .to_pylist()
        )
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert row == {"Due__c": oldest.date(), "CreatedDate": oldest}


def test_an_older_version_is_read_and_a_missing_version_is_an_error(lake: Lake, spark: Any) -> None:
    lake.run(lake.land("w1", [order(1)], {"one": ORDER}))
    lake.run(lake.land("w2", [order(2, "two", Note__c="x")], {"two": ORDER_2}))
    old = read_event_log(spark, lake.output.as_uri(), "Order__e", version=0)
    assert (old.count(), "Note__c" in old.columns) == (1, False)
    with pytest.raises(ConfigurationError, match="no version 99"):
        read_event_log(spark, lake.output.as_uri(), "Order__e", version=99)
    with pytest.raises(ConfigurationError, match="no Delta table Other__e"):
        read_event_log(spark, lake.output.as_uri(), "Other__e")


def test_a_table_without_rows_has_its_columns(lake: Lake, spark: Any) -> None:
    lake.run(lake.land("w1", [order(1)], {"one": ORDER}))
    delta_table(lake).delete()
    rows = read_event_log(spark, lake.output.as_uri(), "Order__e")
    assert (rows.count(), "Amount__c" in rows.columns) == (0, True)


@BOTH_IN_TURN
def test_a_repeated_window_replaces_its_files_in_one_commit(lake: Lake) -> None:
    manifest = lake.land("w1", [order(n) for n in range(9)], {"one": ORDER})
    application = lake.run(manifest).application_id
    before, rows = lake.files(), lake.rows()
    assert {window_of(path) for path in before} == {"w1"}
    assert {path.split("/")[0] for path in before} == {f"event_date=2026-01-{day}" for day in (10, 11, 12)}
    lake.run(manifest, job="orders.event_log run two try 1")
    assert lake.rows() == rows
    assert not before & lake.files()
    history = delta_table(lake).history()
    assert [entry["version"] for entry in history] == [1, 0]
    assert history[0]["sfstream"]["job"] == "orders.event_log run two try 1"
    assert history[1]["sfstream"]["job"] == application, "the application ID is the default of the job name"


def test_a_repeated_window_keeps_its_rows_in_compacted_files(lake: Lake) -> None:
    one = lake.land("w1", [order(n) for n in range(12)], {"one": ORDER})
    two = lake.land("w2", [order(n) for n in range(10, 20)], {"one": ORDER})
    lake.run(one)
    lake.run(two)
    rows = lake.rows()
    table = delta_table(lake)
    table.optimize.compact()
    assert {window_of(path) for path in lake.files()} == {None}
    again = lake.run(one, two)
    assert (again.rows_written, again.duplicates) == (0, 22)
    assert lake.rows() == rows
    third = lake.run(lake.land("w3", [order(n) for n in range(15, 25)], {"one": ORDER}))
    assert (third.rows_written, third.duplicates) == (5, 5)
    assert numbers(lake) == list(range(25))


def test_rows_leave_a_compacted_quarantine(lake: Lake) -> None:
    one, two = (lake.land(f"w{n}", [order(n, f"s{n}"), order(n + 9)], {f"s{n}": ORDER, "one": ORDER}) for n in (1, 2))
    hidden = {name: next(lake.landing.rglob(f"{name}.avsc")) for name in ("s1", "s2")}
    texts = {name: path.read_text() for name, path in hidden.items()}
    for path in hidden.values():
        path.unlink()
    assert lake.run(one).quarantined == lake.run(two).quarantined == 1
    delta_table(lake, "_quarantine").optimize.compact()
    assert {window_of(path) for path in lake.files("_quarantine")} == {None}
    hidden["s1"].write_text(texts["s1"])
    again = lake.run(one)
    assert (again.rows_written, again.quarantined) == (2, 0)
    assert [(row["window_id"], row["schema_id"]) for row in lake.rows("_quarantine")] == [("w2", "s2")]
    assert {window_of(path) for path in lake.files("_quarantine")} == {"w2"}


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function whose argument is called once, after a run has written its files and before its commit."""

    def do(what: Any) -> None:
        commit, waiting = DeltaTableLog.commit, [what]

        def commit_after_another_job(self: DeltaTableLog, *arguments: Any) -> int:
            while waiting:
                waiting.pop()()
            return commit(self, *arguments)

        monkeypatch.setattr(DeltaTableLog, "commit", commit_after_another_job)

    return do


@BOTH_IN_TURN
def test_a_job_that_loses_a_conflict_of_one_stream_names_the_other_job(lake: Lake, before_commit: Any) -> None:
    one = lake.land("w1", [order(n) for n in range(5)], {"one": ORDER})
    two = lake.land("w2", [order(n) for n in range(3, 8)], {"one": ORDER})
    lake.run(lake.land("w0", [order(9)], {"one": ORDER}))
    before_commit(lambda: lake.run(two, job="live.event_log run 7 try 1"))
    with pytest.raises(PositionConflictError, match=r"version 1, live\.event_log run 7 try 1") as caught:
        lake.run(one, job="backfill.event_log run 1 try 1")
    assert caught.value.retriable
    assert numbers(lake) == [*range(3, 8), 9], "no row of the failed job is in the table"
    metrics = lake.run(one)
    assert (metrics.rows_written, metrics.duplicates) == (3, 2)
    assert numbers(lake) == [*range(8), 9]


@BOTH_IN_TURN
def test_one_of_two_jobs_that_create_a_table_commits(lake: Lake, before_commit: Any) -> None:
    one = lake.land("w1", [order(n) for n in range(5)], {"one": ORDER})
    two = lake.land("w2", [order(n) for n in range(3, 8)], {"one": ORDER})
    before_commit(lambda: lake.run(two, job="the winner"))
    with pytest.raises(PositionConflictError, match="version 0, the winner"):
        lake.run(one)
    assert lake.run(one).duplicates == 2


def test_concurrent_jobs_of_different_streams_write_to_one_table(lake: Lake, before_commit: Any) -> None:
    first = lake.land("w0", [order(9)], {"one": ORDER})
    one = lake.land("w1", [order(n) for n in range(5)], {"one": ORDER})
    two = lake.land(
        "w2", [order(n, "three", Amount__c="1 EUR") for n in range(5)], {"three": ORDER_3}, topic="/event/O__chn"
    )
    lake.run(first)
    before_commit(lambda: lake.run(two))
    assert lake.run(one).rows_written == 5
    assert [row["_topic"] for row in lake.rows()].count("/event/O__chn") == 5
    assert len(lake.rows()) == 11
    assert lake.columns()["Amount__c__string"] == "string"


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_job_leaves_the_old_or_the_new_version(lake: Lake, after: bool) -> None:
    lake.run(lake.land("w1", [order(n) for n in range(3)], {"one": ORDER}))
    manifest = lake.land("w2", [order(n) for n in range(3, 6)] + [LandedEvent(99, "one", b"\xff")], {"one": ORDER})
    before = lake.rows()
    commits = [(delta_tables.DeltaTableLog, "commit")]
    with pytest.raises(Killed), killed_at(commits, 1, after=after):
        lake.run(manifest)
    assert len(list((lake.output / "Order__e").rglob("*.parquet"))) == 2, "the files are written before the commit"
    assert (numbers(lake) == list(range(6))) if after else (lake.rows() == before)
    lake.run(manifest)
    assert numbers(lake) == list(range(6))
    assert len(lake.rows("_quarantine")) == 1


def test_files_of_a_killed_first_run_are_not_part_of_the_table(lake: Lake) -> None:
    manifest = lake.land("w1", [order(1)], {"one": ORDER})
    with pytest.raises(Killed), killed_at([(DeltaTableLog, "commit")], 1, after=False):
        lake.run(manifest)
    assert list(lake.output.rglob("*.parquet"))
    lake.run(manifest)
    assert numbers(lake) == [1]
    assert len(list((lake.output / "Order__e").rglob("*.parquet"))) == 2, (
        "the job does not delete the file, which may belong to a job that has not committed yet"
    )
    delta_table(lake).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len(list((lake.output / "Order__e").rglob("*.parquet"))) == 1


def test_tables_with_deletion_vectors_are_refused(lake: Lake, spark: Any) -> None:
    manifest = lake.land("w1", [order(1)], {"one": ORDER})
    lake.run(manifest)
    table = delta_table(lake)
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    for refused in (lambda: lake.run(manifest), lambda: read_event_log(spark, lake.output.as_uri(), "Order__e")):
        with pytest.raises(ConfigurationError, match="cannot read: deletionVectors"):
            refused()
