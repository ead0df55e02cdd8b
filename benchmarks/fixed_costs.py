"""Benchmark ``fixed_costs``: CPU seconds that a task needs beside those of its events.

Each figure is that of a new process, which has imported Airflow's task runner and Airflow's Spark operator before.
``import``: the imports of all operators of the package. The others: ``execute`` of an operator with one event, with the
imports that it needs. ``event_log``, ``replica``: the operators that run in the worker, on one landed window, in an
empty folder of tables. ``drain``: a drain from the local org, with the position in the landing; ``drain_table``: with
the position in a table of SQLite, which exists. The package is compiled, as in an installation.

It prints one JSON line: medians of CPU seconds over the rounds.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import logging
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

TASKS = ("event_log", "replica", "drain", "drain_table")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--task", nargs=3, metavar=("TASK", "FOLDER", "MANIFEST"))
    given = parser.parse_args()
    if given.task:
        print(json.dumps(seconds_of_task(*given.task)))
        return
    from benchmarks.embedded import land
    from sfstream_localorg.process import LocalOrg

    with tempfile.TemporaryDirectory() as name, LocalOrg.running(Path(name) / "org") as org:
        folder = Path(name)
        org.define("Order__e", Number__c="double")
        org.publish("/event/Order__e", [{"Number__c": 1.0}])
        manifest = land(folder / "landed", "change", 1)
        os.environ["AIRFLOW_CONN_SALESFORCE_DEFAULT"] = json.dumps(org.airflow_connection())
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        found: dict[str, list[float]] = {"import": [], **{task: [] for task in TASKS}}
        for number in range(given.rounds + 1):  # the first round compiles the package
            for task in TASKS:
                command = [sys.executable, __file__, "--task", task, str(folder / f"{task}-{number}"), manifest]
                printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                for figure, seconds in json.loads(printed.splitlines()[-1]).items():
                    found[figure] += [seconds] if number else []
    medians = {figure: round(median(seconds), 3) for figure, seconds in found.items()}
    print(json.dumps({"benchmark": "fixed_costs", "rounds": given.rounds, **medians}))


def seconds_of_task(task: str, folder: str, manifest: str) -> dict[str, float]:
    """Return the CPU seconds of this process for the imports, and for the task after them."""
    # What a task process of Airflow has imported before the DAG.
    import airflow.models
    import airflow.providers.apache.spark.operators.spark_submit
    import airflow.sdk.execution_time.supervisor
    import airflow.sdk.execution_time.task_runner  # noqa: F401

    logging.disable(logging.INFO)
    gc.freeze()  # as Airflow's executors do before they start the process of a task
    begun = time.process_time()
    import airflow_provider_sfstream.operators as operators

    for module in pkgutil.iter_modules(operators.__path__):
        importlib.import_module(f"{operators.__name__}.{module.name}")
    imported = time.process_time()
    execute = prepared(task, folder, manifest)
    started = time.process_time()
    execute()
    return {"import": imported - begun, task: time.process_time() - started}


def prepared(task: str, folder: str, manifest: str) -> Callable[[], Any]:
    """Return the ``execute`` of a task's operator, with its context."""
    from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
    from airflow_provider_sfstream.operators.event_log import EventLogOperator
    from airflow_provider_sfstream.operators.replica import ReplicaOperator
    from tests.support.tasks import context_for

    operator: Any
    if task.startswith("drain"):
        Path(folder).mkdir()
        database = {"conn_type": "sqlite", "host": f"{folder}/../store.db"}
        os.environ["AIRFLOW_CONN_SFSTREAM_REPLAY_STORE"] = json.dumps(database)
        store: Any = "landing" if task == "drain" else "table"
        arguments: dict[str, Any] = {"topic": "/event/Order__e", "landing_url": folder, "max_events": 1}
        operator = DrainReplayWindowOperator(
            task_id=task, replay_store=store, subscription=Path(folder).name, **arguments
        )
    else:
        kind = EventLogOperator if task == "event_log" else ReplicaOperator
        operator = kind(task_id=task, windows=manifest, output_url=folder)
    return partial(operator.execute, context_for(task))


if __name__ == "__main__":
    main()
