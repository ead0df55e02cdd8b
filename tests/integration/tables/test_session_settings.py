"""Session settings of a cluster: they change no row of any job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field
from tests.integration.tables.test_event_log import ORDER, order
from tests.support.change_lake import START, ChangeLake, change
from tests.support.event_log import Lake
from tests.support.spark import HOSTILE, session_with

EVERY_TYPE = Entity(
    "Widget__c",
    "a0W",
    (
        *(Field("Name", "Text"), Field("Amount__c", "Double"), Field("Place__c", "Location")),
        *(Field("Seen__c", "DateTime"), Field("Opens__c", "TimeOnly"), Field("Born__c", "DateOnly")),
        *(Field("Count__c", "Integer"), Field("Active__c", "Boolean"), Field("name__c", "Text")),
    ),
)
ONE, TWO, THREE = (f"a0W00000000000{number}AAA" for number in (1, 2, 3))
LONG_AGO = int(datetime(1700, 1, 1, tzinfo=UTC).timestamp() * 1000)
VALUES = {"Seen__c": LONG_AGO + 1, "Opens__c": 36_000_125, "Born__c": LONG_AGO, "Count__c": 7, "Active__c": True}
FETCHED = {
    "Name": "fetched",
    "Amount__c": "1.50",
    "Seen__c": "1700-01-01T00:00:00.002Z",
    "Opens__c": "10:00:00.125Z",
    "Born__c": "1700-01-01",
    "Count__c": "8",
    "Active__c": "false",
    "name__c": "other",
    "_refreshed_at": "2026-01-10T00:00:02.500+0000",
}


@pytest.fixture
def session(spark: Any) -> Callable[[], Any]:
    """Return a function that creates a session. Each job needs its own, since a job changes session settings."""
    return lambda: session_with(spark, HOSTILE)


def rows_of(files: list[Path]) -> list[dict[str, Any]]:
    """Return rows as read by a reader other than Spark."""
    tables = [pq.read_table(file, partitioning=None) for file in sorted(files)]
    return pa.concat_tables(tables, promote_options="default").to_pylist()


def test_session_settings_change_no_row_of_a_replica(session: Callable[[], Any], tmp_path: Path) -> None:
    lake = ChangeLake(session(), tmp_path)
    lake.schemas["Widget__c"] = EVERY_TYPE.schema()
    made = {"entity": EVERY_TYPE, "Name": "one", "name__c": "two", **VALUES}
    lake.run(lake.land(change(1, "CREATE", [ONE, TWO, THREE], "t1", **made)), history=True)
    lake.spark = session()
    lake.refresh(*({"Id": id_, **FETCHED} for id_ in (ONE, TWO)), {"Id": THREE, **FETCHED, "_deleted": "true"})
    later = [
        change(3, "UPDATE", [ONE], "t2", entity=EVERY_TYPE, committed=2, Name="older than what was fetched"),
        change(4, "UPDATE", [TWO], "t3", entity=EVERY_TYPE, Seen__c=LONG_AGO + 3, Amount__c=None),
        change(5, "GAP_UPDATE", [ONE], "t4", entity=EVERY_TYPE),
    ]
    lake.spark = session()
    lake.run(lake.land(*later), history=True)
    rows = {
        row["Id"]: row for row in rows_of([Path(lake.output, "Widget__c", name) for name in lake.log().version().files])
    }
    moment = datetime(1700, 1, 1, tzinfo=UTC)
    usual = {"Opens__c": 36_000_125, "Born__c": moment.date(), "Count__c": 8, "Active__c": False, "name__c": "other"}
    for row in rows.values():
        assert {name: row[name] for name in usual} == usual
    assert {id_: row["Seen__c"].microsecond for id_, row in rows.items()} == {ONE: 2_000, TWO: 3_000, THREE: 2_000}
    assert {id_: row["Seen__c"].replace(microsecond=0) for id_, row in rows.items()} == dict.fromkeys(rows, moment)
    assert {id_: row["Amount__c"] for id_, row in rows.items()} == {ONE: 1.5, TWO: None, THREE: 1.5}
    assert {id_: row["Name"] for id_, row in rows.items()} == dict.fromkeys(rows, "fetched")
    assert {id_: row["_refreshed_at"].timestamp() - START.timestamp() for id_, row in rows.items()} == dict.fromkeys(
        rows, 2.5
    )
    assert {id_: (row["_dirty"], row["_deleted"]) for id_, row in rows.items()} == {
        ONE: (True, False),
        TWO: (False, False),
        THREE: (False, True),
    }
    assert [bytes(rows[id_]["_replay_id"])[7] for id_ in (ONE, TWO, THREE)] == [5, 4, 1]
    past = "Widget__c__history"
    history = rows_of([Path(lake.output, past, name) for name in lake.log(past).version().files])
    assert sorted((row["Id"], row["_operation"], row["Seen__c"].microsecond) for row in history) == [
        (ONE, "refresh", 2_000),
        (ONE, "upsert", 1_000),
        (TWO, "refresh", 2_000),
        (TWO, "upsert", 1_000),
        (THREE, "upsert", 1_000),
    ]
    listed = Path(lake.output, lake.snapshot().tables["Widget__c"].dirty_list or "nothing is dirty")
    assert [json.loads(line) for path in listed.glob("*.json") for line in path.read_text().splitlines()] == [
        {"Id": ONE, "sequence": 4}
    ]


def test_session_settings_change_no_row_of_an_event_log(session: Callable[[], Any], tmp_path: Path) -> None:
    lake = Lake(session(), tmp_path)
    events = [order(n, CreatedDate=LONG_AGO + n, Due__c=LONG_AGO) if n % 2 else order(n) for n in range(12)]
    first, second = (lake.land(name, events, {"one": ORDER}) for name in ("20260110T000000Z-a", "20260110T000100Z-b"))
    assert lake.run(first).rows_written == 12
    lake.spark = session()
    metrics = lake.run(first, second)
    assert (metrics.rows_written, metrics.duplicates) == (12, 12)
    rows = rows_of([lake.output / "Order__e" / path for path in lake.files()])
    assert [bytes(row["_replay_id"]) for row in sorted(rows, key=lambda row: row["_ordinal"])] == [
        event.replay_id for event in events
    ]
    old = [row for row in rows if row["_ordinal"] % 2]
    assert {row["Due__c"] for row in old} == {datetime(1700, 1, 1, tzinfo=UTC).date()}
    assert {row["CreatedDate"] for row in old} == {
        datetime(1700, 1, 1, microsecond=n * 1_000, tzinfo=UTC) for n in range(1, 12, 2)
    }


@pytest.mark.extended
def test_a_broken_or_missing_table_file_is_an_error_in_spite_of_session_settings(
    session: Callable[[], Any], tmp_path: Path
) -> None:
    lake = ChangeLake(session(), tmp_path)
    lake.run(lake.land(change(1, "CREATE", [ONE, TWO], "t1", Name="one")))
    before = lake.snapshot()
    (name,) = lake.log().version().files
    second = lake.land(change(2, "UPDATE", [ONE], "t2", Name="two"))
    Path(lake.output, "Widget__c", name).write_bytes(b"broken")
    lake.spark = session()
    with pytest.raises(Exception, match=r"(?i)parquet|magic"):
        lake.run(second)
    Path(lake.output, "Widget__c", name).unlink()
    lake.spark = session()
    with pytest.raises(Exception, match=r"(?i)not exist|PATH_NOT_FOUND|No such file"):
        lake.run(second)
    assert lake.snapshot() == before


@pytest.mark.parametrize(("given", "used"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")])
def test_workers_use_the_system_memory_pool_unless_the_session_sets_another(
    session: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, given: dict[str, str], used: str
) -> None:
    spark = session()
    monkeypatch.setattr(spark.sparkContext, "environment", dict(given))
    SparkEngine(spark)

    def pools(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"pool": pa.default_memory_pool().backend_name}])

    assert spark.range(1).mapInArrow(pools, "pool string").first()["pool"] == used
