from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.spark.arrow_columns import arrow_type
from airflow_provider_sfstream.spark.avro_columns import ColumnType
from airflow_provider_sfstream.spark.hadoop_files import HadoopFiles
from airflow_provider_sfstream.spark.replica_files import ReplicaFiles, Rewritten, rewrite_buckets
from airflow_provider_sfstream.spark.replica_merge import (
    SETTINGS,
    Deletes,
    folded_changes,
    joined,
    merged_columns,
    with_bucket,
)
from airflow_provider_sfstream.spark.replica_rows import BUCKET, TABLE_ENVELOPE
from tests.support.replica_changes import COLUMNS, START, change_batch, random_changes
from tests.support.replica_model import Row, apply_window

BUCKETS = 4
RECORDS = [f"001{number:04d}" for number in range(60)]
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


@pytest.mark.parametrize(("seed", "deletes"), [(1, "soft"), (2, "hard"), (3, "soft"), (4, "hard")])
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


def test_every_state_of_a_row_meets_every_change(spark: Any) -> None:
    """Rows that are dirty, deleted, fetched, ahead, behind and missing, as records that share one window."""
    shape = random.Random(7)
    records = [f"001{number:05d}" for number in range(3_000)]
    changes = random_changes(shape, records, 6_000, COLUMNS, first_sequence=1_000)
    model: dict[str, Row] = {}
    apply_window(model, random_changes(shape, records, 6_000, COLUMNS), COLUMNS)
    for row in model.values():
        row["_sequence"] = shape.choice((None, 0, 999, 3_000, 9_000))
        row["_refreshed_at"] = shape.choice((None, START, START + timedelta(seconds=shape.randrange(7_000))))
        if shape.random() < 0.5:
            row |= {"_dirty": False, "_dirty_since": None, "_dirty_reason": None}
    arrow = pa.Table.from_batches([change_batch(changes, COLUMNS)])
    folded = folded_changes(spark.createDataFrame(arrow), COLUMNS, 2, BUCKETS)
    pairs = joined(table_frame(spark, list(model.values()), COLUMNS), folded, 2).persist()
    kept = pairs.select(*merged_columns(COLUMNS, deletes="soft")).where("not _dropped").drop("_dropped")
    without = pairs.select(*merged_columns(COLUMNS, deletes="hard")).where("not _dropped").drop("_dropped")
    soft, hard = {key: dict(row) for key, row in model.items()}, {key: dict(row) for key, row in model.items()}
    apply_window(soft, changes, COLUMNS)
    apply_window(hard, changes, COLUMNS, hard=True)
    assert rows_of(kept) == soft
    assert rows_of(without) == hard
    assert len(hard) < len(soft)
    pairs.unpersist()
