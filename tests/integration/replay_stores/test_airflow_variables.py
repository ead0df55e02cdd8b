"""The Variable store on the Variables of a real Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from tests.support.airflow_names import REPORTS_MISSING_VARIABLES
from tests.support.replay_stores import DictVariables

REPOSITORY = Path(__file__).parents[3]
DEADLINE = 240


@pytest.mark.extended
def test_two_runs_of_a_dag_move_the_position_in_a_variable(tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "tests" / "support"),
        "PYTHONPATH": str(REPOSITORY),
    }

    def run(*command: str, ends: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE,
        )
        assert done.returncode == ends, done.stdout
        return done.stdout

    from tests.support.variable_store_dag import STREAM

    key = DocumentReplayStore(variables=DictVariables()).key(STREAM)
    run("-m", "airflow", "db", "migrate")
    if not REPORTS_MISSING_VARIABLES:
        output = run(str(REPOSITORY / "tests" / "support" / "variable_store_dag.py"), ends=1)
        assert f"airflow variables set {key} new" in " ".join(output.split())
        run("-m", "airflow", "variables", "set", key, "new")
    run(str(REPOSITORY / "tests" / "support" / "variable_store_dag.py"))
    run("-m", "airflow", "variables", "export", "variables.json")

    exported = json.loads((tmp_path / "variables.json").read_text())
    assert list(exported) == [key]
    entry = exported[key]
    document = entry["value"] if isinstance(entry, dict) and "value" in entry else entry
    document = json.loads(document) if isinstance(document, str) else document
    assert document["format"] == "sfstream-replay-position"
    assert (document["position"], document["fence"]) == ("0002", 2)
    assert document["updated_by"].startswith("variable_store.drain run manual__")
    assert document["stream"]["topic"] == "/event/Order__e"
