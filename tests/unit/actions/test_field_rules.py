"""Hash key of a Spark job: read from a connection and passed in the environment, never in an argument."""

from __future__ import annotations

import os
from typing import Any

import pytest

from airflow_provider_sfstream.actions.tables.table_job import hash_key
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.replica import ReplicaOperator
from airflow_provider_sfstream.operators.spark_submit_replica import SparkSubmitReplicaOperator
from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE
from tests.support.tasks import context_for, set_connection

KEY = "a key of sixteen or more characters"
HASHED = {"windows": ["file:///lake/w/manifest.json"], "output_url": "file:///lake/tables", "hash_fields": ["Email"]}


class Submitting(SparkSubmitReplicaOperator):
    """Replica operator that records the arguments and the hash key instead of running ``spark-submit``."""

    recorded: Any = None

    def _submit(self, context: Any) -> None:
        self._get_hook()
        self.recorded = (self.application_args, os.environ.get(HASH_KEY_VARIABLE))

    def _read_metrics(self, url: str) -> None:
        return None


def submitted(**arguments: Any) -> tuple[list[str], str | None]:
    operator = Submitting(task_id="replica", **{**HASHED, **arguments})
    operator.execute(context_for("replica"))
    return operator.recorded


def test_the_key_is_in_the_environment_while_the_driver_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "key", conn_type="generic", password=KEY)
    monkeypatch.delenv(HASH_KEY_VARIABLE, raising=False)
    (argument,), key = submitted(hash_conn_id="key")
    assert (KEY in argument, key) == (False, KEY)
    assert HASH_KEY_VARIABLE not in os.environ


@pytest.mark.parametrize("password", ["", "short"])
def test_connection_without_a_usable_key_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    set_connection(monkeypatch, "key", conn_type="generic", password=password)
    with pytest.raises(Exception, match="password of the Airflow connection hash_conn_id") as caught:
        submitted(hash_conn_id="key")
    assert not password or password not in str(caught.value)


def test_missing_hash_connection_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Airflow connection hash_conn_id='nowhere' does not exist"):
        hash_key("nowhere")
    assert hash_key(None) is None


def test_worker_needs_the_hash_connection_and_spark_submit_does_not() -> None:
    with pytest.raises(ConfigurationError, match="hash_fields needs hash_conn_id"):
        ReplicaOperator(task_id="replica", **HASHED)
    (argument,), key = submitted()
    assert ('"hash_fields": ["Email"]' in argument, key) == (True, None)


def test_hash_key_is_not_sent_to_a_driver_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "key", conn_type="generic", password=KEY)
    extra = {"deploy-mode": "cluster"}
    set_connection(monkeypatch, "spark_default", conn_type="spark", host="yarn", extra=extra)
    submitted()
    with pytest.raises(Exception, match=f"runs on a cluster.*{HASH_KEY_VARIABLE}.*Nothing was submitted"):
        submitted(hash_conn_id="key")
