"""Sources of a task's retries: its arguments, ``default_args``, Airflow's configuration, the package, in this order."""

from __future__ import annotations

import inspect
import runpy
import sys
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.bases import operator

from airflow_provider_sfstream._airflow import conf
from airflow_provider_sfstream.actions import retries
from scripts.reference import listed

OPTION = ("core", "default_task_retries")
TASKS = [*listed("operators"), *listed("sensors")]
NOT_RETRIED = {"CheckSalesforceStreamsOperator", "SalesforcePreflightOperator", "ResetReplayPositionOperator"}
ARGUMENTS: dict[str, Any] = {
    **dict.fromkeys(("landing_url", "output_url", "results_url"), "/lake"),
    **{name: [] for name in ("windows", "window", "ids", "event_log_urls", "replica_urls")},
    **{"topic": "/event/Order__e", "topics": ["/event/Order__e"], "reason": "test", "replay_id": None, "reserve": 1},
    **{"channel": "Orders__chn", "members": ["Order__e"], "entity": "Contact", "older_than": timedelta(days=9)},
    **{"managed_subscription": "Orders", "confirm_position_loss": True},
}
"""The arguments that operators and sensors require."""


def retries_of(task_class: Any, **arguments: Any) -> tuple[int, float]:
    known = {name for base in task_class.__mro__ for name in inspect.signature(base.__init__).parameters}
    required = {name: value for name, value in ARGUMENTS.items() if name in known}
    task = task_class(**{"task_id": "task", **required, **arguments})
    return task.retries, task.retry_exponential_backoff


@pytest.mark.parametrize("task_class", TASKS, ids=lambda task_class: task_class.__name__)
def test_argument_goes_before_default_args_and_these_before_the_default(task_class: Any) -> None:
    default = retries_of(BaseOperator if task_class.__name__ in NOT_RETRIED else retries.RetriedOperator)
    assert retries_of(task_class) == default
    with DAG("dag", schedule=None, default_args={"retries": 7, "retry_exponential_backoff": False}):
        assert retries_of(task_class) == (7, False)
        assert retries_of(task_class, task_id="other", retries=0, retry_exponential_backoff=True) == (0, True)


@pytest.mark.skipif(not hasattr(operator, "_get_operator_defaults"), reason="needs Airflow 3.3")
def test_mapped_tasks_have_the_default() -> None:
    partial = retries.RetriedOperator.partial(task_id="task")
    partial._expand_called = True  # otherwise Airflow warns of a task that was never mapped
    assert (partial.kwargs["retries"], partial.kwargs["retry_exponential_backoff"]) == (3, 2)


@pytest.mark.parametrize(
    ("file", "environment", "expected"),
    [
        (None, None, (3, 2)),
        ("0", None, (3, 2)),  # the airflow.cfg that Airflow generates
        ("5", None, (5, 0)),
        (None, "0", (0, 0)),
        ("5", "1", (1, 0)),
    ],
)
def test_configuration_goes_before_the_default_of_the_package(
    monkeypatch: pytest.MonkeyPatch, file: str | None, environment: str | None, expected: tuple[int, float]
) -> None:
    monkeypatch.delenv("AIRFLOW__CORE__DEFAULT_TASK_RETRIES", raising=False)
    if environment is not None:
        monkeypatch.setenv("AIRFLOW__CORE__DEFAULT_TASK_RETRIES", environment)
    if file is not None:
        conf.set(*OPTION, file)
    try:
        monkeypatch.delitem(sys.modules, retries.__name__)
        configured = runpy.run_module(retries.__name__)["RetriedOperator"]
    finally:
        conf.remove_option(*OPTION, remove_default=False)
    number, backoff = retries_of(configured)
    assert number == expected[0]
    # Before Airflow 3.2 the backoff is True or False.
    assert backoff == type(BaseOperator.retry_exponential_backoff)(expected[1])
