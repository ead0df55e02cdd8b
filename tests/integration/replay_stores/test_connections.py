"""Commands of docs/replay-stores.md that create the connection of a table store, run with a real Airflow."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_sfstream.replay_stores.table.urls import sqlalchemy_url

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "replay-stores.md").read_text().replace("\\\n", " ")
COMMANDS = re.findall(r"^airflow (connections add sfstream_replay_store .*)$", GUIDE, re.MULTILINE)
EXPECTED = [
    "postgresql+psycopg2://sfstream:s3cret@db.example.com:5432/positions",
    "sqlite:////srv/airflow/positions.db",
    "postgresql+psycopg2://sfstream:s3cret@db.example.com:5432/positions",
    "mysql+pymysql://sfstream:s3cret@db.example.com:3306/positions?charset=utf8mb4",
    "sqlite:////srv/airflow/positions.db",
]

IN_ONE_PROCESS = """
import json, sys
from airflow.__main__ import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["airflow", *command]
    main()
"""
"""Runs commands of ``airflow``; a process for each would import Airflow anew."""


@pytest.mark.extended
def test_each_documented_command_creates_the_expected_connection(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    environment |= {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}

    commands = [["db", "migrate"]]
    for number, command in enumerate(COMMANDS):
        named = command.replace("sfstream_replay_store", f"store_{number}", 1).replace("$PASSWORD", "s3cret")
        commands.append(shlex.split(named))
    commands.append(["connections", "export", str(tmp_path / "connections.json")])
    program = [sys.executable, "-c", IN_ONE_PROCESS, json.dumps(commands)]
    subprocess.run(program, env=environment, check=True, timeout=600, stdout=subprocess.DEVNULL)
    connections = json.loads((tmp_path / "connections.json").read_text())
    urls = []
    for number in range(len(COMMANDS)):
        stored = connections[f"store_{number}"]
        fields = (stored[name] for name in ("conn_type", "host", "port", "schema", "login", "password"))
        extra = json.loads(stored["extra"]) if stored["extra"] else {}
        urls.append(sqlalchemy_url(*fields, extra).render_as_string(hide_password=False))
    assert urls == EXPECTED
