"""How a job is told of fields that may not be stored, and of the key of hashes, which no argument has."""

from __future__ import annotations

import os

import pytest

from airflow_provider_sfstream.actions.tables.field_rules import hash_key, key_in_environment, rule_arguments
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.replica import ReplicaOperator
from airflow_provider_sfstream.operators.spark_submit_replica import SparkSubmitReplicaOperator
from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE, FieldRules
from airflow_provider_sfstream.tables.spark_apps.replica import parse_arguments
from tests.support.tasks import set_connection

KEY = "a key of sixteen or more characters"
RULES = FieldRules.of(["Phone"], ["Name.FirstName", "Fax"], ["Email"], KEY)
HASHED = {"windows": [], "output_url": "lake", "hash_fields": ["Email"]}


def test_a_driver_makes_of_arguments_and_environment_what_the_operator_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HASH_KEY_VARIABLE, raising=False)
    arguments = ["--manifest", "m", "--output", "o", *rule_arguments(RULES)]
    assert KEY not in " ".join(arguments)
    with key_in_environment(RULES):
        assert parse_arguments(arguments).rules == RULES
    assert HASH_KEY_VARIABLE not in os.environ
    with pytest.raises(ConfigurationError, match=f"key for the hash of Email is missing.*{HASH_KEY_VARIABLE}"):
        parse_arguments(arguments)


@pytest.mark.parametrize("password", ["", "short"])
def test_a_connection_without_a_usable_key(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    set_connection(monkeypatch, "key", conn_type="generic", password=password)
    with pytest.raises(ConfigurationError, match="password of the Airflow connection hash_conn_id") as caught:
        SparkSubmitReplicaOperator(task_id="replica", hash_conn_id="key", **HASHED).submitted_rules()
    assert not password or password not in str(caught.value)


def test_a_connection_that_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match="no Airflow connection hash_conn_id='nowhere'"):
        hash_key("nowhere")
    assert hash_key(None) is None


def test_a_worker_needs_the_connection_and_a_driver_elsewhere_does_not() -> None:
    with pytest.raises(ConfigurationError, match="hash_fields needs hash_conn_id"):
        ReplicaOperator(task_id="replica", **HASHED)
    rules = SparkSubmitReplicaOperator(task_id="replica", **HASHED).submitted_rules()
    assert (rules.hash, rules.key) == (("Email",), b"")


def test_the_key_is_not_given_to_a_driver_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "key", conn_type="generic", password=KEY)
    extra = {"deploy-mode": "cluster"}
    set_connection(monkeypatch, "spark_default", conn_type="spark", host="yarn", extra=extra)
    operator = SparkSubmitReplicaOperator(task_id="replica", hash_conn_id="key", **HASHED)
    operator._get_hook()
    operator._rules = operator.submitted_rules()
    with pytest.raises(ConfigurationError, match=f"runs on a cluster.*{HASH_KEY_VARIABLE}.*Nothing was submitted"):
        operator._get_hook()
