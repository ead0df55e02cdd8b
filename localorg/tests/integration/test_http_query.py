from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient, error_of


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        yield local_org


@pytest.fixture(scope="module")
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org)
    yield client
    client.close()


@pytest.fixture(scope="module")
def accounts(client: SObjectClient) -> list[str]:
    values = [
        {"Name": "alpha", "AnnualRevenue": 10, "Some_Date__c": "2026-01-01"},
        {"Name": "Beta's \\ best", "AnnualRevenue": 20, "Some_Date__c": "2026-06-01", "Active__c": "Yes"},
        {"Name": "gamma", "Some_Check_Box__c": True, "BillingCity": "Graz"},
        {"Name": "deleted"},
    ]
    ids = [client.create("Account", **one) for one in values]
    client.delete("Account", ids.pop())
    return ids


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("", [0, 1, 2]),
        ("WHERE Name = 'ALPHA'", [0]),
        (r"WHERE Name = 'Beta\'s \\ best'", [1]),
        ("WHERE Name IN ('alpha', 'gamma', 'deleted')", [0, 2]),
        ("WHERE Name NOT IN ('alpha')", [1, 2]),
        ("WHERE Name != 'alpha' AND AnnualRevenue = null", [2]),
        ("WHERE AnnualRevenue > 10", [1]),
        ("WHERE AnnualRevenue <= 10.0", [0]),
        ("WHERE Some_Date__c >= 2026-06-01", [1]),
        ("WHERE CreatedDate < 2001-01-01T00:00:00Z", []),
        ("WHERE LastModifiedDate > 2001-01-01T00:00:00.000+00:00 AND Some_Check_Box__c = TRUE", [2]),
        ("WHERE Active__c <> null", [1]),
        ("ORDER BY AnnualRevenue DESC, Name", [1, 0, 2]),
        ("ORDER BY Name LIMIT 1 OFFSET 1", [1]),
        ("LIMIT 2", [0, 1]),
    ],
)
def test_conditions(client: SObjectClient, accounts: list[str], where: str, found: list[int]) -> None:
    records = client.query(f"SELECT Id FROM Account {where}")
    assert [record["Id"] for record in records] == [accounts[i] for i in found]


def test_query_accepts_record_ids_of_15_and_18_characters(client: SObjectClient, accounts: list[str]) -> None:
    for text in (accounts[1], accounts[1][:15]):
        (record,) = client.query(f"select id, name from account where id = '{text}'")
        assert record["Id"] == accounts[1]
        assert record["Name"] == "Beta's \\ best"


def test_only_query_all_returns_deleted_records(client: SObjectClient, accounts: list[str]) -> None:
    every = client.query("SELECT Name, IsDeleted FROM Account", deleted=True)
    assert [record["IsDeleted"] for record in every] == [False, False, False, True]


def test_fields_all_returns_every_described_field_and_count_the_records(
    client: SObjectClient, accounts: list[str]
) -> None:
    (record,) = client.query("SELECT FIELDS(ALL) FROM Account WHERE BillingCity = 'Graz' LIMIT 200")
    described = client.call("GET", "/sobjects/Account/describe").json()["fields"]
    assert set(record) == {"attributes", *(field["name"] for field in described)}
    counted = client.call("GET", "/query", params={"q": "SELECT COUNT() FROM Account"}).json()
    assert counted == {"totalSize": 3, "done": True, "records": []}


def test_all_pages_of_a_query_show_the_records_at_the_time_of_the_query(client: SObjectClient) -> None:
    for start in (0, 200, 400):
        records = [{"attributes": {"type": "Contact"}, "LastName": f"n{n:04}"} for n in range(start, start + 200)]
        assert all(r["success"] for r in client.call("POST", "/composite/sobjects", {"records": records}).json())
    headers = {"Sforce-Query-Options": "batchSize=200"}
    page = client.call("GET", "/query", params={"q": "SELECT LastName FROM Contact"}, headers=headers).json()
    assert (page["totalSize"], page["done"], len(page["records"])) == (600, False, 200)
    client.create("Contact", LastName="later")
    names = [record["LastName"] for record in page["records"]]
    while not page["done"]:
        page = client.http.get(client.org.instance_url + page["nextRecordsUrl"], headers=headers).json()
        names += [record["LastName"] for record in page["records"]]
    assert names == [f"n{n:04}" for n in range(600)]
    assert len(client.query("SELECT Id FROM Contact")) == 601


@pytest.mark.parametrize(
    ("soql", "code"),
    [
        ("", "MALFORMED_QUERY"),
        ("SELECT Id", "MALFORMED_QUERY"),
        ("SELECT Id FROM Account WHERE", "MALFORMED_QUERY"),
        ("SELECT Id FROM Account WHERE Name = 'a' OR Name = 'b' AND Name = 'c'", "MALFORMED_QUERY"),
        ("SELECT Id FROM Account WHERE CreatedDate = SOMEDAY", "MALFORMED_QUERY"),
        ("SELECT Id, Campaign.Name FROM Opportunity", "INVALID_FIELD"),
        ("SELECT Id FROM Account WHERE Name = 'a", "MALFORMED_QUERY"),
        ("SELECT Id FROM Account LIMIT many", "MALFORMED_QUERY"),
        ("SELECT Id FROM Account; DROP TABLE record", "MALFORMED_QUERY"),
        ("SELECT Id FROM Nothing", "INVALID_TYPE"),
        ("SELECT Nothing FROM Account", "INVALID_FIELD"),
        ("SELECT Id FROM Account WHERE BillingAddress = 'x'", "INVALID_FIELD"),
        ("SELECT Id FROM Account WHERE AnnualRevenue = 'much'", "JSON_PARSER_ERROR"),
    ],
)
def test_invalid_queries_are_refused(client: SObjectClient, soql: str, code: str) -> None:
    assert error_of(client.call("GET", "/query/", params={"q": soql})) == (400, code)


def test_unknown_query_locator_is_refused(client: SObjectClient) -> None:
    assert error_of(client.call("GET", "/query/01g000000000999AAA-2000")) == (400, "INVALID_QUERY_LOCATOR")


def test_count_of_a_field_counts_its_values(client: SObjectClient, accounts: list[str]) -> None:
    soql = "SELECT COUNT(Id), COUNT(AnnualRevenue) filled FROM Account"
    counted = client.call("GET", "/query", params={"q": soql}).json()
    row = {"attributes": {"type": "AggregateResult"}, "expr0": len(accounts), "filled": 2}
    assert counted == {"totalSize": 1, "done": True, "records": [row]}


def columns(client: SObjectClient, soql: str, path: str = "/query") -> dict[str, Any]:
    response = client.call("GET", path, params={"q": soql, "columns": "true"})
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_query_with_columns_returns_column_metadata(client: SObjectClient, accounts: list[str]) -> None:
    soql = "SELECT Id, Name, AnnualRevenue, Some_Check_Box__c, Some_Date__c, Owner.Name, Owner.Id FROM Account"
    answer = columns(client, soql)
    *own, owner = answer.pop("columnMetadata")
    assert answer == {"entityName": "Account", "groupBy": False, "idSelected": True, "keyPrefix": "001"}
    assert own[1] == {
        "aggregate": False,
        "apexType": "String",
        "booleanType": False,
        "columnName": "Name",
        "custom": False,
        "displayName": "Name",
        "foreignKeyName": None,
        "insertable": True,
        "joinColumns": [],
        "numberType": False,
        "textType": True,
        "updatable": True,
    }
    assert [(one["columnName"], one["apexType"], one["custom"]) for one in own] == [
        ("Id", "Id", False),
        ("Name", "String", False),
        ("AnnualRevenue", "Double", False),
        ("Some_Check_Box__c", "Boolean", True),
        ("Some_Date__c", "Date", True),
    ]
    assert (owner["columnName"], owner["foreignKeyName"]) == ("Owner", "OwnerId")
    assert [one["columnName"] for one in owner["joinColumns"]] == ["Name", "Id"]


def test_column_metadata_of_counts_and_of_tooling_queries(client: SObjectClient) -> None:
    (count,) = columns(client, "SELECT COUNT(Id) many FROM Account")["columnMetadata"]
    assert (count["aggregate"], count["columnName"], count["apexType"]) == (True, "many", "Integer")
    answer = columns(client, "SELECT Id, DeveloperName FROM CustomObject", "/tooling/query")
    assert [one["columnName"] for one in answer["columnMetadata"]] == ["Id", "DeveloperName"]


def test_query_with_columns_of_an_unknown_field_is_refused(client: SObjectClient) -> None:
    answer = client.call("GET", "/query", params={"q": "SELECT Nothing FROM Account", "columns": "true"})
    assert error_of(answer)[:2] == (400, "INVALID_FIELD")
