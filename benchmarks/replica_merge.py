"""Benchmark ``replica_merge``: changes folded and merged into a replica's Delta table, beside the straightforward Spark
job that folds with aggregates, joins all rows and writes the whole table anew.

The table has 90 columns and ten rows for each change; a change sets six columns. Changes are spread evenly
over the records (``spread``), or over one record in two hundred, as they were in the merge before (``hot``), or are all
of one record (``one``). Both sides start from change rows in Parquet, each read as that side reads (ours as Arrow in
Python, where events are decoded; the other as Spark does), run in turn in one Spark session, and must give the same
table, which is compared at a tenth of the size. At full size the other is run for changes of one record alone, the
least that it has to fold: it writes all rows whatever has changed. A merge of a few seconds is measured several times,
and the median counts. Prints one JSON line for each kind of changes; ``ratio`` is the other's seconds divided by ours,
``growth`` our seconds divided by those for a tenth of changes and rows, ``worker_mib`` the highest resident size of a
Python worker of Spark while ours ran, in all rounds.

With ``--cluster`` all runs on a standalone cluster of two workers with a core each, and both tables are on a real S3
server. Spark comes without a client for S3, so the other side has the buckets mounted as a folder (FUSE, as root).
With ``--cluster --rewrite-locally`` the other's table is in a local folder, which costs it nothing of the two cores.
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

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.delta_sink import DeltaSink, Incoming
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.merging import ChangesMerge, as_table, table_schema
from airflow_provider_sfstream.tables.rows.replica_columns import CHANGE_ENVELOPE, TABLE_ENVELOPE
from airflow_provider_sfstream.tables.rows.routing import parcels
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from airflow_provider_sfstream.tables.runner.spark_frames import SparkFrame
from benchmarks.merge_rows import COLUMNS, write_changes, write_rows
from benchmarks.sessions import largest_worker, object_storage, session

TABLE = "Account"
KINDS = ("spread", "hot", "one")
_SETTINGS = {
    # Wide rows give long methods, and the JVM only interprets those beyond 8,000 bytes: better several shorter ones.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Room for large tables; Spark joins partitions that turn out small, since every task compiles wide rows anew.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "64",
}
"""Settings with which the other side's plan runs well."""
_TIMES, _SPENT = 5, 10.0
"""A merge is measured so many times, or as often as it takes for so many seconds."""


@dataclass
class Workload:
    """A table of ``rows`` rows, ours below ``output``, the other's in ``other``, and a tenth as many changes of each
    kind."""

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
        ids = self.spark.read.parquet(str(self.other / "whole")).select("Id")
        incoming = Incoming(
            TableState("stream"),
            _Given(COLUMNS),
            schema,
            are_changes=False,
            count=self.rows,
            sample=lambda fraction: [row["Id"] for row in ids.sample(fraction).collect()],
        )
        merged, _ = self.sink.merge({TABLE: incoming}, rows, lambda ends: parcels(partial(_shaped, schema), ends[0]))
        self.state, _ = merged[TABLE]

    def take_back(self) -> None:
        """Have the table as it was before the last merge."""
        self.sink.check(TABLE, self.state)

    def ours(self, kind: str) -> TableState:
        """Merge as a job does, and return the table after that."""
        self.sink.check(TABLE, self.state)
        schema = pa.schema([(name, arrow_type(type_)) for name, type_ in (CHANGE_ENVELOPE | COLUMNS).items()])
        files = [(str(path),) for path in (self.folder / kind).glob("*.parquet")]
        paths = SparkFrame(self.spark.createDataFrame(files, "path string").repartition(len(files)))
        merge = ChangesMerge(COLUMNS, "soft")
        incoming = Incoming(self.state, merge, schema, are_changes=True, count=self.rows // 10)
        read = partial(_read_shaped, schema)
        merged, _ = self.sink.merge({TABLE: incoming}, paths, lambda ends: parcels(read, ends[0]))
        return merged[TABLE][0]

    def whole(self, kind: str) -> None:
        """Do the same as one would without this package; only what these changes need."""
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
            raise RuntimeError(f"The tables differ after the changes of kind {kind!r}: neither figure means anything.")


def _shaped(schema: pa.Schema, files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (as_table(batch, schema) for batch in files)


def _read_shaped(schema: pa.Schema, files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return _shaped(schema, _read(files))


def _read(files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of Parquet files, as decoding yields those of events: as Arrow, in Python."""
    for path in (path for batch in files for path in batch.column("path").to_pylist()):
        yield from pyarrow.parquet.ParquetFile(path).iter_batches(10_000)


@dataclass(frozen=True)
class _Given:
    """Takes the rows that come."""

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

    :param compared: the kinds of changes for which the other side is run too.
    :param check: whether the two tables are compared then.
    """
    measured: dict[str, dict[str, list[float]]] = {kind: {"ours": [], "whole": [], "mib": []} for kind in KINDS}
    for kind in KINDS:
        before = work.state
        if kind == "hot":
            # Records that change much have changed before.
            work.take_back()
            work.state = work.ours(kind)
        for _ in range(rounds):
            spent: list[float] = []
            with largest_worker(measured[kind]["mib"]):
                # A merge of two seconds differs by one from time to time; a rewrite of sixty does not.
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
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster, the tables on S3")
    parser.add_argument(
        "--rewrite-locally", action="store_true", help="the other's table in a local folder all the same"
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
                # Warms up, and shows that both do the same, which takes longer than doing it.
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
