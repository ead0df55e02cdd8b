"""Scopes of a refresh: the tables and records that they fetch, and the arguments that they support."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_sfstream.actions.tables.refresh import RefreshConfig
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, Flag, Snapshot, StreamState, TableState
from airflow_provider_sfstream.tables.replica.table_schemas import StoredSchema, TableSchema

STREAM = StreamState("00D000000000001AAA", "pubsub", "/data/ChangeEvents", "", AppliedWindow("w", "", 1, 5), None, 5)
FLAGGED = TableState("stream", flag=Flag("overflow", "2026-01-01T00:00:00+00:00", 5))
SNAPSHOT = Snapshot(7, None, {"stream": STREAM}, {"Account": TableState("stream"), "Lead": FLAGGED})
VERIFY = {"scope": "all", "verify": True}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {"Lead": "full"}),
        ({"scope": "all"}, {"Account": "full", "Lead": "full"}),
        ({"scope": "computed"}, {"Account": "computed", "Lead": "computed"}),
        (VERIFY, {"Account": "compare", "Lead": "compare"}),
    ],
)
def test_each_scope_fetches_its_tables(arguments: dict[str, Any], expected: dict[str, str]) -> None:
    config = RefreshConfig(**arguments)
    assert {plan.name: plan.mode for plan in config.plans(SNAPSHOT, None)} == expected
    assert [plan.name for plan in config.plans(SNAPSHOT, ["Lead"])] == ["Lead"]


def test_columns_of_the_tables_to_fetch_are_read_before_anything_is_fetched() -> None:
    documents = {name: TableSchema({"Name": "string"}, {"Name": "Data:Text"}, {}).to_json() for name in ("a", "b")}
    account, lead = (StoredSchema(name, name, documents.pop) for name in ("a", "b"))
    tables = {
        "Account": replace(TableState("stream"), **account.parts()),
        "Lead": replace(FLAGGED, **lead.parts()),
    }
    (plan,) = RefreshConfig().plans(replace(SNAPSHOT, tables=tables), None)
    assert documents.keys() == {"a"}
    assert plan.fields({"Name": "string"}) == {"Name": "Name"}
    assert plan.table.fields == {"Name": "Data:Text"}


@pytest.mark.parametrize("scope", ["dirty", "all"])
def test_computed_fields_apply_to_dirty_and_to_all_records(scope: Any) -> None:
    plans = RefreshConfig(scope=scope, computed_fields="never").plans(SNAPSHOT, ["Lead"])
    assert [plan.computed_fields for plan in plans] == ["never"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {}),
        ({"max_deleted_fraction": 1.0}, {"max_deleted_fraction": 1.0}),
        ({"scope": "all", "deletes": "hard", "max_deleted_fraction": 0.0, "keep_snapshots": 3},
         {"deletes": "hard", "max_deleted_fraction": 0.0, "keep_snapshots": 3}),
        ({**VERIFY, "deletes": "hard"}, {"deletes": "hard"}),
    ],
)  # fmt: skip
def test_the_job_gets_the_arguments_that_are_set(arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    config = RefreshConfig(**arguments).job_config("r.json")
    assert config == ReplicaConfig(output_url="", refresh_url="r.json", **expected)


def test_deletes_other_than_recorded_are_refused_before_anything_is_fetched() -> None:
    account, lead = (replace(FLAGGED, deletes=deletes) for deletes in ("hard", "soft"))
    snapshot = replace(SNAPSHOT, tables={"Account": account, "Lead": lead})
    assert len(RefreshConfig().plans(snapshot, None)) == 2
    soft = RefreshConfig(deletes="soft")
    assert len(soft.plans(snapshot, ["Lead"])) == 1
    with pytest.raises(ConfigurationError, match=r"tables Account .*deletes='hard'.* Nothing was written"):
        soft.plans(snapshot, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scope": "full"}, "scope='full' must be one of 'dirty', 'computed', 'all'"),
        ({"verify": True}, "scope='dirty' does not support it. Set scope='all'"),
        ({"scope": "computed", "verify": True}, "scope='computed' does not support it. Set scope='all'"),
        ({"deletes": "never"}, "deletes='never' must be one of 'soft', 'hard'"),
        ({"computed_fields": "always"}, "computed_fields='always' must be one of"),
        ({"max_deleted_fraction": 1.1}, "max_deleted_fraction=1.1 must be from 0 to 1"),
        ({"scope": "computed", "deletes": "soft"}, "does not support deletes. Remove"),
        ({"scope": "computed", "computed_fields": "never", "max_deleted_fraction": 0.0},
         "does not support computed_fields, max_deleted_fraction. Remove"),
        ({**VERIFY, "computed_fields": "never"}, "verify=True .* does not support computed_fields. Remove"),
        ({**VERIFY, "max_deleted_fraction": 0.2}, "verify=True .* does not support max_deleted_fraction. Remove"),
    ],
)  # fmt: skip
def test_unsupported_arguments_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SparkSubmitRefreshReplicaOperator(task_id="refresh", output_url="s3://lake", **arguments)


def test_a_result_has_the_fields_of_its_scope() -> None:
    merged = {"dirty": 1, "flag": None, "differed": 2, "reconciliation": {"records": {"equal": 3}, "report": "r.json"}}
    assert RefreshConfig(scope="all").table_result(merged) == {"still_dirty": 1, "flag": None}
    assert RefreshConfig(scope="computed").table_result(merged) == {"differed": 2}
    assert RefreshConfig(scope="all", verify=True).table_result(merged) == {
        "flag": None,
        "records": {"equal": 3},
        "as_of": None,
        "uncompared": None,
        "ranges": None,
        "differing_ranges": None,
        "report": "r.json",
    }
