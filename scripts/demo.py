"""``make demo``: two runs of the micro-batch DAG on a real Airflow against a local Salesforce org.

The last line of output is JSON with the keys ``published``, ``landed``, ``rows`` and ``duplicates``.
"""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars
from airflow_stack import AirflowStack, running_airflow, wait_for

from sfstream_localorg.process import LocalOrg

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".demo"
TOPIC = "/event/Order__e"
DAG_ID = "sfstream_micro_batch"
FIELDS = {"Order_Number__c": "string", "Amount__c": "double"}
FIRST_BATCH, SECOND_BATCH = 5000, 1500
STARTED = time.monotonic()


def say(text: str) -> None:
    """Print a step and the seconds since the start."""
    print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", flush=True)


def publish(org: LocalOrg, first: int, count: int, **more: Any) -> None:
    """Publish ``count`` orders, numbered from ``first``."""
    numbers = range(first, first + count)
    org.publish(TOPIC, [{"Order_Number__c": f"O-{number:06d}", "Amount__c": number / 4, **more} for number in numbers])


def position(stack: AirflowStack) -> str:
    """Return the recorded position, which is the value of the stream's Airflow Variable."""
    recorded = stack.variables("sfstream_position")
    return str(json.loads(recorded[0]["value"])["position"]) if recorded else "none"


def finish_run(stack: AirflowStack, run_id: str) -> dict[str, Any]:
    """Wait for a run and return the result of its drain."""
    say(f"running {run_id}: {stack.url}/dags/{DAG_ID}/runs/{run_id}")
    try:
        state = stack.wait_for_run(DAG_ID, run_id)
    except TimeoutError as error:
        state = str(error)
    states = stack.task_states(DAG_ID, run_id)
    if state != "success":
        for task, result in states.items():
            if result in ("failed", "up_for_retry"):
                print(stack.task_log(DAG_ID, run_id, task))
        raise SystemExit(f"run {run_id} did not succeed ({state}): {states}; more logs are in {stack.home}")
    window: dict[str, Any] = stack.xcom(DAG_ID, run_id, "drain")
    say(
        f"run ended: {states}; window {window['window_id']} has {window['event_count']:,} events, "
        f"position {window['after']} -> {window['through']}"
    )
    return window


def is_skipped(stack: AirflowStack, run_id: str) -> bool:
    """Return whether the drain of a run found no new events."""
    return stack.task_states(DAG_ID, run_id)["drain"] == "skipped"


def sums(org: LocalOrg, lake: Path) -> dict[str, int]:
    """Count the published events, the landed events, the rows of the table and the duplicates, each at its source."""
    manifests = [json.loads(path.read_text()) for path in (lake / "landing").rglob("manifest.json")]
    replay_ids = polars.read_delta(str(lake / "tables" / "Order__e"), columns=["_replay_id"])["_replay_id"]
    return {
        "published": len(org.record(TOPIC)),
        "landed": sum(manifest["event_count"] for manifest in manifests),
        "rows": len(replay_ids),
        "duplicates": len(replay_ids) - replay_ids.n_unique(),
    }


def demo(org: LocalOrg) -> dict[str, int]:
    """Publish events, run the DAG, publish more, run it again, and return the counts."""
    lake = WORK / "lake"
    stack = AirflowStack(
        WORK / "airflow",
        ROOT / "dags",
        {
            "SFSTREAM_LAKE": str(lake),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        },
    )
    say("starting Airflow: API server, scheduler, DAG processor")
    with ThreadPoolExecutor(1) as pool:
        half = FIRST_BATCH // 2
        publishing = pool.submit(
            lambda: (
                publish(org, 0, half),
                org.define("Order__e", **FIELDS, Currency__c="string"),
                publish(org, half, FIRST_BATCH - half, Currency__c="EUR"),
            )
        )
        with running_airflow(stack):
            publishing.result()
            say(f"published {FIRST_BATCH:,} events of two schema versions on {TOPIC}")
            add_connections(stack, org)
            stack.wait_for_dag(DAG_ID)
            before = position(stack)
            stack.unpause(DAG_ID)
            first = finish_run(stack, wait_for(lambda: stack.run_ids(DAG_ID), 60, "the scheduled run")[0])
            publish(org, FIRST_BATCH, SECOND_BATCH, Currency__c="USD")
            say(f"published {SECOND_BATCH:,} more")
            # If a scheduled run started in the meantime, it drained the events, and the triggered run is skipped.
            stack.wait_for_run(DAG_ID, stack.trigger(DAG_ID))
            later = stack.run_ids(DAG_ID)[1:]
            second = finish_run(stack, next(run for run in later if not is_skipped(stack, run)))
            if second["after"] != first["through"]:
                raise SystemExit(f"the second run began at {second['after']}, the first ended at {first['through']}")
            after = position(stack)
    totals = sums(org, lake)
    print("\n  " + "\n  ".join(f"{name:16}{value:>24,}" for name, value in totals.items()))
    print(f"  {'position before':16}{before:>24}\n  {'position after':16}{after:>24}\n")
    return totals


def add_connections(stack: AirflowStack, org: LocalOrg) -> None:
    """Create the two connections that the DAG names, as a user would in the UI."""
    stack.add_connection("salesforce_default", **org.airflow_connection())
    stack.add_connection("spark_default", conn_type="spark", host="local[2]")


def main() -> None:
    """Run the demo in a fresh folder and end every process."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    say("starting a local Salesforce org")
    with LocalOrg.running(WORK / "org") as org:
        org.define("Order__e", **FIELDS)
        totals = demo(org)
    print(json.dumps(totals))
    if not totals["published"] == totals["landed"] == totals["rows"] or totals["duplicates"]:
        raise SystemExit("published, landed and rows differ: see the manifests and logs under .demo")


if __name__ == "__main__":
    main()
