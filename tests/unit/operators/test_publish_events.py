"""Arguments of the publish operator, checked when the DAG is parsed."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.publish_events import PublishEventsOperator


def make(**arguments: Any) -> PublishEventsOperator:
    merged = {"topic": "/event/Order__e", "results_url": "/results", "rows": [], **arguments}
    return PublishEventsOperator(task_id="publish", **merged)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rows": None}, "one of rows, windows and table"),
        ({"table": "/table"}, "one of rows, windows and table"),
        ({"topic": "/data/ChangeEvents"}, "does not accept events"),
        ({"topic": "/event/../x"}, "is not a topic name"),
        ({"on_unknown_outcome": "ask"}, "on_unknown_outcome='ask'"),
        ({"on_failure": "ignore"}, "on_failure='ignore'"),
        ({"allocation_reserve": -1}, "allocation_reserve=-1"),
    ],
)
def test_unusable_publish_arguments_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        make(**arguments)


def test_templated_arguments_are_checked_when_the_task_runs() -> None:
    operator = make(topic="{{ params.topic }}", on_unknown_outcome="{{ params.on_unknown_outcome }}")
    assert operator.topic == "{{ params.topic }}"
