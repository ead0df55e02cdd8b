"""Where the ids of records that are to be erased are seen, and where not."""

from __future__ import annotations

import json

from airflow.sdk import DAG, task

from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator
from tests.support.airflow_names import DagSerialization

ADA = "003xx0000000Ada"


def test_ids_are_no_part_of_a_dag_as_airflow_stores_it_and_a_task_that_gives_them_comes_first() -> None:
    given = {"entity": "Contact", "landing_url": "s3://lake", "event_log_urls": [], "replica_urls": []}
    with DAG("erase") as dag:

        @task
        def gathered() -> list[str]:
            return []

        erase = EraseRecordsOperator(task_id="erase", ids=[ADA], **given)
        later = EraseRecordsOperator(task_id="later", ids=gathered(), **given)

    assert ADA not in json.dumps(DagSerialization.to_dict(dag))
    assert ADA not in repr(erase)
    assert "ids" not in erase.template_fields
    assert later.upstream_task_ids == {"gathered"}
