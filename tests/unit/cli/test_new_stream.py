"""The DAG file that ``sfstream init`` writes, for each kind of topic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_sfstream.cli.new_stream import dag_files
from airflow_provider_sfstream.salesforce.topics import Topic
from tests.support.airflow_names import DagBag

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
LANDING, TABLES = "s3://lake/landing", "s3://lake/tables"
EVENT_LOG, REPLICA = ["drain", "event_log"], ["drain", "refresh", "replica"]
TASKS = {
    "/event/Order__e": EVENT_LOG,
    "/event/Orders__chn": EVENT_LOG,
    "/data/AccountChangeEvent": REPLICA,
    "/data/Sales__chn": REPLICA,
    "/topic/Orders?Status='Open'": EVENT_LOG,
    "/u/Or\"der's\\n/é{{x}}": EVENT_LOG,
}


def test_dag_of_each_kind_of_topic_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")  # Airflow 3.1 and 3.2 add their examples to a DagBag
    expected = {}
    for number, (topic, task_ids) in enumerate(TASKS.items()):
        for output_url in (TABLES, None):
            path = tmp_path / f"dag_{number}{'_drain' * (output_url is None)}.py"
            expected[path.stem] = (topic, output_url, task_ids if output_url else ["drain"])
            values = {"schedule": "@hourly", "salesforce_conn_id": "org", "landing_url": LANDING}
            files = dag_files(Topic.parse(topic), [path], {**values, "output_url": output_url})
            path.write_bytes(files[path])

    bag = DagBag(dag_folder=tmp_path, bundle_path=tmp_path)

    assert bag.import_errors == {}
    assert bag.dags.keys() == expected.keys()
    for dag_id, (topic, output_url, task_ids) in expected.items():
        dag = bag.dags[dag_id]
        assert sorted(dag.task_ids) == task_ids
        assert (dag.catchup, dag.max_active_runs) == (False, 1)
        assert (dag.get_task("drain").topic, dag.get_task("drain").landing_url) == (topic, LANDING)
        assert {task.salesforce_conn_id for task in dag.tasks if hasattr(task, "salesforce_conn_id")} == {"org"}
        assert {task.output_url for task in dag.tasks if hasattr(task, "output_url")} == {output_url} - {None}
    (tmp_path / "dag_5.py").unlink()  # its topic needs escapes, which ruff writes in another way
    (tmp_path / "dag_5_drain.py").unlink()
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--config", PROJECT]
        subprocess.run([*ruff, tmp_path], check=True, timeout=60)
