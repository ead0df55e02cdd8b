"""Benchmark ``streaming_faults``: events landed under random faults of the Streaming API, and the org's record.

Each seed drains 1,500 events while polls are dropped, responses are lost, the server returns 500 and 503, and sessions,
tokens and servers are killed or revoked. It prints one line for each seed, then a JSON line with the totals.
``--spark`` also runs the ``event_log`` job over all windows and compares its rows with the record.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sfstream_localorg.process import LocalOrg
from tests.support.streaming_faults import Outcome, run


def replay_ids_after_spark(folder: Path, manifests: list[str]) -> tuple[Counter[bytes], dict[str, Any]]:
    """Run the ``event_log`` job; return the number of rows of each replay ID in its tables, and its metrics."""
    from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
    from airflow_provider_sfstream.tables.event_log.job import run as run_event_log
    from airflow_provider_sfstream.tables.event_log.reader import read_event_log
    from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
    from tests.support.spark import start_session

    spark = start_session(folder)
    try:
        output = folder / "tables"
        metrics = run_event_log(
            SparkEngine(spark), EventLogConfig(manifests=tuple(manifests), output_url=output.as_uri())
        )
        found: Counter[bytes] = Counter()
        for table in metrics.tables:
            rows = read_event_log(spark, output.as_uri(), table).select("_replay_id").collect()
            found.update(bytes(row["_replay_id"]) for row in rows)
        return found, vars(metrics)
    finally:
        spark.stop()


def spark_report(folder: Path, org: LocalOrg, outcomes: list[Outcome]) -> dict[str, Any]:
    """Compare the tables with the record of every topic."""
    manifests = [manifest for outcome in outcomes for manifest in outcome.manifests]
    found, metrics = replay_ids_after_spark(folder, manifests)
    record = Counter(event["replay_id"] for o in outcomes for event in org.record(o.topic, api="streaming"))
    return {
        "spark_rows": sum(found.values()),
        "spark_lost": sum((record - found).values()),
        "spark_duplicates": sum((found - record).values()),
        "spark_quarantined": metrics["quarantined"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--events", type=int, default=1_500)
    parser.add_argument("--spark", action="store_true")
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as directory, LocalOrg.running(Path(directory) / "org") as org:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            outcomes.append(run(org, seed, Path(directory) / "lake", events=arguments.events))
            print(outcomes[-1], flush=True)
        spark = spark_report(Path(directory), org, outcomes) if arguments.spark else {}
    faults: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())
    report = {
        "benchmark": "streaming_faults",
        "seeds": len(outcomes),
        "published": sum(outcome.published for outcome in outcomes),
        "landed": sum(outcome.landed for outcome in outcomes),
        "lost": sum(outcome.lost for outcome in outcomes),
        "duplicates": sum(outcome.duplicates for outcome in outcomes),
        "seeds_with_equal_rows": sum(outcome.rows_equal for outcome in outcomes),
        "windows": sum(outcome.windows for outcome in outcomes),
        "reconnects": sum(outcome.reconnects for outcome in outcomes),
        "failed_drains": sum(outcome.failed_drains for outcome in outcomes),
        "faults": dict(sorted(faults.items())),
        **spark,
    }
    print(json.dumps(report))
    if report["lost"] or report["duplicates"] or report["seeds_with_equal_rows"] < len(outcomes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
