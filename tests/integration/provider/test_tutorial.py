"""The tutorial, command by command, as a user types it, with the packages of this environment.

`make release-check` sets ``SFSTREAM_TUTORIAL_PROGRAMS`` to the programs of another environment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.airflow_stack import end_process, free_port
from tests.support.spark import short_lived_environment

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "tutorial.md").read_text()
INSTALL, ORG, CONNECT, PUBLISH, LOOK, AGAIN, SPARK = re.findall(r"^```bash\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
(DAG,) = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
PORT = "8880"
PROGRAMS = Path(os.environ.get("SFSTREAM_TUTORIAL_PROGRAMS", Path(sys.executable).parent))


class Terminal:
    """Shell in an empty folder with the programs of one environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(free_port())
        own = {"PATH": os.pathsep.join((str(PROGRAMS), os.environ["PATH"])), "PYSPARK_PYTHON": str(PROGRAMS / "python")}
        inherited = short_lived_environment() | own
        self.environment = {
            name: value for name, value in inherited.items() if not name.startswith(("AIRFLOW", "SFSTREAM"))
        }

    def start(self, commands: str, **streams: int) -> subprocess.Popen[str]:
        script = "set -euo pipefail\n" + commands.replace(PORT, self.port)
        command = ["bash", "-c", script]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True, start_new_session=True, **streams
        )

    def run(self, commands: str) -> str:
        process = self.start(commands, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output[-4000:]
        return output


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture
def printed(terminal: Terminal) -> Iterator[list[str]]:
    """Start the local org and return the four lines that it prints: one for programs, and three commands."""
    process = terminal.start(ORG.replace("sfstream-localorg", "exec sfstream-localorg"), stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield [process.stdout.readline().strip() for _ in range(4)]
    finally:
        end_process(process)
        process.stdout.close()


@pytest.mark.extended
def test_commands_of_the_tutorial_produce_a_table(terminal: Terminal, printed: list[str]) -> None:
    installing = [line for line in INSTALL.splitlines() if "venv" not in line and not line.startswith("pip")]
    assert len(INSTALL.splitlines()) - len(installing) == 3
    terminal.environment |= {"AIRFLOW_HOME": str(terminal.folder / "airflow")}
    terminal.environment |= {"AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    terminal.run("\n".join(installing))
    assert CONNECT.startswith("airflow connections add salesforce_default")
    terminal.run(next(line for line in printed if line.startswith("airflow connections add salesforce_default")))
    terminal.run(PUBLISH)
    dag_file = terminal.folder / "airflow" / "dags" / "orders.py"
    dag_file.write_text(DAG)

    environment = terminal.environment
    terminal.environment = environment | {"JAVA_HOME": str(terminal.folder / "none")}  # EventLogOperator needs no Java
    first = terminal.run(LOOK)
    assert re.search(r"1\.0 +┆ Ada .*\n.*2\.0 +┆ Grace ", first), first[-2000:]
    assert "Linus" not in first
    second = terminal.run(AGAIN)
    shown = second.rpartition("Number__c")[2]
    assert all(name in shown for name in ("Ada", "Grace", "Linus"))
    assert "/event/Order__e" in shown
    assert "/event/Order__e is empty: no new event was received" in terminal.run("airflow dags test orders")

    terminal.environment = environment
    terminal.run(AGAIN.partition("airflow")[0].replace("Linus", "Margaret"))
    assert "Margaret" in terminal.run(SPARK + LOOK.partition("\n")[2])
    assert "SparkSubmitEventLogOperator(" in dag_file.read_text()
