"""Queries with fields of parents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        yield local_org


@pytest.fixture
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org)
    yield client
    client.close()


@pytest.fixture
def account(client: SObjectClient) -> str:
    return client.create("Account", Name="alpha", AnnualRevenue=10)


def test_fields_of_parents_are_nested_objects_in_query_results(client: SObjectClient, account: str) -> None:
    client.create("Contact", LastName="with", AccountId=account)
    client.create("Contact", LastName="without")
    soql = "SELECT LastName, Account.Name, account.annualrevenue, Owner.Email FROM Contact WHERE LastName LIKE 'with%'"
    found = client.query(soql + " ORDER BY Account.Name DESC")
    assert [record["LastName"] for record in found] == ["with", "without"]
    base = "/services/data/v59.0/sobjects"
    assert found[0]["Account"] == {
        "attributes": {"type": "Account", "url": f"{base}/Account/{account}"},
        "Name": "alpha",
        "AnnualRevenue": 10.0,
    }
    assert found[1]["Account"] is None
    assert found[1]["Owner"]["attributes"]["type"] == "User"
    assert found[1]["Owner"]["Email"] == client.org.username


def test_query_conditions_on_fields_of_parents_and_date_literals(client: SObjectClient, account: str) -> None:
    client.update("Account", account, Name="of days")
    for condition in ("Account.Name = 'of days'", "(Account.Name LIKE 'OF D%' AND CreatedDate = TODAY)"):
        contact = client.create("Contact", LastName="by its parent", AccountId=account)
        found = client.query(f"SELECT Id FROM Contact WHERE {condition} OR Account.Name = 'nothing'")
        assert [record["Id"] for record in found] == [contact]
        client.delete("Contact", contact)
    assert client.query("SELECT Id FROM Account WHERE CreatedDate < LAST_N_DAYS:1") == []


def test_all_pages_of_a_query_show_the_parents_at_the_time_of_the_query(client: SObjectClient, account: str) -> None:
    client.update("Account", account, Name="before")
    records = [{"attributes": {"type": "Contact"}, "LastName": f"p{n}", "AccountId": account} for n in range(200)]
    assert all(r["success"] for r in client.call("POST", "/composite/sobjects", {"records": records}).json())
    client.create("Contact", LastName="p200", AccountId=account)
    params = {"q": "SELECT LastName, Account.Name FROM Contact WHERE Account.Name = 'before'"}
    headers = {"Sforce-Query-Options": "batchSize=200"}
    page = client.call("GET", "/query", params=params, headers=headers).json()
    client.update("Account", account, Name="after")
    (last,) = client.http.get(client.org.instance_url + page["nextRecordsUrl"], headers=headers).json()["records"]
    assert last["Account"]["Name"] == "before"


def test_user_is_queried_like_a_record(client: SObjectClient) -> None:
    account = client.create("Account", Name="x")
    owner = client.query(f"SELECT OwnerId, Owner.Name FROM Account WHERE Id = '{account}'")
    (user,) = client.query(f"SELECT Id, Name FROM User WHERE Username = '{client.org.username}'")
    assert (user["Id"], user["Name"]) == (owner[0]["OwnerId"], owner[0]["Owner"]["Name"])


def test_deleted_parent_is_null_in_query_results(client: SObjectClient, account: str) -> None:
    shipment = client.create("Shipment__c", Account__c=account)
    client.delete("Account", account)
    (found,) = client.query(f"SELECT Account__r.Name FROM Shipment__c WHERE Id = '{shipment}'")
    assert found["Account__r"] is None
