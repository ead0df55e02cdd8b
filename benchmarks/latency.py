"""Benchmark ``latency``: from the publication of an event to its row in a Delta table, on a real Airflow.

A topic starts a DAG. Events are published one at a time, each after the run of the one before has ended. Three topics
with a DAG each: one drain that writes its table in its own task (``event_log=``), one drain with ``EventLogOperator``
as a second task, and the same with a drain that waits ten seconds for silence.

It prints one JSON line for each DAG: medians of the seconds until the drain's task starts, of its task, of the second
task, and of the whole time until the version of the table is committed. ``ratio`` is this time of the DAG that waits ÷
that of the DAG. ``scheduler_cpu`` is the share of a core that the idle scheduler uses.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.airflow_stack import AirflowStack, running_airflow, wait_for  # noqa: E402
from sfstream_localorg.process import LocalOrg  # noqa: E402

DAG_IDS = ("one_task", "two_tasks", "waits")
DAG = """
from datetime import datetime

from airflow.sdk import DAG

from airflow_provider_sfstream.assets.salesforce_stream import salesforce_topic_asset
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.event_log import EventLogOperator

for name in {names}:
    with DAG(
        name, schedule=[salesforce_topic_asset(f"/event/{{name}}__e")], start_date=datetime(2026, 1, 1), catchup=False,
        max_active_runs=1,
    ) as dag:
        drain = DrainReplayWindowOperator(
            task_id="drain",
            topic=f"/event/{{name}}__e",
            landing_url="{lake}/landing",
            idle_timeout=10.0 if name == "waits" else None,
            event_log={{"output_url": "{lake}/" + name}} if name == "one_task" else None,
        )
        if name != "one_task":
            EventLogOperator(task_id="event_log", windows=drain.output, output_url="{lake}/" + name)
    globals()[name] = dag
"""


def seconds_of_one_event(stack: AirflowStack, org: LocalOrg, lake: Path, name: str) -> dict[str, float]:
    """Publish an event; return the seconds of each stage until its row is committed."""
    log = lake / name / f"{name}__e" / "_delta_log"
    before = set(stack.run_ids(name))
    published = time.time()
    org.publish(f"/event/{name}__e", [{"Number__c": 1.0}])
    run_id = wait_for(lambda: next(iter(set(stack.run_ids(name)) - before), None), 120, "a run")
    state = stack.wait_for_run(name, run_id)
    assert state == "success", stack.task_log(name, run_id, "drain")
    committed = max(path.stat().st_mtime for path in log.glob("*.json"))
    tasks = stack.api("GET", f"/dags/{name}/dagRuns/{run_id}/taskInstances")["task_instances"]
    times = {each["task_id"]: (seconds(each["start_date"]), seconds(each["end_date"])) for each in tasks}
    return {
        "until_drain": times["drain"][0] - published,
        **{task_id: end - start for task_id, (start, end) in sorted(times.items())},
        "until_row": committed - published,
    }


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def idle_share(pid: int, duration: float = 20.0) -> float:
    """Return the share of a core that a process uses, without its children."""
    process = psutil.Process(pid)
    before = process.cpu_times()
    time.sleep(duration)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / duration


def main() -> None:
    """Run the benchmark and print its lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10, help="published to each topic, one at a time")
    parser.add_argument("--idle-sleep", default="1", help="Airflow's [scheduler] scheduler_idle_sleep_time, in seconds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LocalOrg.running(Path(folder) / "org") as org:
        lake, dags = Path(folder) / "lake", Path(folder) / "dags"
        dags.mkdir()
        (dags / "latency.py").write_text(DAG.format(lake=lake, names=DAG_IDS))
        settings = {"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": arguments.idle_sleep}
        stack = AirflowStack(Path(folder) / "airflow", dags, settings)
        with running_airflow(stack, triggerer=True):
            stack.add_connection("salesforce_default", **org.airflow_connection())
            for name in DAG_IDS:
                org.define(f"{name}__e", Number__c="double")
                stack.wait_for_dag(name)
                stack.unpause(name)
            wait_for(lambda: len(org.streams()) == len(DAG_IDS), 120, "the watchers")
            measured: dict[str, list[dict[str, float]]] = {name: [] for name in DAG_IDS}
            for number in range(arguments.events + 1):  # the first event of each is not counted: it creates the table
                for name in DAG_IDS:
                    figures = seconds_of_one_event(stack, org, lake, name)
                    measured[name] += [figures] if number else []
            share = idle_share(stack.pids["scheduler"])
    medians: dict[str, dict[str, Any]] = {
        name: {stage: median(each[stage] for each in figures) for stage in figures[0]}
        for name, figures in measured.items()
    }
    for name in DAG_IDS:
        ratio = medians["waits"]["until_row"] / medians[name]["until_row"]
        rounded = {stage: round(each, 2) for stage, each in medians[name].items()}
        print(json.dumps({"benchmark": f"latency_{name}", "ratio": round(ratio, 2), **rounded}))
    print(json.dumps({"benchmark": "latency_scheduler", "ratio": None, "scheduler_cpu": round(share, 3)}))


if __name__ == "__main__":
    main()
