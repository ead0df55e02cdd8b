"""Benchmarks ``replica_age`` and ``replica_catching_up``: cost of the ``replica`` job by number of windows.

``replica_age``: one new window for a replica that has applied 100, 10,000 and 100,000 windows before. ``ratio`` is the
seconds after 100 windows divided by those after 100,000, and ``files_read`` counts manifests, schemas, snapshots and
pages of IDs. ``replica_catching_up``: 1,000 and 5,000 windows in one run. ``ratio`` is the seconds per window with
1,000 windows divided by those with 5,000. Both use one Spark session and two events in a window; the results are
medians of several rounds. It prints a JSON line for each benchmark.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from tests.support.change_lake import ChangeLake, change
from tests.support.spark import start_session

AGES = (100, 10_000, 100_000)
BEHIND = (1_000, 5_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = start_session(folder)
        lakes = {age: aged(spark, folder / f"age{age}", age) for age in AGES}
        seconds: dict[int, list[float]] = {age: [] for age in AGES}
        read: dict[int, list[int]] = {age: [] for age in AGES}
        for _ in range(given.rounds + 1):
            for age, lake in lakes.items():
                manifest = next_window(lake)
                with counted_reads() as reads:
                    started = time.perf_counter()
                    assert lake.run(manifest).events == 2
                seconds[age].append(time.perf_counter() - started)
                read[age].append(len(reads))
        medians = {age: round(statistics.median(each[1:]), 3) for age, each in seconds.items()}
        files_read = {age: each[-1] for age, each in read.items()}
        report("replica_age", medians, medians[AGES[0]] / medians[AGES[-1]], files_read=files_read)
        each: dict[int, float] = {}
        for count in BEHIND:
            lake = ChangeLake(spark, folder / f"behind{count}")
            lake.run(next_window(lake))
            for _ in range(count):
                manifest = next_window(lake)
            started = time.perf_counter()
            assert lake.run(manifest).events == 2 * count
            each[count] = round(time.perf_counter() - started, 1)
        report("replica_catching_up", each, each[BEHIND[0]] * BEHIND[1] / BEHIND[0] / each[BEHIND[1]])
        spark.stop()


def report(benchmark: str, seconds: dict[int, float], ratio: float, **figures: Any) -> None:
    print(json.dumps({"benchmark": benchmark, "ratio": round(ratio, 3), "seconds": seconds, **figures}), flush=True)


def next_window(lake: ChangeLake) -> str:
    number = 2 * lake.landed + 1
    return lake.land(
        change(number, "CREATE", [f"a0W{number % 50:012d}AAA"], f"t{number}", Name=str(number)),
        change(number + 1, "UPDATE", [f"a0W{number % 50:012d}AAA"], f"t{number}", Amount__c=float(number)),
    )


def aged(spark: Any, folder: Path, age: int) -> ChangeLake:
    """Return a replica that looks as if it had applied ``age`` windows; only the last window exists."""
    lake = ChangeLake(spark, folder)
    lake.run(next_window(lake))
    snapshot = lake.snapshot()
    ((stream, state),) = snapshot.streams.items()
    before = tuple(f"20250101T000000Z-{number:06d}" for number in range(age - 1))
    aged_state = replace(state, recent=(*before, *state.recent))
    SnapshotStore(HadoopFiles(spark), lake.output).publish(snapshot.next({stream: aged_state}, {}, datetime.now(UTC)))
    return lake


@contextmanager
def counted_reads() -> Iterator[list[str]]:
    """Yield a list that collects the names of the text files that a job reads."""
    reads: list[str] = []
    read_text = HadoopFiles.read_text

    def counting(files: HadoopFiles, url: str) -> str:
        reads.append(url)
        return read_text(files, url)

    with mock.patch.object(HadoopFiles, "read_text", counting):
        yield reads


if __name__ == "__main__":
    main()
