"""Benchmarks ``iceberg_mirror`` and ``iceberg_runs``: publication of Delta tables in an Iceberg catalog (SQLite).

``iceberg_mirror``: an event log job that writes 100 files of 100 dates; ``ratio`` is the CPU seconds of the publication
divided by those of the job, medians of the rounds. ``next`` is the publication after one more file.

``iceberg_runs``: runs of small windows of an event log and a replica in turn, each published, with maintenance after
every 96 (a day of runs every 15 minutes). All run within a day, so that no snapshot of the event log is old enough to
be removed. ``ratio`` is the CPU seconds of the last 20 publications divided by those of the first 20; with the bytes
and the number of metadata files, and the seconds in which pyiceberg plans a scan of the event log. It prints one JSON
line for each benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "ERROR"

from airflow_provider_sfstream.operators.event_log import EventLogOperator
from tests.support.iceberg_lake import DAY, START, IcebergLake, order_schema
from tests.support.landing_files import LandedEvent, encode, land_window
from tests.support.tasks import context_for

FILES = 100
RUNS_PER_DAY = 96
SOME = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with pytest.MonkeyPatch.context() as patch:
        report("iceberg_mirror", run_mirror(patch, given.rounds))
        with tempfile.TemporaryDirectory() as folder:
            report("iceberg_runs", run_many(new_lake(folder, patch), given.runs))


def run_mirror(patch: pytest.MonkeyPatch, rounds: int) -> dict[str, float]:
    """Return the seconds of a job of many files, of its publication, and of the publication after one more file."""
    measured: list[tuple[float, float, float]] = []
    for _ in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            lake = new_lake(folder, patch)
            job = seconds(partial(write, lake, "days", range(FILES)))
            mirror = seconds(lake.sync)
            write(lake, "one", [FILES])
            measured.append((job, mirror, seconds(lake.sync)))
    job, mirror, following = (statistics.median(each) for each in zip(*measured[1:], strict=True))
    return {"ratio": mirror / job, "job": job, "mirror": mirror, "next": following}


def run_many(lake: IcebergLake, runs: int) -> dict[str, float]:
    """Return the costs of the first and last publications, and the size of the metadata."""
    costs: list[float] = []
    for number in range(runs):
        run = lake.events if number % 2 else lake.changes
        run(catalog_conn_id=None)
        costs.append(seconds(lake.sync))
        if number % RUNS_PER_DAY == RUNS_PER_DAY - 1:
            lake.compact()
    files = [path for path in Path(lake.output).glob("_sfstream/iceberg/**/*") if path.is_file()]
    table = lake.table("order__e")
    first, last = statistics.mean(costs[:SOME]), statistics.mean(costs[-SOME:])
    return {
        "ratio": last / first,
        "first": first,
        "last": last,
        "metadata_bytes": sum(path.stat().st_size for path in files),
        "metadata_files": len(files),
        "snapshots": len(table.snapshots()),
        "plan": seconds(lambda: list(table.scan().plan_files())),
    }


def new_lake(folder: str, patch: pytest.MonkeyPatch) -> IcebergLake:
    return IcebergLake(Path(folder), patch, type="sql", uri=f"sqlite:///{folder}/catalog.db")


def write(lake: IcebergLake, window: str, days: Any) -> None:
    """Land an event of each day, and write the event log, unpublished."""
    schema = order_schema(1)
    events = [
        LandedEvent(day + 1, "schema", encode(schema, {"CreatedDate": START + day * DAY, "Codes__c": [day]}))
        for day in days
    ]
    manifest = land_window(lake.folder / "landing", f"20260110T000000Z-{window}", events, {"schema": schema})
    operator = EventLogOperator(task_id="job", windows=manifest, output_url=lake.output)
    operator.execute(context_for("job"))


def seconds(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of ``work``."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def report(name: str, figures: dict[str, float]) -> None:
    print(json.dumps({"benchmark": name, **{key: round(value, 3) for key, value in figures.items()}}), flush=True)


if __name__ == "__main__":
    main()
