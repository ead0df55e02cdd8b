"""ManagedEventSubscription records through the Tooling API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient, error_of

RECORDS = "/tooling/sobjects/ManagedEventSubscription"


@pytest.fixture
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org, version="62.0")
    yield client
    client.close()


def metadata(topic: str, **changes: Any) -> dict[str, Any]:
    return {
        "label": "Orders",
        "topicName": topic,
        "defaultReplay": "EARLIEST",
        "errorRecoveryReplay": "LATEST",
        "state": "RUN",
        "version": "62.0",
        **changes,
    }


def create(client: SObjectClient, name: str, body: dict[str, Any]) -> str:
    response = client.call("POST", RECORDS, {"FullName": name, "Metadata": body})
    assert response.status_code == 201, response.text
    assert response.json() == {"id": response.json()["id"], "success": True, "errors": [], "warnings": [], "infos": []}
    return str(response.json()["id"])


def test_create_get_change_delete(client: SObjectClient, topic: str) -> None:
    record_id = create(client, "Orders_1", metadata(topic))
    assert record_id.startswith("18x")
    assert len(record_id) == 18
    for given in (record_id, record_id[:15]):
        record = client.call("GET", f"{RECORDS}/{given}").json()
        assert (record["Id"], record["DeveloperName"], record["MasterLabel"]) == (record_id, "Orders_1", "Orders")
        assert (record["FullName"], record["Metadata"]) == ("Orders_1", metadata(topic))
    changed = metadata(topic, label="Other", state="STOP")
    body = {"FullName": "Orders_1", "Metadata": changed}
    assert client.call("PATCH", f"{RECORDS}/{record_id}", body).status_code == 204
    assert client.call("GET", f"{RECORDS}/{record_id}").json()["Metadata"] == changed
    assert client.call("DELETE", f"{RECORDS}/{record_id}").status_code == 204
    assert error_of(client.call("GET", f"{RECORDS}/{record_id}")) == (404, "NOT_FOUND")
    assert error_of(client.call("DELETE", f"{RECORDS}/{record_id}")) == (404, "NOT_FOUND")
