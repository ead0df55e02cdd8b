"""Delta tables of a replica: every reader returns equal rows, for each snapshot and each history."""

from __future__ import annotations

import dataclasses
import operator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles
from airflow_provider_sfstream.tables.replica import job as replica_job
from airflow_provider_sfstream.tables.replica.delta_sink import HISTORY
from airflow_provider_sfstream.tables.replica.reader import read_history, read_replica, read_version
from airflow_provider_sfstream.tables.rows.history_batches import version_schema
from sfstream_localorg.records.fields import Field
from tests.integration.tables.test_session_settings import EVERY_TYPE, LONG_AGO, VALUES
from tests.support.change_lake import ChangeLake, change
from tests.support.guides import SNIPPETS

ONE, TWO, THREE, FOUR = (f"a0W00000000000{number}AAA" for number in (1, 2, 3, 4))
TABLE, PAST = "Widget__c", HISTORY.format("Widget__c")
WIDER = dataclasses.replace(
    EVERY_TYPE, fields=(*EVERY_TYPE.fields, Field("Note__c", "Text"), Field("Due__c", "DateTime"))
)
NOW = int(datetime(2026, 1, 10, 11, 12, 13, 456_000, tzinfo=UTC).timestamp() * 1000)
SNAPSHOTS = (1, 2, 3, 4)
Row = dict[str, Any]


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> ChangeLake:
    """Apply four windows: records with and without nulls, a change and a soft delete, new columns, a hard delete."""
    lake = ChangeLake(spark, tmp_path_factory.mktemp("readers"))
    lake.schemas |= {"Widget__c": EVERY_TYPE.schema(), "wider": WIDER.schema()}

    def event(number: int, type_: str, ids: list[str], **values: Any) -> Any:
        entity = WIDER if number >= 5 else EVERY_TYPE
        made = change(number, type_, ids, f"t{number}", entity=entity, **values)
        return dataclasses.replace(made, schema_id="wider" if number >= 5 else "Widget__c")

    place = {"Place__Latitude__s": 50.9, "Place__Longitude__s": -6.9}
    first = [event(1, "CREATE", [ONE, TWO], Name="Köln", **place, **VALUES), event(2, "CREATE", [THREE], Name="bare")]
    lake.run(lake.land(*first), history=True)
    lake.run(lake.land(event(3, "UPDATE", [ONE], Seen__c=NOW, Count__c=None, Name="new"), event(4, "DELETE", [TWO])))
    wide = {"Name": "wide", "Note__c": "n" * 100, "Due__c": LONG_AGO}
    third = [event(5, "UPDATE", [THREE], Note__c="noted", Amount__c=2.5), event(6, "CREATE", [FOUR], **wide)]
    lake.run(lake.land(*third))
    lake.record_deletes("hard")
    lake.run(lake.land(event(7, "DELETE", [FOUR]), event(8, "UPDATE", [ONE], Due__c=NOW)), deletes="hard")
    return lake


def plain(value: Any) -> Any:
    """Return a pandas value as a Python value."""
    if value is None or value is pd.NaT or (isinstance(value, float) and value != value):
        return None
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value


def by_arrow(path: str, version: int) -> list[Row]:
    return DeltaTable(path, version).to_pyarrow_table().to_pylist()


def by_pandas(path: str, version: int) -> list[Row]:
    frame = DeltaTable(path, version).to_pandas(types_mapper=pd.ArrowDtype)
    return [{name: plain(value) for name, value in row.items()} for row in frame.astype(object).to_dict("records")]


def by_polars(path: str, version: int) -> list[Row]:
    return pl.scan_delta(path, version=version).collect().to_dicts()


def by_duckdb(path: str, version: int) -> list[Row]:
    table = DeltaTable(path, version)
    dataset = table.to_pyarrow_dataset()  # noqa: F841 (duckdb finds it by its name)
    found = duckdb.sql("SELECT * FROM dataset").to_arrow_table()
    return found.cast(pa.schema(table.schema().to_arrow())).to_pylist()


READERS = (by_arrow, by_pandas, by_polars, by_duckdb)


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["Id"], row["_sequence"], row.get("_valid_from") or 0))


def named(lake: ChangeLake, number: int, table: str) -> tuple[str, int]:
    """Return path and version of a table as named by a snapshot."""
    store = replica_job.SnapshotStore(HadoopFiles(lake.spark), lake.output)
    state = store.read(number).tables[TABLE]
    return f"{lake.output}/{table}", state.version if table == TABLE else state.history or 0


def by_spark(lake: ChangeLake, number: int, table: str) -> list[Row]:
    if table == TABLE:
        rows = read_replica(lake.spark, lake.output, TABLE, snapshot=number)
    else:
        files = HadoopFiles(lake.spark)
        columns = replica_job.SnapshotStore(files, lake.output).read(number).tables[TABLE].columns
        rows = read_version(lake.spark, files, lake.output, PAST, named(lake, number, PAST)[1], version_schema(columns))
    return in_order(rows.toArrow().to_pylist())


@pytest.mark.parametrize("table", [TABLE, PAST])
@pytest.mark.parametrize("number", SNAPSHOTS)
def test_every_reader_sees_the_rows_of_a_snapshot(lake: ChangeLake, number: int, table: str) -> None:
    path, version = named(lake, number, table)
    if version < 0:
        return  # the history is empty, since no row version has ended yet
    expected = by_spark(lake, number, table)
    for reader in READERS:
        assert in_order(reader(path, version)) == expected, reader.__name__


def test_the_rows_of_each_snapshot_match_the_events(lake: ChangeLake) -> None:
    """Otherwise all readers could agree on wrong rows."""
    rows = {number: {row["Id"]: row for row in by_spark(lake, number, TABLE)} for number in SNAPSHOTS}
    assert [set(rows[number]) for number in SNAPSHOTS] == [
        {ONE, TWO, THREE},
        {ONE, TWO, THREE},
        {ONE, TWO, THREE, FOUR},
        {ONE, TWO, THREE},
    ]
    seen = datetime(1700, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC)
    assert [rows[number][ONE]["Seen__c"] for number in (1, 2)] == [seen, datetime.fromtimestamp(NOW / 1000, UTC)]
    assert [rows[number][ONE]["Count__c"] for number in (1, 2)] == [7, None]
    assert [rows[number][TWO]["_deleted"] for number in SNAPSHOTS] == [False, True, True, True]
    assert rows[1][ONE]["Place__Latitude__s"] == 50.9
    assert {rows[1][THREE][name] for name in ("Amount__c", "Seen__c", "Place__Latitude__s", "Active__c")} == {None}
    assert "Note__c" not in rows[2][ONE]
    assert [rows[3][id_]["Note__c"] for id_ in (ONE, THREE, FOUR)] == [None, "noted", "n" * 100]
    assert rows[4][ONE]["Due__c"] == datetime.fromtimestamp(NOW / 1000, UTC)
    ended = [(row["Id"], row["_sequence"]) for row in by_spark(lake, 4, PAST)]
    assert ended == [(ONE, 1), (ONE, 3), (TWO, 1), (THREE, 2), (FOUR, 6), (FOUR, 7)][: len(ended)]


MOMENT, SEEN = datetime.fromtimestamp(NOW / 1000, UTC), datetime(1700, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC)
COMPARED = {"=": operator.eq, ">=": operator.ge, "<": operator.lt}
FILTERS = [
    *(("Seen__c", "=", MOMENT), ("Seen__c", "=", SEEN), ("Seen__c", ">=", SEEN), ("Due__c", "<", MOMENT)),
    *(("Id", ">=", THREE), ("_sequence", "=", 3), ("Count__c", "=", 7), ("Note__c", "=", "n" * 100)),
    *(("Place__Latitude__s", "=", 50.9), ("Place__Longitude__s", "<", 0.0), ("Amount__c", "=", 2.5)),
    *(("Active__c", "=", True), ("_deleted", "=", True), ("_deleted", "=", False)),
]


@pytest.mark.parametrize("table", [TABLE, PAST])
def test_spark_applies_the_changes_between_snapshots(spark: Any, lake: ChangeLake, table: str) -> None:
    """Every type of a field, a column of a later schema, and a hard delete."""
    first, last = by_spark(lake, 2, table), by_spark(lake, 4, table)
    names = {"spark": spark, "stored": named(lake, 2, table)[1]}
    code = SNIPPETS["reference/changes-5"].replace("s3://lake/replica", lake.output)
    exec(code.replace('"Account"', repr(table)), names)
    changes, frame = names["changes"], names["frame"]
    assert in_order(frame.toArrow().to_pylist()) == in_order(pa.table(changes).to_pylist())
    copy = spark.createDataFrame(pa.Table.from_pylist(first, changes.schema)).join(
        frame, list(changes.key), "left_anti"
    )
    copy = copy.unionByName(frame.where("_change_type <> 'delete'")).drop("_change_type")
    assert in_order(copy.toArrow().to_pylist()) == last


@pytest.mark.parametrize("table", [TABLE, PAST])
def test_file_statistics_of_a_replica_hide_no_row_from_filters(lake: ChangeLake, table: str) -> None:
    path, version = named(lake, 4, table)
    rows = by_spark(lake, 4, table)
    dataset = DeltaTable(path, version).to_pyarrow_dataset()
    for column, how, value in FILTERS:
        compare = COMPARED[how]
        expected = [row for row in rows if row[column] is not None and compare(row[column], value)]
        of_duckdb = duckdb.connect().execute(f'SELECT * FROM dataset WHERE "{column}" {how} ?', [value])
        found = {
            "arrow": dataset.to_table(filter=compare(ds.field(column), pa.scalar(value))).to_pylist(),
            "polars": pl.scan_delta(path, version=version).filter(compare(pl.col(column), value)).collect().to_dicts(),
            "duckdb": [dict(zip(dataset.schema.names, row, strict=True)) for row in of_duckdb.fetchall()],
        }
        for reader, those in found.items():
            places = [(row["Id"], row["_sequence"]) for row in in_order(those)]
            assert places == [(row["Id"], row["_sequence"]) for row in expected], (reader, column, how, value)


def newest(lake: ChangeLake, table: str = TABLE) -> dict[str, Any]:
    return {row["Id"]: row["Name"] for row in DeltaTable(f"{lake.output}/{table}").to_pyarrow_table().to_pylist()}


def test_after_a_kill_each_table_has_all_or_none_of_the_changes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest version of a table has either all or none of the killed run's changes to that table."""
    lake = ChangeLake(spark, tmp_path)
    lake.run(lake.land(change(1, "CREATE", [ONE, TWO], "t1", Name="1")), history=True)
    second = lake.land(change(2, "UPDATE", [ONE, TWO], "t2", Name="2"), change(3, "CREATE", [THREE], "t3", Name="3"))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replica_job.SnapshotStore, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.run(second)
    assert lake.values("Name") == {ONE: "1", TWO: "1"}
    assert newest(lake) == {ONE: "2", TWO: "2", THREE: "3"}
    assert newest(lake, PAST) == {ONE: "1", TWO: "1"}
    assert by_arrow(*named(lake, 1, TABLE)) == by_spark(lake, 1, TABLE)
    third = lake.land(change(4, "UPDATE", [ONE], "t4", Name="4"))
    lake.run(third)
    assert newest(lake) == lake.values("Name") == {ONE: "4", TWO: "2", THREE: "3"}
    ended = in_order(DeltaTable(f"{lake.output}/{PAST}").to_pyarrow_table().to_pylist())
    assert [(row["Id"], row["Name"]) for row in ended] == [(ONE, "1"), (ONE, "2"), (TWO, "1")], (
        "each ended version is in the history once"
    )
    assert read_history(spark, lake.output, TABLE).count() == len(ended) + 3


def test_a_replica_job_that_loses_a_conflict_names_the_other_job(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = ChangeLake(spark, tmp_path)
    lake.run(lake.land(change(1, "CREATE", [ONE, TWO], "t1", Name="1")))
    mine = lake.land(change(2, "UPDATE", [ONE], "t2", Name="2"))
    more = lake.land(change(3, "UPDATE", [TWO], "t3", Name="3"))
    commit = DeltaTableLog.commit

    def commit_after_another_job(self: DeltaTableLog, *arguments: Any) -> int:
        monkeypatch.setattr(DeltaTableLog, "commit", commit)
        lake.run(mine, more, job="the winner")
        return commit(self, *arguments)

    monkeypatch.setattr(DeltaTableLog, "commit", commit_after_another_job)
    with pytest.raises(PositionConflictError, match="the winner"):
        lake.run(mine, job="the loser")
    rows = {ONE: "2", TWO: "3"}
    assert newest(lake) == lake.values("Name") == rows
    assert lake.snapshot().job == "the winner"
    assert lake.run(mine, more).windows == []
    assert newest(lake) == rows
