"""Record IDs of an erasure: absent from the serialized DAG and from reprs."""

from __future__ import annotations

import json

from airflow.sdk import DAG, task

from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator
from tests.support.airflow_names import DagSerialization

ADA = "003xx0000000Ada"


def test_erased_ids_are_not_serialized_and_their_task_runs_first() -> None:
    arguments = {"entity": "Contact", "landing_url": "s3://lake", "event_log_urls": [], "replica_urls": []}
    with DAG("erase") as dag:

        @task
        def gathered() -> list[str]:
            return []

        erase = EraseRecordsOperator(task_id="erase", ids=[ADA], **arguments)
        later = EraseRecordsOperator(task_id="later", ids=gathered(), **arguments)

    assert ADA not in json.dumps(DagSerialization.to_dict(dag))
    assert ADA not in repr(erase)
    assert "ids" not in erase.template_fields
    assert later.upstream_task_ids == {"gathered"}
