"""``sfstream init`` with a local org and a real Airflow database: questions, refusals, and the DAGs that it writes."""

from __future__ import annotations

import logging
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from airflow.models import Connection
from airflow.utils.session import create_session
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from airflow_provider_sfstream.cli.main import app
from tests.support.airflow_database import airflow_database
from tests.support.localorg import wait_until
from tests.support.secret_sweep import SecretSweep
from tests.support.shared_org import SharedOrg, org, shared_org

__all__ = ["org", "shared_org"]
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with airflow_database(tmp_path_factory.mktemp("airflow") / "airflow.db"):
        yield


@pytest.fixture
def run(org: SharedOrg, database: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run ``sfstream init`` without a terminal, and check that its output does not contain the secret."""
    monkeypatch.setenv("SFSTREAM_CONSUMER_SECRET", org.client_secret)
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "client")  # the command sets it; pytest restores it after the test
    monkeypatch.setattr("airflow_provider_sfstream._airflow._database", [])

    def init(*arguments: str, exits: int = 0) -> Result:
        result = CliRunner().invoke(app, ["init", *arguments])
        output = f"{result.stdout}\n{result.stderr}"
        assert result.exit_code == exits, f"{output}\n{result.exception!r}"
        assert org.client_secret not in output
        assert "Traceback" not in output
        return result

    yield init
    logging.disable(logging.NOTSET)


def login(org: SharedOrg) -> list[str]:
    """Return the options of a new connection to the org."""
    login_url = ["--login-url", str(org.info["instance_url"]), "--consumer-key", org.client_id]
    return [*login_url, "--pubsub-endpoint", f"http://{org.grpc_target}"]


def stored_connections() -> dict[str, Connection]:
    with create_session() as session:
        return {row.conn_id: row for row in session.query(Connection).filter(Connection.conn_id.like("init_%"))}


def test_connection_and_dags_are_written_once(org: SharedOrg, run: Run, tmp_path: Path) -> None:
    dags, conn_id = tmp_path / "new" / "dags", "init_once"
    dag_id = f"sfstream_event_{org.topic.removeprefix('/event/')}"
    folders = ["--dag-folder", str(dags), "--landing-url", str(tmp_path / "landing")]
    options = [org.topic, "--salesforce-conn-id", conn_id, *folders, *login(org)]

    plan = run(*options, exits=2)
    assert f"New DAG     {dags / dag_id}.py\n" in plan.stderr
    assert "requires a terminal" in plan.stderr
    assert (dags.parent.exists(), conn_id in stored_connections()) == (False, False)

    written = run(*options, "--yes")
    assert [path.name for path in sorted(dags.iterdir())] == [f"{dag_id}.py", "sfstream_watchdog.py"]
    assert f"Wrote {dags / dag_id}.py\n" in written.stdout
    assert f"airflow dags unpause {dag_id}\n" in written.stdout
    stored = stored_connections()[conn_id]
    assert (stored.conn_type, stored.port) == ("salesforce", 0)
    assert stored.extra_dejson["consumer_secret"] == org.client_secret
    sweep = SecretSweep({"consumer secret": org.client_secret})
    sweep.files(tmp_path)
    assert sweep.text_count >= 6
    assert sweep.found == []

    (dags / "sfstream_watchdog.py").rename(dags / "alerts.py")
    before = {path: path.read_bytes() for path in dags.iterdir()}
    again = run(*options, "--yes", "--schedule", "@daily", exits=2)
    assert f"{dags / dag_id}.py exists" in again.stderr
    other = run("/event/Other__e", *options[1:], "--no-test", "--yes", "--schedule", "@daily")
    assert "Watchdog    exists, unchanged" in other.stderr
    assert f"Connection  {conn_id}: exists, unchanged" in other.stderr
    assert {path: path.read_bytes() for path in before} == before
    assert len(list(dags.iterdir())) == 3


@pytest.mark.parametrize(
    ("wrong", "exits", "message"),
    [
        (["Order__e"], 1, "'Order__e' is not a topic name"),
        (["/event/Order__e", "--schedule", "sometimes"], 2, "'sometimes' is not a cron expression"),
        (["/event/Order__e", "--salesforce-conn-id", "a b"], 2, "'a b' is not a connection ID"),
        (["/event/Order__e", "--landing-url", "s3://key:word@lake/landing"], 1, "landing_url contains a password"),
        (["/event/Order__e", "--login-url", "https://login.salesforce.com"], 1, "My Domain"),
        (["/event/Order__e", "--dag-folder", __file__], 2, "is not a folder"),
        (["/event/NoSuchEvent__e"], 1, "Failed: Topic permission: "),
        (["/event/Order__e", "--consumer-key", "unknown"], 1, "Failed: Login: "),
        ([], 2, "set TOPIC"),
    ],
)
def test_wrong_input_and_failed_tests_change_nothing(
    org: SharedOrg, run: Run, tmp_path: Path, wrong: list[str], exits: int, message: str
) -> None:
    folders = ["--dag-folder", str(tmp_path / "dags"), "--landing-url", str(tmp_path / "landing")]
    result = run("--salesforce-conn-id", "init_wrong", *folders, *login(org), *wrong, "--yes", exits=exits)
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []
    assert "init_wrong" not in stored_connections()
    assert "AIRFLOW_CONN_INIT_WRONG" not in os.environ


def test_command_for_a_connection_that_is_not_stored_has_no_secret(org: SharedOrg, run: Run, tmp_path: Path) -> None:
    folders = ["--dag-folder", str(tmp_path), "--landing-url", "lake/landing", "--no-tables"]
    conn = ["--salesforce-conn-id", "init_elsewhere", "--no-store-connection", *login(org)]
    result = run(org.topic, *folders, *conn, "--yes")
    assert "airflow connections add init_elsewhere --conn-type salesforce" in result.stdout
    assert "init_elsewhere" not in stored_connections()
    [text] = [path.read_text() for path in tmp_path.glob("sfstream_event_*.py")]
    assert f'landing_url="{Path.cwd()}/lake/landing"' in text
    assert "EventLogOperator" not in text


def test_missing_database_is_named(org: SharedOrg, run: Run, tmp_path: Path) -> None:
    with airflow_database(tmp_path / "dropped.db"), create_session() as session:
        session.connection().exec_driver_sql("DROP TABLE dag")
        session.commit()
        result = run(org.topic, "--dag-folder", str(tmp_path / "dags"), *login(org), "--yes", exits=1)
    assert "Airflow's database cannot be used" in " ".join(result.stderr.split())
    assert not (tmp_path / "dags").exists()


class Terminal:
    """Program on a terminal of its own; ``shown`` is all that the terminal showed, with the echo of typed text."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        self.process = subprocess.Popen(command, **streams, env=environment, cwd=folder, start_new_session=True)
        os.close(theirs)
        self.shown = ""

    def answer(self, prompt: str, text: str, *, is_hidden: bool = False) -> None:
        begin = len(self.shown)
        while prompt not in self.shown[begin:]:
            assert self._read(), f"no {prompt!r} in {self.shown}"
        if is_hidden:  # text that is typed before would be echoed
            wait_until(lambda: not termios.tcgetattr(self._ours)[3] & termios.ECHO, what="hidden input")
        os.write(self._ours, f"{text}\n".encode())

    def end(self) -> int:
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(timeout=60)

    def _read(self) -> bool:
        data = b""
        with suppress(OSError):  # EIO: the program ended
            if select.select([self._ours], [], [], 120)[0]:
                data = os.read(self._ours, 65536)
        self.shown += data.decode()
        return bool(data)


@pytest.mark.extended
def test_dags_of_answers_on_a_terminal_run(org: SharedOrg, tmp_path: Path) -> None:
    home, bin_folder = tmp_path / "home", Path(sys.executable).parent
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SFSTREAM", "_A"))
    }
    environment = {**inherited, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "COLUMNS": "200"}
    outputs = []

    def airflow(*arguments: str) -> str:
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        outputs.append(done.stdout + done.stderr)
        assert done.returncode == 0, outputs[-1][-4000:]
        return outputs[-1]

    airflow("db", "migrate")
    org.knobs(keepalive_seconds=0.3)
    org.publish(org.topic, [{"Number__c": float(number)} for number in range(3)])
    dag_id = f"sfstream_event_{org.topic.removeprefix('/event/')}"
    endpoint = ["--pubsub-endpoint", f"http://{org.grpc_target}"]
    sweep = SecretSweep({"consumer secret": org.client_secret})
    with sweep.command_lines():
        terminal = Terminal([str(bin_folder / "sfstream"), "init", *endpoint], environment, tmp_path)
        terminal.answer("Topic, for example /event/Order__e: ", org.topic)
        terminal.answer(f"DAG folder [{home}/dags]: ", "")
        terminal.answer("Schedule (cron, UTC) [*/15 * * * *]: ", "0 * * * *")
        terminal.answer(f"URL of the landing [{home}/sfstream/landing]: ", "lake/landing")
        terminal.answer("Write tables (event log)? [Y/n]: ", "")
        terminal.answer(f"URL of the tables [{tmp_path}/lake/tables]: ", "")
        terminal.answer("Airflow connection of the org [salesforce_default]: ", "")
        terminal.answer("Store a new one in Airflow's database? [Y/n]: ", "y")
        terminal.answer("Login URL, for example https://mycompany.my.salesforce.com: ", str(org.info["instance_url"]))
        terminal.answer("Consumer key of the external client app: ", org.client_id)
        terminal.answer("Consumer secret (not shown):", org.client_secret, is_hidden=True)
        terminal.answer("Log in and test the topic first? [Y/n]: ", "")
        terminal.answer("Continue? [y/N]: ", "y")
        assert terminal.end() == 0, terminal.shown
    outputs.append(terminal.shown)
    assert "Works: Logged in to org " in terminal.shown

    airflow("dags", "test", dag_id)
    rows = DeltaTable(str(tmp_path / "lake" / "tables" / org.topic.removeprefix("/event/"))).to_pyarrow_table()
    assert sorted(rows["Number__c"].to_pylist()) == [0.0, 1.0, 2.0]
    assert 'schedule="0 * * * *"' in (home / "dags" / f"{dag_id}.py").read_text()
    assert "state=success" in airflow("dags", "test", "sfstream_watchdog")

    for output in outputs:
        sweep.search("an output", output.encode())
    sweep.files(tmp_path)  # Airflow encrypts connections in its database
    assert sweep.found == []
