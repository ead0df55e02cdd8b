"""Benchmark ``replica_workload``: the job builds a replica from random workloads of an org, compared with the org.

It runs fifty seeds in one Spark session on ``local[2]``, or with ``--cluster`` five seeds on a standalone cluster of a
master and two workers, where a worker and its executor are killed in the middle of each seed. It does not measure
speed: every value must be equal. It prints one JSON line for each seed and one for all, and exits with 1 if a value
differs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.cluster_job import ClusterJob
from tests.support.replica_comparison import summary
from tests.support.replica_seeds import Job, SessionJob, run_seed
from tests.support.spark import INTERPRETED, start_session
from tests.support.standalone_cluster import standalone_cluster

FEW_ROWS = {
    **INTERPRETED,
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
}
"""Spark settings for few rows: planning and compiling of wide rows would take longer than processing them."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", action="store_true", help="run on a standalone cluster that loses a worker")
    parser.add_argument("--seeds", type=int, help="number of seeds; default 50, or 5 with --cluster")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=160, help="requests of a workload that change records")
    parser.add_argument("--deletes", choices=("soft", "hard"), default="soft", help="without --cluster")
    parser.add_argument("--at-once", type=int, default=1, help="number of parallel seeds without --cluster")
    given = parser.parse_args()
    # Airflow and Java write to the standard output too, so the results use a copy of it.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    count = given.seeds or (5 if given.cluster else 50)

    def run(seed: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            figures = report(spark, seed, Path(folder), given)
        print(json.dumps(figures), file=lines, flush=True)
        return figures

    with tempfile.TemporaryDirectory() as name:
        spark = start_session(Path(name), FEW_ROWS)
        with ThreadPoolExecutor(1 if given.cluster else given.at_once) as pool:
            reports = list(pool.map(run, range(given.first, given.first + count)))
        spark.stop()
    equal = sum(one["equal"] for one in reports)
    result = {
        "benchmark": "replica_workload",
        "cluster": given.cluster,
        "deletes": given.deletes,
        "seeds": count,
        "equal": equal,
    }
    print(json.dumps(result), file=lines, flush=True)
    return 0 if equal == count else 1


def report(spark: Any, seed: int, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Run a seed and return its figures."""
    started = time.perf_counter()
    figures: dict[str, Any] = {"benchmark": "replica_workload_seed", "seed": seed, "equal": False}
    try:
        with job_for(spark, folder, given) as (job, side_job, runs):
            outcome = run_seed(seed, folder, job, side_job=side_job, runs=runs, steps=given.steps)
            if isinstance(job, ClusterJob):
                figures["workers_lost"] = len(job.lost)
    except Exception:
        traceback.print_exc()
        return figures
    if outcome.unexplained or outcome.differences:
        print(summary([*outcome.unexplained, *outcome.differences]), file=sys.stderr)
    return figures | {
        "equal": outcome.is_equal and figures.get("workers_lost") != 0,
        "events": outcome.events,
        "windows": outcome.windows,
        "gaps": outcome.gaps,
        "dirty_before_refresh": outcome.dirty,
        "unexplained_before_refresh": len(outcome.unexplained),
        "differences_after": len(outcome.differences),
        "dirty_after": outcome.dirty_after,
        "flags_after": outcome.flags_after,
        "seconds": round(time.perf_counter() - started, 1),
    }


@contextmanager
def job_for(spark: Any, folder: Path, given: argparse.Namespace) -> Iterator[tuple[Job, Job, int]]:
    """Yield the jobs of a seed and the number of its runs; with ``--cluster``, start a cluster for the seed."""
    here = SessionJob(spark, folder / "replica", deletes=given.deletes)
    if not given.cluster:
        yield here, here, 2
        return
    with standalone_cluster(folder / "cluster") as running:
        job = ClusterJob(running, folder / "replica", spark, lose_worker_in=0, settings=FEW_ROWS)
        yield job, here, 1


if __name__ == "__main__":
    sys.exit(main())
