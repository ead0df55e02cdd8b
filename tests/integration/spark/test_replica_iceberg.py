"""Iceberg tables with Iceberg's own writer. Run by ``make test-iceberg``, in an environment of their own."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.engines.on_spark import SparkEngine
from airflow_provider_sfstream.spark.engines.spark_frames import SparkFrame
from airflow_provider_sfstream.spark.replica.iceberg import IcebergTable, check_session
from airflow_provider_sfstream.spark.replica.refresh import image_schema, refresh_merge
from airflow_provider_sfstream.spark.replica.refresh_document import TableRefresh
from airflow_provider_sfstream.spark.replica.sinks import Came, MergeSink, Rewritten
from airflow_provider_sfstream.spark.replica.snapshots import TableState
from airflow_provider_sfstream.spark.rows.merging import ChangesMerge, Deletes, Merge
from airflow_provider_sfstream.spark.rows.replica_merge import with_bucket
from airflow_provider_sfstream.spark.rows.replica_rows import BUCKET, TABLE_ENVELOPE
from airflow_provider_sfstream.spark.rows.routing import shaped
from airflow_provider_sfstream.spark.storage.column_registry import ColumnRegistry
from tests.support import replica_model
from tests.support.replica_changes import COLUMNS, START, change_batch, random_changes
from tests.support.replica_frames import change_frame, frame_of, rows_of, with_numbers
from tests.support.replica_model import Row
from tests.support.spark import start_session

jars = pytest.importorskip("snowpark_connect_deps_iceberg", reason="make test-iceberg has Iceberg's classes")

pytestmark = pytest.mark.extended

BUCKETS = 8
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
FIRST = {"Name": COLUMNS["Name"], "Place__c": {"struct": {"Latitude": "double"}}}
THEN = (
    FIRST | {name: type_ for name, type_ in COLUMNS.items() if not name.startswith("Number")} | {"Number0__c": "long"}
)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = {
        "spark.jars": str(jars.get_jar_path("iceberg-spark-runtime-3.5_2.12-1.10.2.jar")),
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path_factory.mktemp("warehouse")),
    }
    session = start_session(tmp_path_factory.mktemp("spark"), settings)
    yield session
    session.stop()


@dataclass
class Replica:
    """An Iceberg table, and the job's way to it."""

    spark: Any
    folder: Path
    prefix: str

    def __post_init__(self) -> None:
        self.table = IcebergTable.of(self.spark, "Account", self.prefix, BUCKETS)
        self.state = TableState("stream", "iceberg", buckets=BUCKETS, table_prefix=self.prefix)

    def refresh(self, images: list[Row], columns: dict, deletes: Deletes) -> Rewritten:
        """Merge all records of the org as they were fetched."""
        refresh = TableRefresh(
            "full", tuple(columns), (), len(images), "stream", 1_000, 1_001, "window", "2026-01-01T00:00:00+00:00"
        )
        schema = image_schema(refresh, columns)
        types = {"_found": "boolean", "_deleted": "boolean"} | TABLE_ENVELOPE | columns
        rows = frame_of(self.spark, self.folder, images, {name: types[name] for name in schema.names})
        merge = refresh_merge(columns, refresh, (), deletes=deletes, moved_on=True)
        return self._merge(Came(SparkFrame(rows), shaped(schema), schema, False, len(images)), merge, everything=True)

    def apply(self, changes: list[Row], columns: dict, deletes: Deletes = "soft") -> Rewritten:
        rows, schema = change_frame(self.spark, self.folder, changes, columns), change_batch([], columns).schema
        came = Came(SparkFrame(rows), shaped(schema), schema, True, len(changes))
        return self._merge(came, ChangesMerge(columns, deletes), everything=False)

    def _merge(self, came: Came, merge: Merge, *, everything: bool) -> Rewritten:
        state = replace(self.state, columns=ColumnRegistry(merge.columns))
        after, counts = MergeSink(SparkEngine(self.spark)).merge("Account", state, came, merge, everything=everything)
        assert after == state
        return counts


@pytest.fixture
def replica(spark: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Replica:
    return Replica(spark, tmp_path, f"lake.{re.sub(r'[^a-z_]', '_', request.node.name)}")


@pytest.fixture
def table(replica: Replica) -> IcebergTable:
    return replica.table


def stored(table: IcebergTable, columns: dict) -> dict[str, Row]:
    rows = rows_of(table.read(), [*TABLE_ENVELOPE, *columns])
    assert len({row["Id"] for row in rows}) == len(rows)
    return {row["Id"]: row for row in rows}


def expected(model: dict[str, Row], columns: dict) -> dict[str, Row]:
    return {row["Id"]: row for row in with_numbers(model.values(), [*TABLE_ENVELOPE, *columns])}


def files(table: IcebergTable) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for row in table.spark.sql(f"SELECT partition.Id_bucket AS part, file_path FROM {table.name}.files").collect():
        found.setdefault(row["part"], set()).add(row["file_path"])
    return found


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_windows_give_the_rows_of_the_model(replica: Replica, deletes: Deletes) -> None:
    shape, model = random.Random(5), {}
    records = [f"001{number:03d}" for number in range(30)]
    for first, columns in [(1, FIRST), (61, THEN), (121, THEN)]:
        changes = random_changes(shape, records, 60, columns, first)
        replica_model.apply_window(model, changes, columns, hard=deletes == "hard")
        counts = replica.apply(changes, columns, deletes)
        rows = stored(replica.table, columns)
        # What is known of a row stays there when its table gets columns.
        assert rows == expected(model, columns)
        changed = [rows[id_] for id_ in {change["Id"] for change in changes} & rows.keys()]
        assert counts.rows == len(changed)
        assert counts.dirty == sum(row["_dirty"] for row in changed)


def test_changes_that_come_again_with_new_ones_are_applied_once(replica: Replica) -> None:
    """As after a job that was killed when its merge was done and its snapshot not yet published."""
    changes = random_changes(random.Random(6), [f"001{number}" for number in range(6)], 60, FIRST)
    model: dict[str, Row] = {}
    for upto in (30, 30, 60):
        replica.apply(changes[:upto], FIRST)
        replica_model.apply_window(model, changes[:upto], FIRST)
        assert stored(replica.table, FIRST) == expected(model, FIRST)


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_a_full_refresh_reaches_the_rows_that_were_not_fetched(replica: Replica, deletes: Deletes) -> None:
    replica.apply(random_changes(random.Random(9), [f"001{number}" for number in range(9)], 60, FIRST), FIRST, deletes)
    images = [
        {"Id": record, "_found": True, "_deleted": False, "_refreshed_at": START, "Name": "fetched"}
        for record in ("0011", "new")
    ]
    before = stored(replica.table, FIRST)
    counts = replica.refresh(images, FIRST, deletes)
    after = stored(replica.table, FIRST)
    assert after.keys() == ({*before, "new"} if deletes == "soft" else {"0011", "new"})
    assert {id_: row["_deleted"] for id_, row in after.items()} == {id_: id_ not in ("0011", "new") for id_ in after}
    assert after["0011"]["Name"] == "fetched"
    assert counts.rows == len(after)


def test_only_the_parts_that_are_touched_are_written(replica: Replica, table: IcebergTable) -> None:
    records = [f"001{number:03d}" for number in range(40)]
    full = {"_operation": "full", "_set": frozenset(FIRST), "_commit_time": START}
    changes = [full | {"Id": record, "_sequence": number} for number, record in enumerate(records, 1)]
    replica.apply(changes, FIRST)
    before = files(table)
    assert len(before) == BUCKETS
    patch = {"_operation": "patch", "_set": frozenset(["Name"]), "Name": "new", "_commit_time": START}
    replica.apply([patch | {"Id": records[7], "_sequence": 100}], FIRST)
    after = files(table)
    assert sum(before[part] != after[part] for part in before) == 1
    assert stored(table, FIRST)[records[7]]["Name"] == "new"
    # The former row is read from the touched part alone.
    one = frame_of(table.spark, replica.folder, [{"Id": records[7]}], {"Id": "string"})
    assert 0 < table.read(table.parts_of(with_bucket(one, BUCKETS))).count() < len(records)


def test_a_table_of_others_is_left_alone(table: IcebergTable, spark: Any) -> None:
    namespace = table.name.rpartition(".")[0]
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    spark.sql(f"CREATE TABLE {table.name} (Id string) USING iceberg")
    with pytest.raises(ConfigurationError, match="was not made by this job"):
        table.prepare(FIRST)
    assert spark.table(table.name).columns == ["Id"]


def test_another_number_of_buckets_is_refused(table: IcebergTable) -> None:
    table.prepare(FIRST)
    with pytest.raises(ConfigurationError, match="has 8 buckets and not 4"):
        type(table)(table.spark, table.name, 4).prepare(FIRST)


def test_a_column_that_others_made_of_another_type_is_refused(table: IcebergTable, spark: Any) -> None:
    table.prepare(FIRST)
    spark.sql(f"ALTER TABLE {table.name} ADD COLUMNS (Number1__c string)")
    with pytest.raises(ConfigurationError, match=r"Number1__c .* is string, and the replica needs bigint"):
        table.prepare(FIRST | {"Tags__c": "string", "Number1__c": "long"})
    assert "Tags__c" not in spark.table(table.name).columns


def test_columns_that_others_added_keep_their_values(replica: Replica, table: IcebergTable, spark: Any) -> None:
    replica.apply(random_changes(random.Random(7), ["0010"], 1, FIRST), FIRST)
    spark.sql(f"ALTER TABLE {table.name} ADD COLUMNS (Remark string)")
    spark.sql(f"UPDATE {table.name} SET Remark = 'mine'")
    replica.apply(random_changes(random.Random(8), ["0010", "0011"], 20, FIRST, 2), FIRST)
    remarks = {row["Id"]: row["Remark"] for row in spark.table(table.name).collect()}
    assert remarks == {"0010": "mine", "0011": None}
    assert BUCKET not in spark.table(table.name).columns


def test_the_session_is_accepted(spark: Any) -> None:
    check_session(spark, "lake.salesforce")
    with pytest.raises(ConfigurationError, match=r"spark\.sql\.catalog\.other is not"):
        check_session(spark, "other.salesforce")
