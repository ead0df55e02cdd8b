"""Secret sweep: it finds a planted secret in every place and form, and reports nothing else."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import create_engine, text

from tests.support.secret_sweep import SecretSweep

SECRET = "s3cret/of=the+app"
FORMS = [
    SECRET,
    f"client_secret={quote(SECRET, safe='')}&x",
    json.dumps({"extra": json.dumps({"secret": SECRET})}),
    base64.b64encode(f"key:{SECRET}".encode()).decode(),
    base64.urlsafe_b64encode(f"a{SECRET}b".encode()).decode(),
]


@pytest.fixture
def sweep() -> SecretSweep:
    return SecretSweep({"consumer secret": SECRET})


@pytest.mark.parametrize("planted", FORMS)
def test_sweep_finds_a_secret_in_a_file(sweep: SecretSweep, tmp_path: Path, planted: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "attempt=1.log").write_text(f"INFO - {planted}\n")
    (tmp_path / "logs" / "attempt=2.log").write_text("INFO - nothing\n")
    sweep.files(tmp_path)
    assert sweep.found == [f"consumer secret: {tmp_path}/logs/attempt=1.log"]


def test_sweep_finds_a_secret_in_a_file_name(sweep: SecretSweep, tmp_path: Path) -> None:
    (tmp_path / quote(SECRET, safe="")).touch()
    sweep.files(tmp_path)
    assert len(sweep.found) == 1


@pytest.mark.parametrize("planted", FORMS)
def test_sweep_finds_a_secret_in_a_database(sweep: SecretSweep, tmp_path: Path, planted: str) -> None:
    url = f"sqlite:///{tmp_path}/airflow.db"
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in ("xcom", "connection", "rendered_task_instance_fields"):
            connection.execute(text(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, value JSON, data BLOB)"))
        for table in ("xcom", "connection"):
            connection.execute(text(f"INSERT INTO {table} (value) VALUES (:value)"), {"value": json.dumps([planted])})
        connection.execute(
            text("INSERT INTO rendered_task_instance_fields (data) VALUES (:data)"), {"data": planted.encode()}
        )
    engine.dispose()
    sweep.database(url)
    assert sorted(sweep.found) == [
        "consumer secret: rendered_task_instance_fields.data",
        "consumer secret: xcom.value",
    ], "the connection table may contain the secret"


def test_sweep_finds_a_secret_on_a_command_line(sweep: SecretSweep) -> None:
    with sweep.command_lines(every=0.01):
        program = "import sys; sys.stdin.read()"
        process = subprocess.Popen([sys.executable, "-c", program, f"--secret={SECRET}"], stdin=subprocess.PIPE)
        try:
            while not sweep.found:
                assert process.poll() is None
        finally:
            process.communicate()
    assert sweep.found == [f"consumer secret: the command line of process {process.pid}"]
