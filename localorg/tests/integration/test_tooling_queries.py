"""Queries of ManagedEventSubscription through the Tooling API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient, error_of


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.define("Order__e", Amount__c="double")
        for name in ("Alpha", "Beta", "Gamma"):
            local_org.managed_subscription(name, "/event/Order__e", label=f"{name} label")
        yield local_org


@pytest.fixture(scope="module")
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org, version="62.0")
    yield client
    client.close()


def query(client: SObjectClient, soql: str, path: str = "/tooling/query") -> dict[str, Any]:
    response = client.call("GET", path, params={"q": soql})
    assert response.status_code == 200, response.text
    return dict(response.json())


@pytest.mark.parametrize("path", ["/tooling/query", "/tooling/query/"])
@pytest.mark.parametrize("by", ["DeveloperName", "Id"])
def test_managed_subscription_is_found_by_name_or_id(client: SObjectClient, org: LocalOrg, path: str, by: str) -> None:
    beta = org.managed_subscriptions()["Beta"]
    value = {"DeveloperName": "Beta", "Id": beta["id"]}[by]
    soql = f"SELECT Id, DeveloperName, Metadata FROM ManagedEventSubscription WHERE {by}='{value}' LIMIT 1"
    answer = query(client, soql, path)
    url = f"/services/data/v62.0/tooling/sobjects/ManagedEventSubscription/{beta['id']}"
    assert answer == {
        "size": 1,
        "totalSize": 1,
        "done": True,
        "queryLocator": None,
        "entityTypeName": "ManagedEventSubscription",
        "records": [
            {
                "attributes": {"type": "ManagedEventSubscription", "url": url},
                "Id": beta["id"],
                "DeveloperName": "Beta",
                "Metadata": beta["metadata"],
            }
        ],
    }
    assert (beta["metadata"]["topicName"], beta["metadata"]["state"]) == ("/event/Order__e", "RUN")


def test_query_of_an_unknown_managed_subscription_returns_no_rows(client: SObjectClient) -> None:
    soql = "SELECT Id, DeveloperName, Metadata FROM ManagedEventSubscription WHERE DeveloperName='Nobody' LIMIT 1"
    answer = query(client, soql)
    assert (answer["size"], answer["totalSize"], answer["records"]) == (0, 0, [])


def test_managed_subscriptions_are_returned_in_the_requested_order(client: SObjectClient) -> None:
    soql = "SELECT DeveloperName, MasterLabel FROM managedeventsubscription ORDER BY DeveloperName DESC LIMIT 2"
    answer = query(client, soql)
    shown = [(record["DeveloperName"], record["MasterLabel"]) for record in answer["records"]]
    assert shown == [("Gamma", "Gamma label"), ("Beta", "Beta label")]
    assert query(client, "SELECT COUNT() FROM ManagedEventSubscription")["totalSize"] == 3


@pytest.mark.parametrize("column", ["Metadata", "FullName"])
def test_metadata_and_full_name_require_a_single_row(client: SObjectClient, column: str) -> None:
    params = {"q": f"SELECT {column} FROM ManagedEventSubscription"}
    response = client.call("GET", "/tooling/query", params=params)
    assert error_of(response) == (400, "MALFORMED_QUERY")
    assert "no more than one row" in response.json()[0]["message"]
    assert query(client, f"{params['q']} LIMIT 1")["size"] == 1


@pytest.mark.parametrize(
    ("soql", "expected"),
    [
        ("SELECT Nothing FROM ManagedEventSubscription", "INVALID_FIELD"),
        ("SELECT COUNT(Id) FROM ManagedEventSubscription", "MALFORMED_QUERY"),
        ("SELECT Id FROM ManagedEventSubscription WHERE Metadata = 'x'", "INVALID_FIELD"),
        ("SELECT Id FROM ManagedEventSubscription ORDER BY FullName", "INVALID_FIELD"),
        ("SELECT Id FROM Nothing", "INVALID_TYPE"),
        ("SELECT Id FROM Account", "INVALID_TYPE"),
        ("SELECT", "MALFORMED_QUERY"),
        ("", "MALFORMED_QUERY"),
    ],
)
def test_invalid_tooling_queries_are_refused(client: SObjectClient, soql: str, expected: str) -> None:
    assert error_of(client.call("GET", "/tooling/query", params={"q": soql})) == (400, expected)


@pytest.mark.parametrize("path", ["/query", "/queryAll"])
def test_managed_subscriptions_are_unknown_to_queries_outside_the_tooling_api(client: SObjectClient, path: str) -> None:
    params = {"q": "SELECT Id FROM ManagedEventSubscription"}
    assert error_of(client.call("GET", path, params=params)) == (400, "INVALID_TYPE")


def test_managed_subscriptions_are_unknown_to_rest_outside_the_tooling_api(
    client: SObjectClient, org: LocalOrg
) -> None:
    record_id = org.managed_subscriptions()["Alpha"]["id"]
    path = f"/sobjects/ManagedEventSubscription/{record_id}"
    assert error_of(client.call("GET", path)) == (404, "NOT_FOUND")
