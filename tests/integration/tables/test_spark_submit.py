"""Event log job started by ``spark-submit``: by hand, by the operator, and killed before its commit."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog.testing
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.exceptions import ConfigurationError, SparkJobError
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator
from airflow_provider_sfstream.tables.spark_apps.executor_package import write_executor_package
from tests.support.landing_files import LandedEvent, encode, land_window
from tests.support.spark import MASTER, SETTINGS, short_lived_environment
from tests.support.standalone_cluster import DriverPage, standalone_cluster
from tests.support.tasks import context_for, set_connection

APPLICATION = Path(__file__).parents[3] / "airflow_provider_sfstream/tables/spark_apps/event_log.py"
SCHEMA = {
    "type": "record",
    "name": "Order__e",
    "fields": [{"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"}, {"name": "N__c", "type": "int"}],
}
DAY = 86_400_000
START = 20_463 * DAY
EVENTS = 40_000


def events(count: int, days: int = 3) -> list[LandedEvent]:
    return [
        LandedEvent(n, "one", encode(SCHEMA, {"CreatedDate": START + n * days * DAY // count, "N__c": n}))
        for n in range(count)
    ]


def numbers(tables: Path) -> list[int]:
    found = DeltaTable(str(tables / "Order__e")).to_pyarrow_table(columns=["N__c"])
    return sorted(found.column("N__c").to_pylist())


def command(application: Path, *arguments: str) -> list[str]:
    settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
    return ["spark-submit", "--master", MASTER, *settings, str(application), *arguments]


@pytest.fixture
def started_processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Return a list for started processes; after the test, kill them and their child processes."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


HALTING = """
import pathlib, sys, time

from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.event_log.job import run
from airflow_provider_sfstream.tables.spark_apps.application import run_application


def halt(self, *arguments):
    pathlib.Path(sys.argv[1]).touch()
    time.sleep(3600)


DeltaTableLog.commit = halt
run_application("event_log", EventLogConfig, run, sys.argv[2:])
"""
"""Event log application that stops after it has written its files and before its commit."""


@pytest.mark.extended
def test_a_job_killed_before_its_commit_is_completed_by_the_next_run(
    tmp_path: Path, started_processes: list[Any]
) -> None:
    manifest = land_window(tmp_path / "landing", "w1", events(EVENTS), {"one": SCHEMA}, parts=4)
    tables = tmp_path / "tables"
    config = json.dumps({"manifests": [manifest], "output_url": str(tables)})
    halting, halted = tmp_path / "halting.py", tmp_path / "halted"
    halting.write_text(HALTING)
    with (tmp_path / "first.log").open("wb") as output:
        process = subprocess.Popen(
            command(halting, str(halted), config),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=short_lived_environment(),
            start_new_session=True,
        )
        started_processes.append(process)
        deadline = time.monotonic() + 600
        while not halted.exists():
            assert process.poll() is None, (tmp_path / "first.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the job did not reach its commit in time"
            time.sleep(0.05)
        kill(process)
    assert process.returncode == -signal.SIGKILL
    assert list((tables / "Order__e").glob("event_date=*/w1/part-*.parquet"))
    with pytest.raises(TableNotFoundError):
        numbers(tables)

    # Run again as on a cluster: the driver has only the application file, and imports this package from the zip.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(APPLICATION, elsewhere)
    again_command = command(elsewhere / APPLICATION.name, config)
    again_command[1:1] = ["--py-files", str(write_executor_package(elsewhere))]
    again = subprocess.run(
        again_command, capture_output=True, text=True, env=short_lived_environment(), timeout=600, check=False
    )
    assert again.returncode == 0, again.stderr[-4000:]
    metrics = json.loads(again.stdout.strip().splitlines()[-1].removeprefix("event_log metrics: "))
    assert (metrics["rows_in"], metrics["rows_written"], metrics["duplicates"]) == (EVENTS, EVENTS, 0)
    assert numbers(tables) == list(range(EVENTS))


def operator(tmp_path: Path, windows: Any, **arguments: Any) -> SparkSubmitEventLogOperator:
    given = {"output_url": str(tmp_path / "tables"), "conf": dict(SETTINGS)} | arguments
    return SparkSubmitEventLogOperator(task_id="event_log", windows=windows, **given)


def test_the_operator_submits_windows_and_returns_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    for name, value in short_lived_environment().items():
        monkeypatch.setenv(name, value)
    manifest = land_window(tmp_path / "landing", "w1", events(30), {"one": SCHEMA})
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    set_connection(monkeypatch, "catalog", conn_type="generic", extra=catalog)
    empty = {"manifest_url": (tmp_path / "never-read.json").as_uri(), "event_count": 0}
    windows = [{"manifest_url": manifest, "event_count": 30, "window_id": "w1"}, empty, None]
    with structlog.testing.capture_logs() as logged:
        metrics = operator(tmp_path, windows, catalog_conn_id="catalog").execute(context_for("event_log"))
    lines = [str(entry["event"]) for entry in logged]
    assert sum("event_log metrics:" in line for line in lines) == 1
    assert any("1 windows with 30 events" in line for line in lines)
    assert not any("yarn" in line.lower() for line in lines)
    assert metrics is not None
    assert (metrics["windows"], metrics["rows_in"], metrics["tables"]) == (["w1"], 30, {"Order__e": 30})
    assert numbers(tmp_path / "tables") == list(range(30))
    assert len(load_catalog("catalog", **catalog).load_table("salesforce.order__e").scan().to_arrow()) == 30
    (commit,) = DeltaTable(str(tmp_path / "tables/Order__e")).history()
    assert commit["sfstream"]["job"] == "orders.event_log run run-1 try 1"


def test_metrics_of_another_run_are_not_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster may accept a driver and run it later: then the file has the metrics of the run before."""
    submit = tmp_path / "bin/spark-submit"
    submit.parent.mkdir()
    submit.write_text("#!/bin/sh\nexit 0\n")
    submit.chmod(0o755)
    monkeypatch.setenv("PATH", f"{submit.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    task = operator(tmp_path, [{"manifest_url": "s3://lake/w1/manifest.json", "event_count": 30}])
    stored = tmp_path / "tables/_sfstream/metrics/orders.event_log.json"
    stored.parent.mkdir(parents=True)
    for job, is_own in (("run run-0 try 1", False), ("run run-1 try 2", True)):
        stored.write_text(json.dumps({"windows": ["w0"], "job": f"orders.event_log {job}"}))
        assert task.execute(context_for("event_log")) == ({"windows": ["w0"]} if is_own else None)


@pytest.mark.extended
def test_running_and_failed_jobs_are_linked_to_the_spark_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited_links: list[tuple[str, str, bool]] = []

    def look(key: str, value: str) -> None:
        page = httpx.get(value, timeout=60, trust_env=False).text
        visited_links.append((key, page, task._hook._submit_sp.poll() is None))

    context = context_for("event_log")
    context["ti"].xcom_push = look
    for name, value in short_lived_environment().items():
        monkeypatch.setenv(name, value)
    with standalone_cluster(tmp_path / "cluster", workers=1) as cluster:
        set_connection(
            monkeypatch, "spark_default", conn_type="spark", host=cluster.master, extra={"master_ui": cluster.web}
        )
        driver = DriverPage()
        ports = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        conf = {**SETTINGS, **ports, **driver.settings}
        manifest = land_window(tmp_path / "landing", "w1", events(30), {"one": SCHEMA})
        task = operator(tmp_path, manifest, conf=conf)
        metrics = task.execute(context)
        assert metrics is not None
        [(key, page, is_running)] = visited_links
        assert (key, is_running) == ("_link_SparkUILink", True)
        assert metrics["application_id"] in page
        assert driver.settings["spark.ui.port"] in page, "the page has a link to the UI of the running application"

        visited_links.clear()
        task = operator(tmp_path, (tmp_path / "missing.json").as_uri(), conf=conf)
        with pytest.raises(AirflowFailException, match=r"missing\.json"):
            task.execute(context)
        [(_, page, is_running)] = visited_links
        assert is_running
        assert task.spark_application is not None
        assert task.spark_application in page
        assert task.spark_application != metrics["application_id"]


def test_a_failed_spark_submit_raises_an_error_with_a_short_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_connection(monkeypatch, "spark_default", conn_type="spark", host="nowhere")
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    manifest = land_window(tmp_path / "landing", "w1", events(30), {"one": SCHEMA})
    with pytest.raises(SparkJobError) as caught, caplog.at_level("ERROR"):
        operator(tmp_path, manifest).execute(context_for("event_log"))
    assert str(caught.value).startswith("spark-submit to nowhere ended with exit code 1")
    assert len(str(caught.value)) < 600
    block = [record.getMessage() for record in caplog.records if record.name.endswith("actions.failures")]
    assert block[0].startswith("Error     SparkJobError: spark-submit to nowhere ended with exit code 1")
    assert any(line.startswith("Data loss Nothing: the windows remain landed") for line in block)


def test_without_windows_the_task_is_skipped(tmp_path: Path) -> None:
    for windows in (None, [], [None], {"manifest_url": "file:///m.json", "event_count": 0}):
        with pytest.raises(AirflowSkipException):
            operator(tmp_path, windows).execute(context_for("event_log"))


@pytest.mark.parametrize("windows", ["{'manifest_url': 'x'}", "window-1", {"window_id": "w1"}, 7, [b"x"]])
def test_invalid_windows_are_refused_before_spark_starts(tmp_path: Path, windows: Any) -> None:
    with pytest.raises(AirflowFailException, match="windows"):
        operator(tmp_path, windows).execute(context_for("event_log"))


def test_a_password_in_output_url_is_refused_and_not_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(AirflowFailException, match="contains a password") as caught:
        operator(tmp_path, "file:///m.json", output_url="s3://user:hunter2@lake/t").execute(context_for("event_log"))
    assert "hunter2" not in str(caught.value)


def test_an_interval_with_only_one_bound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AirflowFailException, match="both event_time_from and event_time_to"):
        operator(tmp_path, "file:///m.json", event_time_from="2026-01-10T00:00:00Z").execute(context_for("event_log"))


def test_arguments_that_the_operator_sets_itself_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="This operator sets"):
        operator(tmp_path, None, application="other.py")


def test_the_spark_connection_names_the_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "spark_default", conn_type="spark", host="spark://master", port=7077)
    hook = operator(tmp_path, None)._get_hook()
    assert hook._connection["master"] == "spark://master:7077"
    assert not hook._env_vars
    assert "spark.log.level" not in hook._conf
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    with structlog.testing.capture_logs() as logged:
        local = operator(tmp_path, None, env_vars={"PYSPARK_PYTHON": "/mine"})._get_hook()
    assert any(entry["log_level"] == "warning" and "local[*]" in entry["event"] for entry in logged)
    assert local._connection["master"] == "local[*]"
    assert local._env_vars["PYSPARK_PYTHON"] == "/mine"
    assert local._conf["spark.log.level"] == "WARN"
    assert operator(tmp_path, None, conf={"spark.log.level": "INFO"})._get_hook()._conf["spark.log.level"] == "INFO"
