"""DAG that creates, changes and deletes a managed event subscription; run as a script, it runs twice.

The last run writes the results of its tasks to the file that the first command line argument names.
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
        """Write the results of the tasks."""
        Path(sys.argv[1]).write_text(json.dumps(results))

    delete = DeleteManagedEventSubscriptionOperator(
        task_id="delete", managed_subscription="{{ ti.xcom_pull('create')['id'] }}", confirm_position_loss=True
    )
    create >> update >> stop >> start >> delete
    write([create.output, update.output, stop.output, start.output, delete.output])

if __name__ == "__main__":
    states = [dag.test().state for _ in range(2)]
    sys.exit(states != ["success", "success"])
