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


def test_managed_subscription_records_are_created_read_changed_and_deleted(client: SObjectClient, topic: str) -> None:
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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": "PAUSE"}, "INVALID_INPUT"),
        ({"state": "run"}, "JSON_PARSER_ERROR"),
        ({"state": None}, "REQUIRED_FIELD_MISSING"),
        ({"defaultReplay": "CUSTOM"}, "JSON_PARSER_ERROR"),
        ({"errorRecoveryReplay": "NEVER"}, "JSON_PARSER_ERROR"),
        ({"label": "x" * 81}, "STRING_TOO_LONG"),
        ({"label": 5}, "JSON_PARSER_ERROR"),
        ({"topicName": None}, "REQUIRED_FIELD_MISSING"),
        ({"topicName": "/event/Nothing__e"}, "INVALID_INPUT"),
        ({"topicName": "T__e"}, "INVALID_INPUT"),
        ({"isActive": "true"}, "JSON_PARSER_ERROR"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_invalid_metadata_of_a_managed_subscription_is_refused(
    client: SObjectClient, topic: str, changes: dict[str, Any], expected: str
) -> None:
    body = {"FullName": "Refused", "Metadata": metadata(topic, **changes)}
    assert error_of(client.call("POST", RECORDS, body)) == (400, expected)
    assert "Refused" not in client.org.managed_subscriptions()
    record_id = create(client, f"Kept{abs(hash(str(changes)))}", metadata(topic))
    assert error_of(client.call("PATCH", f"{RECORDS}/{record_id}", {"Metadata": body["Metadata"]})) == (400, expected)
    assert client.call("GET", f"{RECORDS}/{record_id}").json()["Metadata"] == metadata(topic)


def test_managed_subscription_to_a_push_topic_is_refused(client: SObjectClient, org: LocalOrg) -> None:
    org.push_topic("Invoices", "SELECT Id, Name FROM Account")
    body = {"FullName": "Push", "Metadata": metadata("/topic/Invoices")}
    assert error_of(client.call("POST", RECORDS, body)) == (400, "INVALID_INPUT")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, "REQUIRED_FIELD_MISSING"),
        ("", "REQUIRED_FIELD_MISSING"),
        ("1st", "FIELD_INTEGRITY_EXCEPTION"),
        ("_a", "FIELD_INTEGRITY_EXCEPTION"),
        ("a b", "FIELD_INTEGRITY_EXCEPTION"),
        ("a__b", "FIELD_INTEGRITY_EXCEPTION"),
        ("a_", "FIELD_INTEGRITY_EXCEPTION"),
        ("a" * 81, "STRING_TOO_LONG"),
    ],
)
def test_invalid_names_of_managed_subscriptions_are_refused(
    client: SObjectClient, topic: str, name: str | None, expected: str
) -> None:
    assert error_of(client.call("POST", RECORDS, {"FullName": name, "Metadata": metadata(topic)})) == (400, expected)


def test_names_of_managed_subscriptions_are_unique_regardless_of_case(client: SObjectClient, topic: str) -> None:
    create(client, "Unique", metadata(topic))
    body = {"FullName": "UNIQUE", "Metadata": metadata(topic)}
    assert error_of(client.call("POST", RECORDS, body)) == (400, "DUPLICATE_DEVELOPER_NAME")


def test_topic_and_name_of_a_managed_subscription_cannot_change(
    client: SObjectClient, org: LocalOrg, topic: str
) -> None:
    org.define("Another__e", Number__c="int")
    path = f"{RECORDS}/{create(client, 'ForLife', metadata(topic))}"
    assert error_of(client.call("PATCH", path, {"Metadata": metadata("/event/Another__e")})) == (400, "INVALID_INPUT")
    renamed = {"FullName": "Renamed", "Metadata": metadata(topic)}
    assert error_of(client.call("PATCH", path, renamed)) == (400, "INVALID_FIELD_FOR_INSERT_UPDATE")
    assert client.call("PATCH", path, {"FullName": "ForLife"}).status_code == 204
    assert client.call("GET", path).json()["Metadata"] == metadata(topic)


def test_invalid_bodies_of_managed_subscriptions_are_refused(client: SObjectClient, topic: str) -> None:
    for body, expected in (
        ({"FullName": "B", "Metadata": "text"}, "JSON_PARSER_ERROR"),
        ({"FullName": "B"}, "JSON_PARSER_ERROR"),
        ({"FullName": "B", "Metadata": metadata(topic), "DeveloperName": "B"}, "INVALID_FIELD"),
        (["B"], "JSON_PARSER_ERROR"),
    ):
        assert error_of(client.call("POST", RECORDS, body)) == (400, expected)


def test_malformed_and_unknown_ids_of_managed_subscriptions_are_refused(client: SObjectClient) -> None:
    assert error_of(client.call("GET", f"{RECORDS}/short")) == (400, "MALFORMED_ID")
    for method, body in (("GET", None), ("PATCH", {"Metadata": {}}), ("DELETE", None)):
        assert error_of(client.call(method, f"{RECORDS}/18x00000000zzzz", body)) == (404, "NOT_FOUND")


@pytest.mark.parametrize("version", ["59.0", "37.0"])
def test_api_versions_below_60_have_no_managed_subscriptions(
    org: LocalOrg, managed: str, topic: str, version: str
) -> None:
    record_id = org.managed_subscriptions()[managed]["id"]
    client = SObjectClient(org, version=version)
    try:
        for method, path in (
            ("POST", RECORDS),
            ("GET", f"{RECORDS}/{record_id}"),
            ("DELETE", f"{RECORDS}/{record_id}"),
        ):
            body = {"FullName": "Old", "Metadata": metadata(topic)} if method == "POST" else None
            assert error_of(client.call(method, path, body)) == (404, "NOT_FOUND")
        query = {"q": "SELECT Id FROM ManagedEventSubscription"}
        assert error_of(client.call("GET", "/tooling/query", params=query)) == (400, "INVALID_TYPE")
    finally:
        client.close()


@pytest.mark.parametrize("version", ["60.0", "66.0"])
def test_api_versions_from_60_have_managed_subscriptions(org: LocalOrg, topic: str, version: str) -> None:
    client = SObjectClient(org, version=version)
    try:
        given = {key: value for key, value in metadata(topic).items() if key != "version"}
        record_id = create(client, f"V{version[:2]}", given)
        record = client.call("GET", f"{RECORDS}/{record_id}").json()
    finally:
        client.close()
    assert record["Metadata"]["version"] == version
    assert record["attributes"]["url"].startswith(f"/services/data/v{version}/tooling/sobjects/")


def test_tooling_call_without_a_session_is_refused(client: SObjectClient, org: LocalOrg) -> None:
    org.revoke(client.http.headers["Authorization"].removeprefix("Bearer "))
    assert error_of(client.call("GET", f"{RECORDS}/18x00000000zzzz")) == (401, "INVALID_SESSION_ID")


def test_tooling_calls_are_in_the_request_log(client: SObjectClient, org: LocalOrg, topic: str) -> None:
    create(client, "Logged", metadata(topic))
    entry = org.requests("http", f"POST /services/data/v62.0{RECORDS}")[-1]
    assert entry["outcome"] == "201"
