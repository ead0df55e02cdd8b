"""How a job gets the key of hashes, which no argument has."""

from __future__ import annotations

import os
from typing import Any

import pytest

from airflow_provider_sfstream.actions.tables.table_job import hash_key, key_in_environment
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.replica import ReplicaOperator
from airflow_provider_sfstream.operators.spark_submit_replica import SparkSubmitReplicaOperator
from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE
from tests.support.tasks import context_for, set_connection

KEY = "a key of sixteen or more characters"
HASHED = {"windows": ["file:///lake/w/manifest.json"], "output_url": "file:///lake/tables", "hash_fields": ["Email"]}


class Submitting(SparkSubmitReplicaOperator):
    """Keeps what ``spark-submit`` would get."""

    given: Any = None

    def _submit(self, context: Any) -> None:
        self._get_hook()
        self.given = (self.application_args, os.environ.get(HASH_KEY_VARIABLE))

    def _read_metrics(self, url: str) -> None:
        return None


def submitted(**arguments: Any) -> tuple[list[str], str | None]:
    operator = Submitting(task_id="replica", **{**HASHED, **arguments})
    operator.execute(context_for("replica"))
    return operator.given


def test_the_key_is_in_the_environment_while_the_driver_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "key", conn_type="generic", password=KEY)
    monkeypatch.delenv(HASH_KEY_VARIABLE, raising=False)
    (argument,), key = submitted(hash_conn_id="key")
    assert (KEY in argument, key) == (False, KEY)
    assert HASH_KEY_VARIABLE not in os.environ
    with key_in_environment(None):
        assert HASH_KEY_VARIABLE not in os.environ


@pytest.mark.parametrize("password", ["", "short"])
def test_a_connection_without_a_usable_key(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    set_connection(monkeypatch, "key", conn_type="generic", password=password)
    with pytest.raises(Exception, match="password of the Airflow connection hash_conn_id") as caught:
        submitted(hash_conn_id="key")
    assert not password or password not in str(caught.value)


def test_a_connection_that_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match="no Airflow connection hash_conn_id='nowhere'"):
        hash_key("nowhere")
    assert hash_key(None) is None


def test_a_worker_needs_the_connection_and_a_driver_elsewhere_does_not() -> None:
    with pytest.raises(ConfigurationError, match="hash_fields needs hash_conn_id"):
        ReplicaOperator(task_id="replica", **HASHED)
    (argument,), key = submitted()
    assert ('"hash_fields": ["Email"]' in argument, key) == (True, None)


def test_the_key_is_not_given_to_a_driver_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "key", conn_type="generic", password=KEY)
    extra = {"deploy-mode": "cluster"}
    set_connection(monkeypatch, "spark_default", conn_type="spark", host="yarn", extra=extra)
    submitted()
    with pytest.raises(Exception, match=f"runs on a cluster.*{HASH_KEY_VARIABLE}.*Nothing was submitted"):
        submitted(hash_conn_id="key")
