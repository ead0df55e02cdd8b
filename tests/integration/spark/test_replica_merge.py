from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.spark.decode.arrow_columns import arrow_type
from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.replica.files import ReplicaFiles, Rewritten, rewrite_buckets
from airflow_provider_sfstream.spark.rows.replica_merge import (
    SETTINGS,
    Deletes,
    folded_changes,
    joined,
    merged_columns,
    with_bucket,
    with_seen,
)
from airflow_provider_sfstream.spark.rows.replica_rows import BUCKET, TABLE_ENVELOPE
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles
from tests.support.replica_changes import COLUMNS, START, change_batch, random_changes
from tests.support.replica_model import Row, apply_window

BUCKETS = 4
RECORDS = [f"001{number:04d}" for number in range(60)]
OTHER_SEEDS = [(1, "soft"), (3, "soft")]
FIRST_COLUMNS = dict(list(COLUMNS.items())[:10])


@pytest.fixture(autouse=True)
def configured(spark: Any) -> Any:
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)


def table_frame(spark: Any, rows: Sequence[Row], columns: dict[str, ColumnType]) -> Any:
    schema = pa.schema([(name, arrow_type(type_)) for name, type_ in (TABLE_ENVELOPE | columns).items()])
    return with_bucket(spark.createDataFrame(pa.Table.from_pylist(list(rows), schema)), BUCKETS)


def rows_of(frame: Any) -> dict[str, Row]:
    rows = frame.drop(BUCKET).toArrow().to_pylist()
    found = {row["Id"]: row for row in rows}
    assert len(found) == len(rows), "a record has several rows"
    return found


@dataclass
class Replica:
    """One table, as a job would keep it."""

    spark: Any
    folder: Path
    deletes: Deletes = "soft"
    columns: dict[str, ColumnType] = field(default_factory=lambda: dict(FIRST_COLUMNS))
    live: dict[int, list[str]] = field(default_factory=dict)
    runs: int = 0

    def __post_init__(self) -> None:
        self.files = ReplicaFiles(self.spark, HadoopFiles(self.spark), self.folder.as_uri())

    def run(self, changes: Sequence[Row], parts: int = 1) -> Rewritten:
        batch = pa.Table.from_batches([change_batch(changes, self.columns)])
        return self.rewrite(self.spark.createDataFrame(batch).repartition(parts))

    def rewrite(self, changes: Any) -> Rewritten:
        self.runs += 1
        folded = folded_changes(changes, self.columns, 3, BUCKETS).persist()
        merge = merged_columns(self.columns, deletes=self.deletes)
        done = rewrite_buckets(self.files, "Account", self.live, self.columns, folded, merge, f"run{self.runs}")
        folded.unpersist()
        self.live = done.files
        return done

    def rows(self) -> dict[str, Row]:
        return rows_of(self.files.read("Account", self.live, self.columns))


@pytest.mark.parametrize(
    ("seed", "deletes"), [(2, "hard"), *(pytest.param(*other, marks=pytest.mark.extended) for other in OTHER_SEEDS)]
)
def test_random_windows_give_what_the_model_gives(spark: Any, tmp_path: Path, seed: int, deletes: Deletes) -> None:
    shape = random.Random(seed)
    replica, model, sequence = Replica(spark, tmp_path, deletes), {}, 1
    for window in range(4):
        if window == 2:
            replica.columns = COLUMNS
        some = shape.sample(RECORDS, shape.choice((3, len(RECORDS))))
        changes = random_changes(shape, some, shape.randrange(1, 200), replica.columns, sequence)
        sequence += len(changes)
        replica.run(changes, shape.randrange(1, 4))
        apply_window(model, changes, replica.columns, hard=deletes == "hard")
        assert replica.rows() == model
    replica.run(changes)
    assert replica.rows() == model, "running the last window again changed rows"


@pytest.mark.usefixtures("compiled")
def test_every_state_of_a_row_meets_every_change(spark: Any) -> None:
    """Rows that are dirty, deleted, fetched, ahead, behind and missing, as records that share one window."""
    shape = random.Random(7)
    records = [f"001{number:05d}" for number in range(3_000)]
    changes = random_changes(shape, records, 6_000, COLUMNS, first_sequence=1_000, disorder=600)
    model: dict[str, Row] = {}
    apply_window(model, random_changes(shape, records, 6_000, COLUMNS), COLUMNS)
    for row in model.values():
        row["_sequence"] = shape.choice((None, 0, 999, 3_000, 9_000))
        row["_refreshed_at"] = shape.choice((None, START, START + timedelta(seconds=shape.randrange(7_000))))
        if shape.random() < 0.5:
            row |= {"_dirty": False, "_dirty_since": None, "_dirty_reason": None}
    arrow = pa.Table.from_batches([change_batch(changes, COLUMNS)])
    rows = table_frame(spark, list(model.values()), COLUMNS)
    marked = with_seen(spark.createDataFrame(arrow), rows.select("Id", "_refreshed_at"))
    folded = folded_changes(marked, COLUMNS, 2, BUCKETS)
    pairs = joined(rows, folded, 2).persist()
    kept = pairs.select(*merged_columns(COLUMNS, deletes="soft")).where("not _dropped").drop("_dropped")
    without = pairs.select(*merged_columns(COLUMNS, deletes="hard")).where("not _dropped").drop("_dropped")
    soft, hard = {key: dict(row) for key, row in model.items()}, {key: dict(row) for key, row in model.items()}
    apply_window(soft, changes, COLUMNS)
    apply_window(hard, changes, COLUMNS, hard=True)
    assert rows_of(kept) == soft
    assert rows_of(without) == hard
    assert len(hard) < len(soft)
    pairs.unpersist()


@pytest.mark.usefixtures("compiled")
def test_buckets_without_changes_keep_their_files(spark: Any, tmp_path: Path) -> None:
    shape, replica = random.Random(11), Replica(spark, tmp_path)
    replica.run(random_changes(shape, RECORDS, 200, replica.columns), parts=3)
    before = replica.live
    assert sorted(before) == list(range(BUCKETS))
    assert all(len(names) == 1 for names in before.values()), "one task and one file for each bucket"
    done = replica.run(random_changes(shape, RECORDS[:1], 5, replica.columns, 1_000))
    (changed,) = {bucket for bucket in before if before[bucket] != replica.live[bucket]}
    rows = replica.files.read("Account", {changed: replica.live[changed]}, replica.columns)
    states = rows.select("_dirty", "_deleted").collect()
    assert {row[0] for row in rows.select(BUCKET).distinct().collect()} == {changed}
    assert (done.rows, done.dirty) == (len(states), sum(state["_dirty"] for state in states))
    assert done.deleted == sum(state["_deleted"] for state in states)


def test_only_files_of_no_snapshot_are_removed(spark: Any, tmp_path: Path) -> None:
    shape, replica = random.Random(12), Replica(spark, tmp_path)
    replica.run(random_changes(shape, RECORDS, 200, replica.columns))
    replica.run(random_changes(shape, RECORDS[:1], 5, replica.columns, 1_000))
    replica.run(random_changes(shape, RECORDS[:1], 5, replica.columns, 2_000))
    rows, live = replica.rows(), {name for names in replica.live.values() for name in names}
    replica.files.remove_unreferenced("Account", live)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")} == live
    assert sorted(path.name for path in (tmp_path / "Account" / "_files").iterdir()) == ["run1", "run3"]
    assert replica.rows() == rows
    replica.files.remove_unreferenced("Account", set())
    assert not list((tmp_path / "Account" / "_files").iterdir())


def test_a_table_without_files_is_empty_and_no_changes_change_nothing(spark: Any, tmp_path: Path) -> None:
    replica = Replica(spark, tmp_path)
    assert replica.rows() == {}
    assert replica.run([]) == Rewritten({}, 0, 0, 0)
    assert not list(tmp_path.iterdir())


def test_a_record_with_very_many_changes_is_folded_among_others(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    replica, many = Replica(spark, tmp_path, columns={"Name": "string", "Number__c": "long"}), 60_000
    hot = spark.range(1, many + 1, numPartitions=4).select(
        f.when(f.col("id") % 1_000 == 0, f.format_string("001%06d", "id")).otherwise("001hot").alias("Id"),
        f.col("id").alias("_sequence"),
        f.when(f.col("id") < 1_001, "full").otherwise("patch").alias("_operation"),
        f.lit(None).cast("string").alias("_dirty_reason"),
        f.array(f.col("id") % 2 + 1).alias("_set"),
        f.lit(b"\0").alias("_replay_id"),
        f.timestamp_seconds("id").alias("_commit_time"),
        f.lit("t").alias("_transaction_key"),
        f.col("id").cast("string").alias("Name"),
        f.col("id").alias("Number__c"),
    )
    replica.rewrite(hot)
    rows = replica.rows()
    assert len(rows) == 1 + many // 1_000
    # Even sequences set the first column, odd ones the second.
    assert (rows["001hot"]["Name"], rows["001hot"]["Number__c"]) == (str(many - 2), many - 1)
    assert (rows["001hot"]["_sequence"], rows["001hot"]["_dirty"]) == (many - 1, False)
