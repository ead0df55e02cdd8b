"""Custom channels and their members through the Tooling API."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient, error_of

_numbers = itertools.count()
CHANNEL, MEMBER = "PlatformEventChannel", "PlatformEventChannelMember"


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.define("Order__e", City__c="string", Amount__c="double")
        yield local_org


@pytest.fixture(scope="module")
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org, version="62.0")
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    return f"Sales{next(_numbers)}__chn"


def create(client: SObjectClient, kind: str, full_name: str, **metadata: Any) -> str:
    body = {"FullName": full_name, "Metadata": metadata}
    response = client.call("POST", f"/tooling/sobjects/{kind}", body)
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def channel(client: SObjectClient, name: str, kind: str = "data") -> str:
    return create(client, CHANNEL, name, channelType=kind, label="A channel")


def member(client: SObjectClient, name: str, entity: str, **metadata: Any) -> str:
    full_name = f"{name}_{entity}".replace("__", "_")
    return create(client, MEMBER, full_name, eventChannel=name, selectedEntity=entity, **metadata)


def refused(client: SObjectClient, method: str, path: str, body: Any) -> str:
    status, code = error_of(client.call(method, f"/tooling/sobjects/{path}", body))
    assert status == 400
    return code


def test_channel_and_member_records_are_created_changed_and_deleted(
    client: SObjectClient, org: LocalOrg, name: str
) -> None:
    of_channel = channel(client, name)
    assert of_channel.startswith("0YL")
    of_member = member(client, name, "AccountChangeEvent", enrichedFields=[{"name": "Industry"}])
    assert of_member.startswith("0v8")
    row = client.call("GET", f"/tooling/sobjects/{MEMBER}/{of_member}").json()
    assert row["Metadata"] == {
        "enrichedFields": [{"name": "Industry"}],
        "eventChannel": name,
        "filterExpression": None,
        "selectedEntity": "AccountChangeEvent",
    }
    changed = {**row["Metadata"], "enrichedFields": [], "filterExpression": "Industry = 'Energy'"}
    response = client.call("PATCH", f"/tooling/sobjects/{MEMBER}/{of_member}", {"Metadata": changed})
    assert response.status_code == 204
    soql = f"SELECT Id, Metadata FROM {MEMBER} WHERE DeveloperName = '{row['DeveloperName']}'"
    (found,) = client.call("GET", "/tooling/query", params={"q": soql}).json()["records"]
    assert (found["Id"], found["Metadata"]) == (of_member, changed)
    assert client.call("DELETE", f"/tooling/sobjects/{CHANNEL}/{of_channel}").status_code == 204
    assert client.call("GET", f"/tooling/sobjects/{MEMBER}/{of_member}").status_code == 404
    assert name not in str(org.admin("GET", "/topics"))


def test_channel_and_member_records_survive_a_restart(tmp_path: Any) -> None:
    with LocalOrg.running(tmp_path / "org") as org:
        of_channel = channel(SObjectClient(org, version="62.0"), "Sales__chn")
        of_member = member(SObjectClient(org, version="62.0"), "Sales__chn", "AccountChangeEvent")
        org.restart()
        again = SObjectClient(org, version="62.0")
        assert again.call("GET", f"/tooling/sobjects/{CHANNEL}/{of_channel}").json()["MasterLabel"] == "A channel"
        assert again.call("GET", f"/tooling/sobjects/{MEMBER}/{of_member}").json()["EventChannel"] == of_channel


def test_channel_created_by_the_admin_api_has_records(client: SObjectClient, org: LocalOrg, name: str) -> None:
    org.channel(name, ["Order__e"])
    soql = f"SELECT Id FROM {MEMBER} WHERE DeveloperName = '{name}_Order__e'"
    (found,) = client.call("GET", "/tooling/query", params={"q": soql.replace("__", "_")}).json()["records"]
    metadata = client.call("GET", f"/tooling/sobjects/{MEMBER}/{found['Id']}").json()["Metadata"]
    assert (metadata["eventChannel"], metadata["selectedEntity"]) == (name, "Order__e")


def test_invalid_channel_and_member_records_are_refused(client: SObjectClient, name: str) -> None:
    of_channel = channel(client, name)
    of_member = member(client, name, "AccountChangeEvent")
    label = {"channelType": "data", "label": "L"}
    settings = {"eventChannel": name, "selectedEntity": "ContactChangeEvent"}
    contact = f"{name}_ContactChangeEvent".replace("__", "_")

    def post(kind: str, full_name: str, **metadata: Any) -> str:
        return refused(client, "POST", kind, {"FullName": full_name, "Metadata": metadata})

    assert post(CHANNEL, name, **label) == "DUPLICATE_DEVELOPER_NAME"
    assert post(CHANNEL, "Sales", **label) == "FIELD_INTEGRITY_EXCEPTION"
    assert post(CHANNEL, "X__chn", channelType="data") == "REQUIRED_FIELD_MISSING"
    assert post(MEMBER, "Other", **{**settings, "selectedEntity": "AccountChangeEvent"}) == "DUPLICATE_VALUE"
    assert post(MEMBER, contact, **{**settings, "selectedEntity": "Order__e"}) == "INVALID_INPUT"
    assert post(MEMBER, contact, **{**settings, "eventChannel": "Nowhere__chn"}) == "INVALID_INPUT"
    assert post(MEMBER, contact, **settings, enrichedFields=[{"name": "Industry"}]) == "INVALID_INPUT"
    assert post(MEMBER, contact, **settings, filterExpression="Industry = 'x'") == "INVALID_INPUT"
    body = {"Metadata": {"eventChannel": name, "selectedEntity": "ContactChangeEvent"}}
    assert refused(client, "PATCH", f"{MEMBER}/{of_member}", body) == "INVALID_INPUT"
    body = {"Metadata": {"channelType": "event", "label": "L"}}
    assert refused(client, "PATCH", f"{CHANNEL}/{of_channel}", body) == "INVALID_INPUT"
