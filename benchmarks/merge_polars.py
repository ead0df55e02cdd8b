"""Benchmark ``merge_polars``: merge of changes into a replica's Delta table, compared with Polars rewriting the table.

The table has 1,000,000 rows of 40 columns; 1,000, 10,000 or 100,000 changes of six columns are spread evenly over it.
Ours is the merge of the worker's engine: reading, folding and applying the changes, with the flags of dirty rows, and a
commit to the Delta log. Polars reads all rows from one Parquet file, updates them from a change for each record, and
writes them as Parquet with the same compression. It has no statistics of the Delta log, no commit and no flags, and it
ignores a change to null.

It prints one JSON line for each number of changes. ``ratio`` is the CPU seconds of Polars divided by ours; medians of
rounds that alternate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.delta_sink import DeltaSink, Incoming
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.merging import ChangesMerge, table_schema
from airflow_provider_sfstream.tables.rows.replica_columns import CHANGE_ENVELOPE
from airflow_provider_sfstream.tables.rows.shuffle import blocks
from airflow_provider_sfstream.tables.runner.embedded import ArrowFrame, EmbeddedEngine
from benchmarks import merge_rows
from benchmarks.replica_merge import TABLE, _Given, _shaped

COLUMNS = dict(list(merge_rows.COLUMNS.items())[:40])
_UPDATED = ("_sequence", "_replay_id", "_commit_time", "_transaction_key")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    merge_rows.COLUMNS = COLUMNS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        merge_rows.write_rows(folder / "whole", given.rows)
        engine = EmbeddedEngine(ObjectStorageFiles(None), ObjectStorageFiles(None), folder / "copies")
        (folder / "copies").mkdir()
        sink = DeltaSink(engine, str(folder / "ours"), ReplicaConfig(output_url=str(folder / "ours")))
        schema = table_schema(COLUMNS)
        ids = pq.read_table(folder / "whole", columns=["Id"]).slice(0, 10_000).to_batches()
        state = TableState("stream")
        incoming = Incoming(state, state, _Given(COLUMNS), schema, given.rows, lambda _: iter(ids))
        merged, _ = sink.merge(
            {TABLE: incoming}, _frame(folder / "whole"), lambda ends: blocks(partial(_shaped, schema), ends[0])
        )
        state = merged[TABLE][0]
        pl.read_parquet(folder / "whole").write_parquet(folder / "polars.parquet", compression="zstd")
        for count in (given.rows // 1_000, given.rows // 100, given.rows // 10):
            changes = folder / f"changes{count}"
            merge_rows.write_changes(changes, count * 10, "spread")
            figures: dict[str, list[float]] = {"ours": [], "polars": []}
            for _ in range(given.rounds):
                sink.check({TABLE: state})
                figures["ours"].append(_seconds(partial(ours, sink, state, changes, count)))
                figures["polars"].append(_seconds(partial(polars, folder, changes)))
            medians = {side: round(statistics.median(each), 2) for side, each in figures.items()}
            ratio = round(medians["polars"] / medians["ours"], 2)
            print(json.dumps({"benchmark": "merge_polars", "changes": count, "ratio": ratio, "cpu_seconds": medians}))


def _frame(folder: Path) -> ArrowFrame:
    paths = sorted(folder.glob("*.parquet"))
    return ArrowFrame(lambda _: (batch for path in paths for batch in pq.ParquetFile(path).iter_batches(10_000)))


def ours(sink: DeltaSink, state: TableState, changes: Path, count: int) -> None:
    schema = pa.schema([(name, arrow_type(type_)) for name, type_ in (CHANGE_ENVELOPE | COLUMNS).items()])
    incoming = Incoming(state, state, ChangesMerge(COLUMNS, "soft"), schema, count=count)
    sink.merge({TABLE: incoming}, _frame(changes), lambda ends: blocks(partial(_shaped, schema), ends[0]))


def polars(folder: Path, changes: Path) -> None:
    """Fold the changes and update all rows."""
    rows, found = pl.read_parquet(folder / "polars.parquet"), pl.read_parquet(changes)
    places = {name: (number // 64, number % 64) for number, name in enumerate(COLUMNS)}
    found = found.sort("_sequence")
    is_set = {n: found["_set"].list.get(w).cast(pl.UInt64) // 2**b % 2 == 1 for n, (w, b) in places.items()}
    folded = (
        found.with_columns([pl.when(is_set[name]).then(pl.col(name)).alias(name) for name in COLUMNS])
        .group_by("Id")
        .agg([pl.col(name).drop_nulls().last() for name in COLUMNS] + [pl.col(name).last() for name in _UPDATED])
    )
    rows.update(folded, on="Id").write_parquet(folder / "rewritten.parquet", compression="zstd")


def _seconds(run: Callable[[], None]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


if __name__ == "__main__":
    main()
