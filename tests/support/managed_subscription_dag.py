"""A DAG with the life of a managed event subscription, and a main that runs it twice with ``dag.test()``.

What the tasks of the last run gave is written to the file named by the first argument.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from airflow.sdk import DAG, task

from airflow_provider_sfstream.operators.managed_event_subscription import (
    DeleteManagedEventSubscriptionOperator,
    ManagedEventSubscriptionOperator,
)

with DAG("managed_subscription", schedule=None, params={"topic": "/event/Order__e"}) as dag:
    create = ManagedEventSubscriptionOperator(
        task_id="create", managed_subscription="Orders", topic="{{ params.topic }}", error_recovery_replay="LATEST"
    )
    update = ManagedEventSubscriptionOperator(
        task_id="update",
        managed_subscription="{{ ti.xcom_pull('create')['id'] }}",
        subscription_label="Sales for {{ dag.dag_id }}",
    )
    stop = ManagedEventSubscriptionOperator(
        task_id="stop", managed_subscription="Orders", state="stopped", confirm_position_loss=True
    )
    start = ManagedEventSubscriptionOperator(task_id="start", managed_subscription="Orders")

    @task
    def write(results: list[object]) -> None:
        """Write what the tasks gave."""
        Path(sys.argv[1]).write_text(json.dumps(results))

    delete = DeleteManagedEventSubscriptionOperator(
        task_id="delete", managed_subscription="{{ ti.xcom_pull('create')['id'] }}", confirm_position_loss=True
    )
    create >> update >> stop >> start >> delete
    write([create.output, update.output, stop.output, start.output, delete.output])

if __name__ == "__main__":
    states = [dag.test().state for _ in range(2)]
    sys.exit(states != ["success", "success"])
