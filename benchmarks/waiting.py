"""Benchmark ``waiting``: many deferred sensors on one real triggerer, compared with the same triggerer when idle.

It starts Airflow and a local org, waits until all sensors are deferred, and measures the triggerer's processes while
they wait: resident memory per trigger, CPU seconds per second, Airflow's warnings about a blocked event loop, and the
health of its heartbeat. Then it publishes one event and measures the seconds until the last task has resumed.

It prints one JSON line; ``ratio`` is the CPU of the triggerer with its triggers divided by that without.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.airflow_stack import AirflowStack, running_airflow, wait_for  # noqa: E402
from sfstream_localorg.process import LocalOrg  # noqa: E402

DAG = """
from airflow.sdk import DAG
from airflow_provider_sfstream.sensors.salesforce_event import SalesforceEventSensor

with DAG("waiting", schedule=None):
    for number in range({count}):
        SalesforceEventSensor(
            task_id=f"wait_{{number}}", topic="/event/Order__e", subscription=f"s{{number}}", replay_store=None,
            start_from="latest", deferrable=True, timeout=3600,
        )
"""


def triggerer(stack: AirflowStack) -> list[psutil.Process]:
    """Return the triggerer's processes."""
    parent = psutil.Process(stack.processes["triggerer"].pid)
    return [parent, *parent.children(recursive=True)]


def memory(stack: AirflowStack) -> int:
    """Return the resident bytes of the triggerer; memory shared by its processes counts once for each process."""
    return sum(process.memory_info().rss for process in triggerer(stack))


def cpu_per_second(stack: AirflowStack, seconds: float) -> float:
    """Return the CPU seconds of the triggerer per second."""

    def used() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in triggerer(stack))

    before, began = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - began)


def main() -> None:
    """Run the benchmark and print its line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triggers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of each measurement in seconds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LocalOrg.running(Path(folder) / "org") as org:
        org.define("Order__e", Number__c="double")
        dags = Path(folder) / "dags"
        dags.mkdir()
        (dags / "waiting.py").write_text(DAG.format(count=arguments.triggers))
        stack = AirflowStack(
            Path(folder) / "airflow",
            dags,
            {"AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": "1000", "AIRFLOW__SCHEDULER__MAX_TIS_PER_QUERY": "64"},
            parallelism=3,
        )
        with running_airflow(stack, triggerer=True):
            stack.add_connection("salesforce_default", **org.airflow_connection())
            stack.wait_for_dag("waiting")
            time.sleep(5)
            idle_memory, idle_cpu = memory(stack), cpu_per_second(stack, arguments.seconds)
            run_id = stack.trigger("waiting")
            wait_for(lambda: len(org.streams()) == arguments.triggers, 1800, "all triggers to be subscribed")
            wait_for(lambda: not stack.task_processes(), 60, "all task processes to end")
            time.sleep(5)
            log = stack.home / "triggerer.log"
            blocked_while_starting = log.read_text().count("async thread was blocked")
            waiting_memory, waiting_cpu = memory(stack), cpu_per_second(stack, arguments.seconds)
            health = stack.api("GET", "/monitor/health")["triggerer"]["status"]
            blocked_while_waiting = log.read_text().count("async thread was blocked") - blocked_while_starting
            began = time.monotonic()
            org.publish("/event/Order__e", [{"Number__c": 1.0}])
            wait_for(lambda: not org.streams(), 300, "the triggers to fire")
            fired = time.monotonic() - began
            wait_for(
                lambda: "deferred" not in stack.task_states("waiting", run_id).values(), 300, "the tasks to resume"
            )
            print(
                json.dumps(
                    {
                        "benchmark": "waiting",
                        "ratio": round(waiting_cpu / idle_cpu, 2),
                        "triggers": arguments.triggers,
                        "kib_per_trigger": round((waiting_memory - idle_memory) / arguments.triggers / 1024, 1),
                        "triggerer_mib_idle": round(idle_memory / 2**20, 1),
                        "triggerer_mib_waiting": round(waiting_memory / 2**20, 1),
                        "cpu_idle": round(idle_cpu, 4),
                        "cpu_waiting": round(waiting_cpu, 4),
                        "blocked_loop_warnings_while_starting": blocked_while_starting,
                        "blocked_loop_warnings_while_waiting": blocked_while_waiting,
                        "triggerer_health": health,
                        "logins": org.admin("GET", "/oauth")["requests"],
                        "seconds_from_publish_to_last_fired": round(fired, 2),
                        "seconds_from_publish_to_last_task_resumed": round(time.monotonic() - began, 2),
                    }
                )
            )


if __name__ == "__main__":
    main()
