"""``make up``: Airflow with its UI, a local Salesforce org and the example DAGs, until Ctrl-C.

System tests can run against it (``pytest --up``, see CONTRIBUTING.md), so it is set up like the Airflow of the tests.
"""

from __future__ import annotations

import shutil
import signal
import threading
from datetime import UTC, datetime

from airflow_stack import AirflowStack, running_airflow
from demo import DAG_ID, FIELDS, ROOT, add_connections, publish

from sfstream_localorg.process import LocalOrg

WORK = ROOT / ".up"


def main() -> None:
    """Start all components, print their addresses, and wait for Ctrl-C."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    stopped = threading.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: stopped.set())
    dags, markers = WORK / "dags", WORK / "markers"
    for folder in (dags, markers):
        folder.mkdir()
    examples = sorted((ROOT / "dags").glob("*.py"))
    for source in (ROOT / "dags").glob("*.*"):
        (dags / source.name).symlink_to(source)
    environment = {
        "SFSTREAM_LAKE": str(WORK / "lake"),
        "SFSTREAM_TEST_MARKERS": str(markers),
        "SFSTREAM_TEST_MINUTE": str((datetime.now(UTC).minute + 30) % 60),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
    }
    with LocalOrg.running(WORK / "org") as org:
        org.define("Order__e", **FIELDS)
        org.push_topic("OrderUpdates", "SELECT Id, Name FROM Account")
        publish(org, 0, 1000)
        stack = AirflowStack(WORK / "airflow", dags, environment)
        with running_airflow(stack, triggerer=True):
            add_connections(stack, org)
            for example in examples:
                stack.wait_for_dag(example.stem)
                stack.unpause(example.stem)
            print(
                f"\n  Airflow:      {stack.url}  (no login: every user of this machine is admin)"
                f"\n  DAG:          {stack.url}/dags/{DAG_ID}"
                f"\n  Local org:    {org.instance_url}  user {org.username}, its admin API {org.admin_url}"
                f"\n  Lake:         {WORK / 'lake'}"
                f"\n  Logs:         {stack.home}"
                "\n\n  1,000 orders were published. To publish one more:"
                f"\n    curl -X POST {org.admin_url}/events -H 'Content-Type: application/json' "
                '-d \'{"topic": "/event/Order__e", "events": [{"Order_Number__c": "O-1", "Amount__c": 1.5}]}\''
                "\n\n  Press Ctrl-C to stop.\n",
                flush=True,
            )
            stopped.wait()


if __name__ == "__main__":
    main()
