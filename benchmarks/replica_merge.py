"""Benchmark ``replica_merge``: merge of changes into a replica's Delta table, compared with a full rewrite.

The full rewrite is a straightforward Spark job that folds the changes with aggregates, joins all rows and writes the
whole table again. The table has 90 columns and ten rows for each change; a change sets six columns. Changes are spread
evenly over the records (``spread``), or over one record in two hundred, which the previous merge changed too (``hot``),
or all belong to one record (``one``).

Both sides start from change rows in Parquet: the merge reads them as Arrow in Python, where events are decoded, and the
rewrite reads them with Spark. They run alternately in one Spark session. Both must produce equal tables, which are
compared at a tenth of the size. At full size the rewrite runs only for the changes of one record, which are cheapest to
fold: it writes all rows for any change. A merge of a few seconds is measured several times; the result is the median.

It prints one JSON line for each kind of changes. ``ratio`` is the seconds of the rewrite divided by those of the merge,
``growth`` the seconds of the merge divided by those for a tenth of the changes and rows, ``worker_mib`` the highest
resident size of a Python worker of Spark during the merges of all rounds.

With ``--cluster`` everything runs on a standalone cluster of two workers with one core each, and both tables are on a
real S3 server. Spark contains no S3 client, so the rewrite uses the bucket mounted as a folder (FUSE, as root). With
``--cluster --rewrite-locally`` the table of the rewrite is in a local folder, which needs no time of the two cores.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type, as_table
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.delta_sink import DeltaSink, Incoming
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.merging import ChangesMerge, table_schema
from airflow_provider_sfstream.tables.rows.replica_columns import CHANGE_ENVELOPE, TABLE_ENVELOPE
from airflow_provider_sfstream.tables.rows.shuffle import blocks
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine, SparkFrame
from benchmarks.merge_rows import COLUMNS, write_changes, write_rows
from benchmarks.sessions import largest_worker, object_storage, session

TABLE = "Account"
KINDS = ("spread", "hot", "one")
_SETTINGS = {
    # Wide rows lead to long methods, and the JVM does not compile methods above 8,000 bytes, so split them.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Enough partitions for large tables. Spark coalesces small ones, because every task compiles wide rows again.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "64",
}
"""Spark settings that speed up the full rewrite."""
_TIMES, _SPENT = 5, 10.0
"""A merge is repeated up to this number of times, or for this number of seconds."""


@dataclass
class Workload:
    """A table of ``rows`` rows, once for the merge (``output``) and once for the rewrite (``other``), and its changes.

    There is a tenth as many changes of each kind as rows.
    """

    spark: Any
    folder: Path
    output: str
    other: Path
    rows: int

    def __post_init__(self) -> None:
        output, engine = f"{self.output}/{self.rows}", SparkEngine(self.spark)
        self.sink = DeltaSink(engine, output, ReplicaConfig(output_url=output))
        self.location = engine.files.table_location(output).below(TABLE)
        write_rows(self.other / "whole", self.rows)
        for kind in KINDS:
            write_changes(self.folder / kind, self.rows, kind)
        rows, schema = SparkFrame(self.spark.read.parquet(str(self.other / "whole"))), table_schema(COLUMNS)
        incoming = Incoming(
            TableState("stream"),
            TableState("stream"),
            _Given(COLUMNS),
            schema,
            count=self.rows,
        )
        merged, _ = self.sink.merge({TABLE: incoming}, rows, lambda ends: blocks(partial(_shaped, schema), ends[0]))
        self.state, _ = merged[TABLE]

    def take_back(self) -> None:
        """Restore the table to its state before the last merge."""
        self.sink.check({TABLE: self.state})

    def ours(self, kind: str) -> TableState:
        """Merge in the same way as the job, and return the resulting table."""
        self.sink.check({TABLE: self.state})
        schema = pa.schema([(name, arrow_type(type_)) for name, type_ in (CHANGE_ENVELOPE | COLUMNS).items()])
        files = [(str(path),) for path in (self.folder / kind).glob("*.parquet")]
        paths = SparkFrame(self.spark.createDataFrame(files, "path string").repartition(len(files)))
        merge = ChangesMerge(COLUMNS, "soft")
        incoming = Incoming(self.state, self.state, merge, schema, count=self.rows // 10)
        read = partial(_read_shaped, schema)
        merged, _ = self.sink.merge({TABLE: incoming}, paths, lambda ends: blocks(read, ends[0]))
        return merged[TABLE][0]

    def whole(self, kind: str) -> None:
        """Rewrite the table without this package, with only the features that these changes need."""
        from pyspark.sql import functions as f

        changes = self.spark.read.parquet(str(self.folder / kind))
        rows = self.spark.read.parquet(str(self.other / "whole"))
        is_set = {name: f.getbit(f.col("_set")[n // 64], f.lit(n % 64)) == 1 for n, name in enumerate(COLUMNS)}
        lasts = [
            f.max_by(f.struct(name), f.when(is_set[name], f.col("_sequence"))).alias(f"last_{name}") for name in COLUMNS
        ]
        envelope = [
            f.max_by(name, "_sequence").alias(f"last_{name}")
            for name in ("_replay_id", "_commit_time", "_transaction_key")
        ]
        folded = changes.groupBy("Id").agg(f.max("_sequence").alias("last__sequence"), *lasts, *envelope)
        merged = rows.join(folded, "Id", "full_outer")
        values = [
            f.when(f.col(f"last_{name}").isNotNull(), f.col(f"last_{name}")[name]).otherwise(f.col(name)).alias(name)
            for name in COLUMNS
        ]
        updated = ("_sequence", "_replay_id", "_commit_time", "_transaction_key")
        own = [f.coalesce(f"last_{n}", n).alias(n) if n in updated else f.col(n) for n in TABLE_ENVELOPE]
        writer = merged.select(*own, *values).write.mode("overwrite").option("compression", "zstd")
        writer.parquet(str(self.other / "rewritten"))

    def check(self, kind: str, after: TableState) -> None:
        """Compare the two tables.

        :raises RuntimeError: if they differ.
        """
        options = dict(self.location.options)
        table = DeltaTable(self.location.uri, version=after.version, storage_options=options)
        pyarrow.dataset.write_dataset(table.to_pyarrow_dataset(), self.folder / f"merged-{kind}", format="parquet")
        ours = self.spark.read.parquet(str(self.folder / f"merged-{kind}"))
        other = self.spark.read.parquet(str(self.other / "rewritten")).select(*ours.columns)
        if _digest(ours) != _digest(other):
            raise RuntimeError(f"The tables differ after the changes of kind {kind!r}, so the figures are invalid.")


def _shaped(schema: pa.Schema, files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (as_table(batch, schema) for batch in files)


def _read_shaped(schema: pa.Schema, files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return _shaped(schema, _read(files))


def _read(files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of Parquet files as Arrow in Python, as the decoding of events does."""
    for path in (path for batch in files for path in batch.column("path").to_pylist()):
        yield from pyarrow.parquet.ParquetFile(path).iter_batches(10_000)


@dataclass(frozen=True)
class _Given:
    """Merge function that takes the rows of the change unchanged."""

    columns: dict[str, ColumnType]

    def __call__(self, base: pa.RecordBatch, change: pa.RecordBatch, /) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        return change, pa.array([False] * len(change), pa.bool_())


def _digest(rows: Any) -> Any:
    from pyspark.sql import functions as f

    hashed = f.xxhash64(*sorted(rows.columns)).cast("decimal(38,0)")
    return rows.agg(f.count(f.lit(1)), f.sum(hashed)).first()


def measure(
    work: Workload, rounds: int, *, compared: Container[str] = (), check: bool = False
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each round, by kind and side.

    :param compared: kinds of changes for which the rewrite runs too.
    :param check: whether to compare the two tables afterwards.
    """
    measured: dict[str, dict[str, list[float]]] = {kind: {"ours": [], "whole": [], "mib": []} for kind in KINDS}
    for kind in KINDS:
        before = work.state
        if kind == "hot":
            # Hot records have been changed by an earlier merge too.
            work.take_back()
            work.state = work.ours(kind)
        for _ in range(rounds):
            spent: list[float] = []
            with largest_worker(measured[kind]["mib"]):
                # A merge of two seconds sometimes takes one second more, so repeat it. A rewrite takes a stable time.
                while not spent or (not check and sum(spent) < _SPENT and len(spent) < _TIMES):
                    work.take_back()
                    after, seconds = timed(lambda kind=kind: work.ours(kind))
                    spent.append(seconds)
            measured[kind]["ours"] += spent
            if kind in compared:
                _, seconds = timed(lambda kind=kind: work.whole(kind))
                measured[kind]["whole"].append(seconds)
        if check:
            work.check(kind, after)
        work.state = before
    return measured


def timed(act: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    return act(), time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cluster", action="store_true", help="use a standalone cluster, and tables on S3")
    parser.add_argument(
        "--rewrite-locally", action="store_true", help="with --cluster: rewrite a table in a local folder"
    )
    given = parser.parse_args()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        spark = stack.enter_context(session(Path(name), cluster=given.cluster))
        output, others = (Path(name) / "ours").as_uri(), Path(name) / "others"
        if given.cluster:
            output, mounted = stack.enter_context(object_storage(spark, Path(name)))
            others = others if given.rewrite_locally else mounted / "others"
        for key, value in _SETTINGS.items():
            spark.conf.set(key, value)
        measured = {}
        for rows in (given.rows // 10, given.rows):
            folder, other = Path(name) / str(rows), others / str(rows)
            folder.mkdir()
            other.mkdir(parents=True)
            work, seconds = timed(lambda at=(folder, output, other), rows=rows: Workload(spark, *at, rows))
            print(f"{rows} rows made in {seconds:.0f} s", file=sys.stderr)
            if not measured:
                # Warm up and compare the tables, at a tenth of the size because the comparison is slow.
                measure(work, 1, compared=KINDS, check=True)
            measured[rows] = measure(work, given.rounds, compared=("one",) if rows == given.rows else ())
            shutil.rmtree(folder)
    whole = measured[given.rows]["one"]["whole"]
    for kind in KINDS:
        ours = measured[given.rows][kind]["ours"]
        small = statistics.median(measured[given.rows // 10][kind]["ours"])
        figures = {
            "benchmark": "replica_merge",
            "changes": kind,
            "cluster": given.cluster,
            "ratio": round(statistics.median(whole) / statistics.median(ours), 2),
            "rows": given.rows,
            "seconds": {"ours": [round(t, 2) for t in ours], "whole": [round(t, 2) for t in whole]},
            "growth": round(statistics.median(ours) / small, 2),
            "worker_mib": max(measured[given.rows][kind]["mib"]),
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
