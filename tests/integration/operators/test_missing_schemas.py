"""Raw landing without schemas: every byte is landed, and the manifest lists the missing schemas."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.actions.tables.missing_schemas import fetch_missing_schemas
from airflow_provider_sfstream.exceptions import ConfigurationError, ServiceUnavailableError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.streams.drain.schemas import NAMELESS
from tests.support.shared_org import SharedOrg, connections, org, shared_org
from tests.support.tasks import context_for, set_connection

__all__ = ["connections", "org", "shared_org"]

Land = Callable[..., tuple[Manifest, list[dict[str, Any]]]]
DOWN = {"code": "", "status": "UNAVAILABLE", "message": "down"}


@pytest.fixture
def land(org: SharedOrg, tmp_path: Path) -> Land:
    """Return a function that drains a topic and returns the manifest and the landed rows."""

    def run(topic: str, **arguments: Any) -> tuple[Manifest, list[dict[str, Any]]]:
        given = {"landing_url": str(tmp_path / "lake"), "replay_store": "table", "idle_timeout": 1.0, **arguments}
        result = DrainReplayWindowOperator(task_id="drain", topic=topic, **given).execute(context_for("drain"))
        path = Path(urlsplit(result["manifest_url"]).path)
        manifest = Manifest.from_json(path.read_text(), result["manifest_url"])
        parts = [pq.read_table(path.parent / file.name) for file in manifest.files]
        return manifest, [row for part in parts for row in part.to_pylist()]

    return run


def columns(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["replay_id"], row["schema_id"], row["payload"]) for row in rows]


def publish(org: SharedOrg) -> list[dict[str, Any]]:
    org.publish(org.topic, [{"Number__c": float(n)} for n in range(5)])
    return org.record(org.topic)


def schema_calls(org: SharedOrg) -> int:
    return len(org.requests("grpc", "GetSchema"))


def fetch(*manifests: Manifest, conn_id: str = "salesforce_default") -> list[str]:
    urls = [manifest.window.manifest_url for manifest in manifests]
    return fetch_missing_schemas(urls, salesforce_conn_id=conn_id, landing_conn_id=None)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"code": "", "status": "NOT_FOUND"}, "does not exist, or is hidden"),
        ({"code": "schema.meta.permission", "status": "PERMISSION_DENIED"}, "hidden from this user"),
        ({"code": "schema.api.unavailable", "status": "INTERNAL"}, "unavailable"),
        ({"code": "service.auth.error", "status": "UNAUTHENTICATED"}, "session is no longer valid"),
        ({"text": "<html>maintenance</html>"}, "not valid JSON"),
        ({"text": '{"type": "record", "name": "A", "fields": [{"name": "B", "type": "nowhere"}]}'}, "is not a type"),
    ],
    ids=["unknown", "refused", "unavailable", "session", "no JSON", "no Avro"],
)
@pytest.mark.parametrize("limits", [{}, {"until": "2100-01-01T00:00:00Z"}], ids=["all", "until"])
def test_every_byte_is_landed_when_the_schema_is_unavailable(
    org: SharedOrg, land: Land, caplog: pytest.LogCaptureFixture, fault: Any, reason: str, limits: dict[str, Any]
) -> None:
    record = publish(org)
    org.fault("answer_schema", **fault)
    with caplog.at_level(logging.WARNING):
        manifest, rows = land(org.topic, **limits)
    assert columns(rows) == columns(record)
    assert manifest.window.through == record[-1]["replay_id"]
    assert (manifest.window.first_event_time, manifest.schemas) == (None, {})
    (schema_id,) = manifest.missing_schemas
    assert schema_id == record[0]["schema_id"]
    assert reason in manifest.missing_schemas[schema_id].reason
    warnings = [each.getMessage() for each in caplog.records if "5 events landed without" in each.getMessage()]
    assert len(warnings) == 1
    assert all(
        part in warnings[0] for part in (org.topic, schema_id, "replay_quarantine", manifest.window.manifest_url)
    )


def test_a_transient_fault_leaves_no_schema_missing(org: SharedOrg, land: Land) -> None:
    record = publish(org)
    org.fault("answer_schema", times=1, **DOWN)
    manifest, rows = land(org.topic)
    assert columns(rows) == columns(record)
    assert (manifest.missing_schemas, list(manifest.schemas)) == ({}, [record[0]["schema_id"]])
    assert manifest.window.first_event_time is not None
    assert schema_calls(org) == 2
    assert len(org.requests("grpc", "Subscribe")) == 1, "the subscription stays open"


def test_events_without_a_schema_id_are_landed_with_the_others(org: SharedOrg, land: Land) -> None:
    org.rest("POST", "/sobjects/Account", {"Name": "Acme"})
    org.rest("POST", "/sobjects/Contact", {"LastName": "A"})
    record = org.record("/data/ChangeEvents")
    first, other = record[0]["schema_id"], record[1]["schema_id"]
    org.fault("omit_schema_id", topic="/data/ChangeEvents", schema_id=first)
    manifest, rows = land("/data/ChangeEvents")
    assert [row["payload"] for row in rows] == [event["payload"] for event in record]
    assert [row["schema_id"] for row in rows] == ["", other]
    assert (manifest.missing_schemas[""].file, manifest.missing_schemas[""].reason) == (None, NAMELESS)
    assert (list(manifest.missing_schemas), list(manifest.schemas)) == ([""], [other])
    before = schema_calls(org)
    assert fetch(manifest) == []
    assert schema_calls(org) == before


def test_missing_schemas_are_fetched_into_the_landing_once(org: SharedOrg, land: Land) -> None:
    publish(org)
    org.fault("answer_schema", text="<html>")
    manifest, _ = land(org.topic)
    ((schema_id, missing),) = manifest.missing_schemas.items()
    assert fetch(manifest) == [], "a schema that Salesforce still refuses is not an error"
    org.clear_faults()
    org.fault("answer_schema", times=1, **DOWN)
    with pytest.raises(ServiceUnavailableError):
        fetch(manifest)
    assert fetch(manifest, manifest) == [schema_id]
    assert missing.file is not None
    path = Path(urlsplit(manifest.url_of(missing.file)).path)
    assert schema_id in path.read_text()
    before = len(org.requests())
    assert fetch(manifest) == []
    assert len(org.requests()) == before, "no call to Salesforce, not even a login"


def test_missing_schemas_of_another_org_are_refused(
    org: SharedOrg, land: Land, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(org)
    org.fault("answer_schema", text="<html>")
    manifest, _ = land(org.topic)
    org.clear_faults()
    connection = org.airflow_connection()
    connection["extra"] = {**connection["extra"], "organization_id": "00D000000000001EAA"}
    set_connection(monkeypatch, "another_org", **connection)
    with pytest.raises(ConfigurationError, match="Set the connection of their drain"):
        fetch(manifest, conn_id="another_org")
