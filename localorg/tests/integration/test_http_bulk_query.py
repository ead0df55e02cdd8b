"""Bulk API 2.0 query jobs of the local org."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient, error_of

SELECT = "SELECT Id, IsDeleted, Name, AnnualRevenue, Some_Time__c, Some_Date_Time__c, Description FROM Account"
MANY = 5


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
    values: list[dict[str, Any]] = [
        {"Name": 'quoted "x", and\r\nlines', "Some_Time__c": "10:20:30.000Z"},
        {"FirstName": "Ada", "LastName": "Lovelace", "AnnualRevenue": 1.5},
        {"Name": "Österreich 💧", "Some_Date_Time__c": "2026-01-31T10:00:00Z", "Description": ""},
        *({"Name": f"Account {number}"} for number in range(MANY - 4)),
        {"Name": "deleted"},
    ]
    ids = [client.create("Account", **one) for one in values]
    client.delete("Account", ids[-1])
    return ids


def submit(client: SObjectClient, query: str, **fields: Any) -> httpx.Response:
    return client.call("POST", "/jobs/query", {"operation": "queryAll", "query": query, **fields})


def run_job(client: SObjectClient, query: str, **fields: Any) -> str:
    response = submit(client, query, **fields)
    assert response.status_code == 200, response.text
    assert response.json()["state"] == "UploadComplete"
    path = f"/jobs/query/{response.json()['id']}"
    states = [client.call("GET", path).json()["state"] for _ in range(3)]
    assert states == ["InProgress", "JobComplete", "JobComplete"]
    return path


def rows(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))


def test_query_job_returns_the_records_of_query_all(client: SObjectClient, accounts: list[str]) -> None:
    path = run_job(client, SELECT)
    response = client.call("GET", path + "/results")
    assert response.headers["Content-Type"] == "text/csv; charset=UTF-8"
    assert (response.headers["Sforce-Locator"], response.headers["Sforce-NumberOfRecords"]) == ("null", str(MANY))
    expected = [
        {
            name: {None: "", True: "true", False: "false"}.get(value, value)
            if value in (None, True, False)
            else str(value)
            for name, value in record.items()
            if name != "attributes"
        }
        for record in client.query(SELECT, deleted=True)
    ]
    assert rows(response.text) == expected
    assert {row["Id"] for row in rows(response.text)} == set(accounts)


def test_fields_of_parents_are_csv_columns_of_a_query_job(client: SObjectClient, accounts: list[str]) -> None:
    soql = "SELECT Name, Owner.Username, Parent.Name FROM Account WHERE Name LIKE 'account%' OR Name = 'deleted'"
    path = run_job(client, soql, operation="query")
    found = rows(client.call("GET", path + "/results").text)
    assert found == [{"Name": "Account 0", "Owner.Username": client.org.username, "Parent.Name": ""}]


def test_query_job_of_operation_query_omits_deleted_records(client: SObjectClient, accounts: list[str]) -> None:
    path = run_job(client, SELECT, operation="query")
    found = rows(client.call("GET", path + "/results").text)
    assert {row["Id"] for row in found} == set(accounts[:-1])


def test_query_job_returns_its_results_in_pages_by_locator(client: SObjectClient, accounts: list[str]) -> None:
    path = run_job(client, "SELECT Id FROM Account", lineEnding="CRLF", columnDelimiter="TAB")
    ids, locator, pages = [], "", 0
    while locator != "null":
        requested = {"maxRecords": "2", **({"locator": locator} if locator else {})}
        response = client.call("GET", path + "/results", params=requested)
        assert response.text.startswith('"Id"\r\n')
        found = rows(response.text, "\t")
        assert len(found) == int(response.headers["Sforce-NumberOfRecords"])
        ids += [row["Id"] for row in found]
        locator, pages = response.headers["Sforce-Locator"], pages + 1
    assert (sorted(ids), pages) == (sorted(accounts), 3)


def test_query_job_returns_the_records_at_its_creation(client: SObjectClient, accounts: list[str]) -> None:
    path = run_job(client, "SELECT Id FROM Contact")
    client.create("Contact", LastName="later")
    response = client.call("GET", path + "/results")
    assert (response.text, response.headers["Sforce-NumberOfRecords"]) == ('"Id"\n', "0")


@pytest.mark.parametrize(
    ("query", "fields", "code"),
    [
        ("SELECT BillingAddress FROM Account", {}, "API_ERROR"),
        ("SELECT COUNT() FROM Account", {}, "API_ERROR"),
        ("SELECT COUNT(Id) FROM Account", {}, "API_ERROR"),
        ("SELECT Id FROM Account LIMIT 1 OFFSET 1", {}, "API_ERROR"),
        ("SELECT Nothing__c FROM Account", {}, "INVALID_FIELD"),
        ("SELECT Id FROM Nothing__c", {}, "INVALID_TYPE"),
        ("SELECT", {}, "MALFORMED_QUERY"),
        ("SELECT Id FROM Account", {"operation": "insert"}, "INVALIDJOB"),
        ("SELECT Id FROM Account", {"columnDelimiter": "DOT"}, "INVALIDJOB"),
        ("SELECT Id FROM Account", {"contentType": "JSON"}, "INVALIDJOB"),
    ],
)
def test_invalid_query_jobs_are_refused(client: SObjectClient, query: str, fields: dict[str, str], code: str) -> None:
    assert error_of(submit(client, query, **fields)) == (400, code)


def test_query_job_can_be_aborted_and_deleted(client: SObjectClient) -> None:
    path = f"/jobs/query/{submit(client, SELECT).json()['id']}"
    assert error_of(client.call("GET", path + "/results")) == (400, "INVALIDJOBSTATE")
    assert error_of(client.call("DELETE", path)) == (400, "INVALIDJOBSTATE")
    assert client.call("PATCH", path, {"state": "Aborted"}).json()["state"] == "Aborted"
    assert client.call("GET", path).json()["state"] == "Aborted"
    assert client.call("DELETE", path).status_code == 204
    assert error_of(client.call("GET", path)) == (404, "NOT_FOUND")
    assert error_of(client.call("GET", path + "/results")) == (404, "NOT_FOUND")


def test_complete_query_job_cannot_be_aborted(client: SObjectClient) -> None:
    path = run_job(client, SELECT)
    assert error_of(client.call("PATCH", path, {"state": "Aborted"})) == (400, "INVALIDJOBSTATE")
    assert error_of(client.call("GET", path + "/results", params={"locator": "x"})) == (400, "INVALID_QUERY_LOCATOR")
    listed = client.call("GET", "/jobs/query").json()["records"]
    assert path.rpartition("/")[2] in {job["id"] for job in listed}


def test_url_of_the_maximum_length_of_salesforce_is_accepted(client: SObjectClient, accounts: list[str]) -> None:
    names = ", ".join(f"'{'x' * 100}{number}'" for number in range(140))
    found = client.query(f"SELECT Id FROM Account WHERE Name NOT IN ({names})")
    assert {record["Id"] for record in found} == set(accounts[:-1])
