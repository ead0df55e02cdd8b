"""The ``sfstream`` command with a local org, a landing and a table store: its output and its effects."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from airflow_provider_sfstream._airflow import database
from airflow_provider_sfstream.cli.main import app
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.prune_replay_windows import PruneReplayWindowsOperator
from airflow_provider_sfstream.operators.replay_position import ResetReplayPositionOperator
from airflow_provider_sfstream.operators.restore_replay_position import RestoreReplayPositionOperator
from airflow_provider_sfstream.replay_stores.table import TableReplayStore
from airflow_provider_sfstream.salesforce.streams import Gap, Stream
from tests.support.iceberg_lake import IcebergLake
from tests.support.localorg import wait_until
from tests.support.pruning import DailyWindows, day
from tests.support.replay_stores import StoreUnderTest
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.spark import spark_environment
from tests.support.tasks import context_for, set_connection

__all__ = ["org", "shared_org"]
ORG = "00D000000000001EAA"
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def surroundings(org: SharedOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    set_connection(monkeypatch, "sfstream_status", conn_type="sqlite", host=str(tmp_path / "status.db"))
    monkeypatch.setenv("AIRFLOW__SFSTREAM__STATUS_CONN_ID", "sfstream_status")
    monkeypatch.setenv("SFSTREAM_LANDING_URL", str(tmp_path / "landing"))
    monkeypatch.setenv("SFSTREAM_REPLAY_STORE", "table")
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "client")  # the command sets it; pytest restores it after the test
    monkeypatch.setattr("airflow_provider_sfstream._airflow._database", [])
    monkeypatch.setattr(database, "existing_dags", lambda ids, _: dict.fromkeys(ids, True))
    monkeypatch.setenv("COLUMNS", "200")
    org.knobs(keepalive_seconds=0.2)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def run(org: SharedOrg) -> Run:
    """Run a command and check that its output does not contain a secret of the connection."""

    def command(*arguments: str, exits: int = 0, **options: Any) -> Result:
        result = CliRunner().invoke(app, arguments, **options)
        output = f"{result.stdout}\n{result.stderr}"
        assert result.exit_code == exits, f"{output}\n{result.exception!r}"
        assert org.info["client_secret"] not in output
        assert "Traceback" not in output
        return result

    return command


def drain(org: SharedOrg, tmp_path: Path, numbers: range, run_id: str = "run-1", hour: int = 1) -> dict[str, Any]:
    org.publish(org.topic, [{"Number__c": float(number)} for number in numbers])
    operator = DrainReplayWindowOperator(
        task_id="drain",
        topic=org.topic,
        landing_url=str(tmp_path / "landing"),
        replay_store="table",
        idle_timeout=0.5,
    )
    return operator.execute(context_for("drain", run_id=run_id, hour=hour))


def store_of(tmp_path: Path, name: str = "replay.db") -> TableReplayStore:
    return TableReplayStore(f"sqlite:///{tmp_path / name}")


def stream_of(org: SharedOrg, subscription: str = "airflow") -> Stream:
    return Stream(str(org.admin("GET", "/org")["org_id"]), "pubsub", org.topic, subscription)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_topics_command_lists_every_kind_of_topic(org: SharedOrg, run: Run) -> None:
    org.push_topic("OrderUpdates", "SELECT Id, Name FROM Account")
    org.generic_channel("/u/Orders")
    org.channel("Sales__chn", ["AccountChangeEvent"])

    found = {row["topic"]: row["events"] for row in json.loads(run("topics", "--json").stdout)}

    assert found[org.topic] == "platform events"
    assert found["/data/AccountChangeEvent"] == "change events"
    assert found["/data/Sales__chn"] == "custom channel"
    assert (found["/topic/OrderUpdates"], found["/u/Orders"]) == ("PushTopic", "generic events")
    assert f"{org.topic}  " in run("topics").stdout


def test_peek_shows_decoded_events_and_moves_nothing(org: SharedOrg, run: Run, tmp_path: Path) -> None:
    ids = org.publish(org.topic, [{"Number__c": float(number)} for number in range(5)])
    delivered = org.delivered

    seen = lines(run("peek", org.topic, "--max-events", "3"))

    assert [row["Number__c"] for row in seen] == [0.0, 1.0, 2.0]
    assert [row["_replay_id"] for row in seen] == [each.hex() for each in ids[:3]]
    assert org.delivered - delivered == 3
    assert not (tmp_path / "landing").exists()
    assert not (tmp_path / "replay.db").exists()
    after = lines(run("peek", org.topic, "--start-from", ids[3].hex(), "--idle-timeout", "0.3"))
    assert [row["Number__c"] for row in after] == [4.0]
    quiet = run("peek", org.topic, "--start-from", ids[4].hex(), "--idle-timeout", "0.3")
    assert (quiet.stdout, "Received no event" in quiet.stderr) == ("", True)


def test_peek_of_new_events_on_a_quiet_topic_receives_none(org: SharedOrg, run: Run) -> None:
    org.publish(org.topic, [{"Number__c": 1.0}])
    org.knobs(keepalive_seconds=60)  # Salesforce sends nothing at all in time
    quiet = run("peek", org.topic, "--start-from", "latest", "--max-seconds", "2", "--idle-timeout", "0.3")
    assert (quiet.stdout, "Received no event" in quiet.stderr) == ("", True)


def test_peek_follows_a_topic_until_it_is_interrupted(org: SharedOrg) -> None:
    with subprocess.Popen(
        command("peek", org.topic, "--follow"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        numbers = []
        for number in range(3):  # each event is published after the one before was printed
            org.publish(org.topic, [{"Number__c": float(number)}])
            numbers.append(json.loads(process.stdout.readline())["Number__c"])
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert numbers == [0.0, 1.0, 2.0]
    assert "Traceback" not in errors
    assert process.returncode == 130


def test_peek_reads_the_streaming_api_too(org: SharedOrg, run: Run) -> None:
    org.publish(org.topic, [{"Number__c": 7.0}])
    [row] = lines(run("peek", org.topic, "--api", "streaming", "--max-events", "1"))
    assert row["Number__c"] == 7.0


def test_positions_windows_gaps_and_events_of_a_drained_stream_are_shown(
    org: SharedOrg, run: Run, tmp_path: Path
) -> None:
    first = drain(org, tmp_path, range(3))
    second = drain(org, tmp_path, range(3, 5), "run-2", 2)
    gap = Gap(b"\x01", b"\x02", None, datetime(2026, 11, 20, tzinfo=UTC), "aged out")
    store_of(tmp_path).record_gap(stream_of(org), gap)

    [position] = json.loads(run("positions", "--json").stdout)
    assert (position["topic"], position["replay_id"]) == (org.topic, second["through"])
    assert position == json.loads(run("positions", org.topic, "--json").stdout)[0]
    assert second["through"] in run("positions").stdout
    assert position["replay_store"] == "table"
    [missing] = json.loads(run("positions", "--json", "--replay-store", "landing").stdout)
    assert (missing["replay_store"], missing["replay_id"]) == ("landing", None)

    windows = json.loads(run("windows", org.topic, "--since", "9999d", "--json").stdout)
    assert [each["window_id"] for each in windows] == [first["window_id"], second["window_id"]]
    assert [each["event_count"] for each in windows] == [3, 2]
    assert [each["through"] for each in windows] == [windows[1]["after"], second["through"]]
    assert second["window_id"] in run("windows", org.topic, "--since", "9999d").stdout

    [lost] = json.loads(run("gaps", org.topic, "--json").stdout)
    assert (lost["after"], lost["resumed_at"], lost["reason"]) == ("01", "02", "aged out")
    assert "aged out" in run("gaps", org.topic).stdout

    manifests = [each["manifest_url"] for each in windows]
    assert [row["Number__c"] for row in lines(run("decode", *manifests))] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_status_lists_streams_and_filters_by_dag(
    org: SharedOrg, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain(org, tmp_path, range(3))
    [stream] = json.loads(run("status", "--json").stdout)["streams"]
    assert (stream["topic"], sum(stream["hours"])) == (org.topic, 3)
    table = run("status").stdout
    assert stream["level"] in table
    assert "No stream loses events before" in table
    assert org.topic in table
    assert org.topic not in run("status", "--dag-id", "another").stdout
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("_TYPER_FORCE_DISABLE_TERMINAL", "1")
    [row] = (line for line in run("status").stdout.splitlines() if stream["level"] in line)
    assert re.search(rf"{org.topic} .*\d (s|min) ago", row)


def test_forget_deletes_only_the_status_of_one_stream(
    org: SharedOrg, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain(org, tmp_path, range(3))
    monkeypatch.setattr(database, "existing_dags", lambda ids, _: {})
    assert "DAG deleted" in run("status").stdout
    [stream] = json.loads(run("status", "--json").stdout)["streams"]
    assert "0 streams or folders" in run("forget", "/event/Nothing__e", "--yes", exits=2).stderr
    assert "requires a terminal" in run("forget", org.topic, exits=2).stderr
    assert "2 status documents deleted" in run("forget", org.topic, "--yes").stderr
    assert json.loads(run("status", "--json").stdout)["streams"] == []
    assert json.loads(run("positions", org.topic, "--json").stdout)[0]["replay_id"] is not None
    drain(org, tmp_path, range(1), run_id="run-2", hour=2)
    assert "2 status documents deleted" in run("forget", stream["uri"], "--yes").stderr


def test_preflight_command_reports_an_unknown_topic(org: SharedOrg, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", spark_environment()["PATH"])
    assert org.topic in run("preflight", org.topic, "--spark-conn-id", "").stdout
    found = json.loads(run("preflight", "/event/Nothing__e", "--json", exits=1).stdout)
    assert [each["check"] for each in found if not each["works"]] == ["/event/Nothing__e"]


class TestReset:
    def test_reset_without_a_terminal_needs_yes(self, org: SharedOrg, run: Run, tmp_path: Path) -> None:
        result = drain(org, tmp_path, range(2))
        refused = run("reset", org.topic, "--forget", "--reason", "anew", exits=2)
        assert "--yes" in refused.stderr
        assert store_of(tmp_path).read(stream_of(org)).replay_id == bytes.fromhex(result["through"])
        assert store_of(tmp_path).resets(stream_of(org)) == []

    def test_reset_records_the_same_as_the_operator(self, org: SharedOrg, run: Run, tmp_path: Path) -> None:
        stream, to = stream_of(org), b"\x00\x07".hex()
        arguments = {"topic": org.topic, "replay_id": to, "reason": "again", "replay_store": "table"}
        operator = ResetReplayPositionOperator(task_id="reset", subscription="operator", **arguments)
        result = operator.execute(context_for("reset"))
        options = ("--replay-id", to, "--reason", "again", "--subscription", "airflow", "--yes", "--json")

        assert json.loads(run("reset", org.topic, *options).stdout) == result

        store = store_of(tmp_path)
        [by_hand], [by_task] = store.resets(stream), store.resets(stream_of(org, "operator"))
        assert by_hand.reset_by.endswith(", sfstream reset")
        records = [{**vars(each), "reset_at": None, "reset_by": None} for each in (by_hand, by_task)]
        assert records[0] == records[1]
        assert store.read(stream).replay_id == bytes.fromhex(to)

    def test_replay_id_or_forget_is_required(self, org: SharedOrg, run: Run) -> None:
        assert "--forget" in run("reset", org.topic, "--reason", "why", "--yes", exits=2).stderr


def test_restore_records_the_same_as_the_operator(
    org: SharedOrg, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        drain(org, tmp_path, range(number), f"run-{number}", number)
    found = []
    for name in ("by_hand.db", "by_task.db"):
        set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / name))
        if name == "by_hand.db":
            assert "--yes" in run("restore", org.topic, exits=2).stderr
            result = json.loads(run("restore", org.topic, "--yes", "--json").stdout)
        else:
            landing = str(tmp_path / "landing")
            operator = RestoreReplayPositionOperator(
                task_id="restore", topic=org.topic, landing_url=landing, replay_store="table"
            )
            result = operator.execute(context_for("restore"))
        store, stream = store_of(tmp_path, name), stream_of(org)
        year = timedelta(days=365)
        recorded = store.windows_overlapping(stream, datetime.now(UTC) - year, datetime.now(UTC) + year)
        found.append((result, recorded, store.read(stream).replay_id, store.resets(stream)))
    assert found[0] == found[1]
    assert found[0][0]["live_windows"] == 2


def test_prune_removes_the_same_windows_as_the_operator(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"organization_id": ORG, "consumer_key": "key", "consumer_secret": "word", "domain": "nowhere"}
    set_connection(monkeypatch, "salesforce_default", conn_type="salesforce", extra=extra)
    topic, first, found = "/data/AccountChangeEvent", (datetime.now(UTC) - day(0)).days - 40, []
    for name in ("hand", "task"):
        landing = str(tmp_path / name / "landing")
        (tmp_path / name).mkdir()
        database = tmp_path / name / "replay.db"
        set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(database))
        under_test = StoreUnderTest(
            lambda database=database: TableReplayStore(f"sqlite:///{database}"),  # type: ignore[misc]
            LandingCatalog(Landing.from_url(landing)),
        )
        windows = DailyWindows(under_test, days=8, first=first, stream=Stream(ORG, "pubsub", topic))
        if name == "hand":
            monkeypatch.setenv("SFSTREAM_LANDING_URL", landing)
            options = ("prune", topic, "--older-than", "20d", "--no-readers")
            assert "--no-readers" in run(*options[:-1], "--yes", exits=2).stderr
            assert json.loads(run(*options, "--dry-run", "--json").stdout)["windows"] == 7
            assert "--yes" in run(*options, exits=2).stderr
            assert windows.recorded() == windows.live
            result = json.loads(run(*options, "--yes", "--json").stdout)
        else:
            operator = PruneReplayWindowsOperator(
                task_id="prune",
                topic=topic,
                landing_url=landing,
                older_than=timedelta(days=20),
                replica_urls=[],
                event_log_urls=[],
                replay_store="table",
            )
            result = operator.execute(context_for("prune"))
        [record] = Path(landing).rglob("pruned.json")
        pruned = json.loads(record.read_text())
        assert pruned.pop("pruned_at")
        assert pruned.pop("pruned_by").endswith("sfstream prune" if name == "hand" else "try 1")
        found.append((result, [window.window_id for window in windows.recorded()], pruned))
        under_test.store.close()
    assert found[0] == found[1]
    assert found[0][0]["windows"] == 7


def test_catalog_compares_and_publishes_tables(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = IcebergLake(tmp_path, monkeypatch, type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
    lake.events(catalog_conn_id=None)
    options = (lake.output, "--catalog-conn-id", "catalog", "--catalog-namespace", "lake")
    assert "lake.order__e" in run("catalog", "status", *options, exits=1).stdout
    assert not lake.catalog.namespace_exists("lake")
    elsewhere = run("catalog", "status", f"{lake.output}s", *options[1:], exits=1)
    assert f"{lake.output}s has no tables." in elsewhere.stdout + elsewhere.stderr
    run("catalog", "sync", *options)
    lake.check()
    for row in json.loads(run("catalog", "status", *options, "--json").stdout):
        assert (row["is_current"], row["missing_files"], row["error"]) == (True, 0, None)


def test_errors_have_the_remedy_and_no_traceback(org: SharedOrg, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = run("topics", "--salesforce-conn-id", "nowhere", exits=1)
    assert (missing.stdout, "airflow connections" in missing.stderr) == ("", True)
    wrong = run("peek", "Order__e", exits=1).stderr
    assert wrong.startswith("Error     InvalidTopicError")
    assert "\nAction    Use /event/Name__e" in wrong
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(login_url="http://127.0.0.1:1"))
    assert "A retry may succeed." in " ".join(run("topics", exits=75).stderr.split())


def command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("sfstream")), *arguments]


def test_reset_on_a_terminal_asks_for_confirmation(org: SharedOrg, tmp_path: Path) -> None:
    result = drain(org, tmp_path, range(2))
    for answer, exits, position in (("n", 1, bytes.fromhex(result["through"])), ("y", 0, None)):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            command("reset", org.topic, "--forget", "--reason", "by hand"),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.write(ours, f"{answer}\n".encode())
        out, error = process.communicate(timeout=60)
        assert process.returncode == exits, error
        assert b"remove its position? [y/N]" in error
        assert bool(out.strip()) == (exits == 0)
        assert store_of(tmp_path).read(stream_of(org)).replay_id == position
        os.close(ours)
        os.close(theirs)
    [record] = store_of(tmp_path).resets(stream_of(org))
    assert (record.reason, record.to_replay_id) == ("by hand", None)


def test_help_does_not_import_airflow() -> None:
    code = (
        "import sys; from airflow_provider_sfstream.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: print(end.code, sorted({'airflow', 'grpc', 'pyarrow'} & {*sys.modules}))"
    )
    for arguments in (["--help"], ["reset", "--help"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
        assert done.stdout.endswith("0 []\n"), done.stdout + done.stderr


@pytest.mark.extended
def test_airflow_sfstream_uses_variables_and_connections_of_airflow(org: SharedOrg, tmp_path: Path) -> None:
    """Both ``airflow sfstream`` and ``sfstream`` use the connections and Variables of a real metadata database."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SFSTREAM"))}
    environment |= {"AIRFLOW_HOME": str(tmp_path / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    environment.pop("_AIRFLOW_PROCESS_CONTEXT")
    airflow = [sys.executable, "-m", "airflow"]

    def ran(*arguments: str) -> str:
        done = subprocess.run([*arguments], env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    ran(*airflow, "db", "migrate")
    ran(*airflow, "connections", "add", "salesforce_default", "--conn-json", json.dumps(org.airflow_connection()))
    org.publish(org.topic, [{"Number__c": 1.0}])
    assert json.loads(ran(*airflow, "sfstream", "peek", org.topic, "--max-events", "1"))["Number__c"] == 1.0
    options = ("--replay-id", "0007", "--reason", "why", "--yes", "--json")
    assert json.loads(ran(*command("reset", org.topic, *options))) == {"before": None, "after": "0007"}
    assert json.loads(ran(*command("reset", org.topic, *options)))["before"] == "0007"
    assert "sfstream_position" in ran(*airflow, "variables", "list")
    positions = command("positions", org.topic, "--landing-url", str(tmp_path / "landing"), "--json")
    [in_variables] = json.loads(ran(*positions))  # every store is searched
    assert (in_variables["replay_store"], in_variables["replay_id"]) == ("variable", "0007")
    table = {"conn_type": "sqlite", "host": str(tmp_path / "replay.db")}
    environment["AIRFLOW_CONN_SFSTREAM_REPLAY_STORE"] = json.dumps(table)
    store_of(tmp_path).reset(stream_of(org), b"\x00\x08", reason="why", updated_by="test")
    assert [row["replay_store"] for row in json.loads(ran(*positions))] == ["variable", "table"]
    wait_until(lambda: org.open_streams() == 0, what="the end of the streams")
