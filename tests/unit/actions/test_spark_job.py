"""Errors and progress of a Spark driver, as its task reports them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_sfstream.actions.tables.spark_job import driver_error
from airflow_provider_sfstream.exceptions import (
    ManifestError,
    PositionConflictError,
    SalesforceStreamError,
    SparkJobError,
)
from airflow_provider_sfstream.tables.spark_apps.application import progress

COMMAND = (
    "Cannot execute: spark-submit --master spark://m:7077 event_log.py. Error code is: 1.\nLast spark-submit output:\n"
)
OURS = "airflow_provider_sfstream.exceptions."


@pytest.mark.parametrize(
    ("output", "kind", "text"),
    [
        (
            f"Traceback (most recent call last):\n  File x\n{OURS}ManifestError: There is no manifest. Give it.",
            ManifestError,
            "There is no manifest. Give it.",
        ),
        (
            f"KeyError: 'a'\nTraceback\n{OURS}PositionConflictError: another job wrote",
            PositionConflictError,
            "another job wrote",
        ),
        (
            "ERROR StandaloneSchedulerBackend: no\njava.lang.IllegalStateException: no\n"
            "Caused by: org.apache.spark.SparkException: Master removed our application: FAILED",
            SparkJobError,
            "spark-submit to spark://m:7077 ended with exit code 1: org.apache.spark.SparkException "
            "('Master removed our application: FAILED').",
        ),
        (
            "26/11/24 11:12:10 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are "
            "unresponsive! Giving up.\njava.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
            SparkJobError,
            "spark-submit to spark://m:7077 ended with exit code 1: 'All masters are unresponsive! Giving up.'.",
        ),
        ("Killed", SparkJobError, "spark-submit to spark://m:7077 ended with exit code 1."),
    ],
)
def test_driver_error_is_raised_by_the_task(output: str, kind: type[SalesforceStreamError], text: str) -> None:
    error = driver_error(COMMAND + output, "spark://m:7077")
    assert (type(error), str(error)) == (kind, text)


def test_error_without_a_driver_has_no_exit_code() -> None:
    assert str(driver_error("No driver id is known", "k8s://x")) == "spark-submit to k8s://x ended with an error."


class Tracker:
    """Status tracker of a session that runs its second stage."""

    def __init__(self, asked: threading.Event) -> None:
        self._asked = asked

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        self._asked.set()
        return [2]

    def getStageInfo(self, number: int) -> Any:  # noqa: N802
        return SimpleNamespace(stageId=number, numCompletedTasks=13, numTasks=40)


def test_running_job_logs_its_progress(caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Event()
    session = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: Tracker(asked)))
    with caplog.at_level("INFO"), progress(session, interval=0.001):
        assert asked.wait(10)
    assert "Spark has completed 13 of 40 tasks of stage 2." in caplog.text
    assert not any(thread.name == "sfstream-progress" for thread in threading.enumerate())


def test_lost_session_does_not_end_the_job() -> None:
    asked = threading.Event()

    def gone() -> list[int]:
        asked.set()
        raise ConnectionRefusedError

    tracker = SimpleNamespace(getActiveStageIds=gone)
    session = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    with progress(session, interval=0.001):
        assert asked.wait(10)
