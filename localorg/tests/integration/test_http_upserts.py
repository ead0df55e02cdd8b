"""Upserts and reads of single records and collections by external ID, and reads of several records by id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from simple_salesforce.api import Salesforce

from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient, error_of


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        yield local_org


@pytest.fixture
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org)
    yield client
    client.close()


def account(**values: Any) -> dict[str, Any]:
    return {"attributes": {"type": "Account"}, **values}


def test_upsert_by_external_id_creates_then_updates_a_record(client: SObjectClient) -> None:
    path = "/sobjects/Account/GUID__c/one%2Fslash"
    before = len(client.org.record("/data/AccountChangeEvent"))
    created = client.call("PATCH", path, {"Name": "new"})
    assert created.status_code == 201
    assert created.json() == {"id": created.json()["id"], "success": True, "errors": [], "created": True}
    updated = client.call("PATCH", "/sobjects/account/guid__C/ONE%2Fslash", {"Name": "changed"})
    assert (updated.status_code, updated.json()) == (200, {**created.json(), "created": False})
    read = client.call("GET", path, params={"fields": "id,Name,GUID__c"}).json()
    del read["attributes"]
    assert read == {"Id": created.json()["id"], "Name": "changed", "GUID__c": "one/slash"}
    assert len(client.org.record("/data/AccountChangeEvent")) == before + 2
    assert client.call("DELETE", path).status_code == 204
    assert error_of(client.call("GET", path)) == (404, "NOT_FOUND")


def test_upsert_response_below_version_46_has_no_created(org: LocalOrg) -> None:
    old = SObjectClient(org, version="45.0")
    path = "/sobjects/Account/GUID__c/old"
    assert "created" not in old.call("PATCH", path, {"Name": "old"}).json()
    updated = old.call("PATCH", path, {"Name": "older"})
    assert (updated.status_code, updated.content) == (204, b"")
    old.close()


def test_external_id_of_several_records_returns_300_and_changes_nothing(client: SObjectClient) -> None:
    ids = [client.create("Account", Name=name, GUID__c="twice") for name in ("a", "b")]
    path = "/sobjects/Account/GUID__c/TWICE"
    urls = [f"/services/data/v59.0/sobjects/Account/{record_id}" for record_id in ids]
    for method, body in (("PATCH", {"Name": "c"}), ("GET", None), ("DELETE", None)):
        answer = client.call(method, path, body)
        assert (answer.status_code, answer.json()) == (300, urls)
    assert [record["Name"] for record in client.query("SELECT Name FROM Account WHERE GUID__c = 'twice'")] == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/sobjects/Account/Name/x", {}, 404, "NOT_FOUND"),
        ("/sobjects/Account/Nothing__c/x", {}, 404, "NOT_FOUND"),
        ("/sobjects/Nothing/GUID__c/x", {}, 404, "NOT_FOUND"),
        ("/sobjects/Account/GUID__c/x", {"guid__c": "x", "Name": "x"}, 400, "INVALID_FIELD"),
        ("/sobjects/Account/GUID__c/x", {}, 400, "REQUIRED_FIELD_MISSING"),
        ("/sobjects/Account/GUID__c/x", {"Nothing": "x", "Name": "x"}, 400, "INVALID_FIELD"),
        ("/sobjects/Account/Id/001000000009999AAA", {"Name": "x"}, 404, "NOT_FOUND"),
        ("/sobjects/Account/Id/x", {"Name": "x"}, 400, "MALFORMED_ID"),
    ],
)
def test_invalid_upserts_are_refused(
    client: SObjectClient, path: str, body: dict[str, str], status: int, code: str
) -> None:
    assert error_of(client.call("PATCH", path, body)) == (status, code)


def test_upsert_by_record_id_creates_then_updates_a_record(client: SObjectClient) -> None:
    created = client.call("POST", "/sobjects/Account/Id", {"Name": "new"})
    assert (created.status_code, created.json()["created"]) == (201, True)
    updated = client.call("PATCH", f"/sobjects/Account/Id/{created.json()['id'][:15]}", {"Name": "changed"})
    assert (updated.status_code, updated.json()) == (200, {**created.json(), "created": False})


def test_upsert_by_a_number_works_after_a_restart(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path) as org:
        field = {"name": "Number__c", "type": "Double", "externalId": True}
        org.admin("POST", "/entities/Shipment__c/fields", field)
        org.admin("POST", "/entities/Shipment__c/fields", {"name": "Plain__c", "type": "Double"})
        with pytest.raises(Exception, match="an external ID is one of"):
            org.admin("POST", "/entities/Shipment__c/fields", {**field, "name": "Other__c", "type": "DateOnly"})
        client = SObjectClient(org)
        assert client.call("PATCH", "/sobjects/Shipment__c/Number__c/12", {"Name": "s"}).status_code == 201
        client.close()
    with LocalOrg.running(tmp_path) as org:
        client = SObjectClient(org)
        assert client.call("PATCH", "/sobjects/Shipment__c/Number__c/12.0", {"Name": "t"}).status_code == 200
        assert client.call("GET", "/sobjects/Shipment__c/Number__c/12").json()["Name"] == "t"
        assert error_of(client.call("GET", "/sobjects/Shipment__c/Plain__c/12")) == (404, "NOT_FOUND")
        client.close()


def test_collection_upsert_by_external_id(client: SObjectClient) -> None:
    client.create("Account", Name="there", GUID__c="c1")
    for _ in range(2):
        client.create("Account", Name="both", GUID__c="c2")
    records = [
        account(GUID__c="C1", Name="updated"),
        account(GUID__c="c2", Name="which"),
        account(GUID__c="c3", Name="created"),
        account(GUID__c="c3", Name="again"),
        account(Name="without"),
        {"attributes": {"type": "Contact"}, "GUID__c": "c4", "LastName": "x"},
    ]
    results = client.call("PATCH", "/composite/sobjects/Account/GUID__c", {"records": records}).json()
    assert [(one["success"], one["created"]) for one in results] == [(True, False), (False, False), (True, True)] + [
        (False, False)
    ] * 3
    codes = [one["errors"][0]["statusCode"] for one in results if one["errors"]]
    assert codes == ["DUPLICATE_EXTERNAL_ID", "DUPLICATE_VALUE", "MISSING_ARGUMENT", "INVALID_TYPE"]
    found = client.query("SELECT Name FROM Account WHERE GUID__c IN ('c1', 'c3') ORDER BY GUID__c")
    assert [record["Name"] for record in found] == ["updated", "created"]


def test_collection_upsert_with_all_or_none_rolls_back(client: SObjectClient) -> None:
    body = {"allOrNone": True, "records": [account(GUID__c="n1", Name="n"), account(GUID__c="n2")]}
    results = client.call("PATCH", "/composite/sobjects/Account/GUID__c", body).json()
    assert [one["errors"][0]["statusCode"] for one in results] == [
        "ALL_OR_NONE_OPERATION_ROLLED_BACK",
        "REQUIRED_FIELD_MISSING",
    ]
    assert {one["created"] for one in results} == {False}
    assert client.query("SELECT Id FROM Account WHERE GUID__c = 'n1'") == []


def test_collection_upsert_by_record_id(client: SObjectClient) -> None:
    known = client.create("Account", Name="known")
    records = [account(Id=known, Name="changed"), account(Name="new by id")]
    results = client.call("PATCH", "/composite/sobjects/Account/Id", {"records": records}).json()
    assert [one["created"] for one in results] == [False, True]
    assert results[0]["id"] == known


def test_several_records_are_read_by_id(client: SObjectClient) -> None:
    ids = [client.create("Account", Name=f"m{number}") for number in range(3)]
    client.delete("Account", ids[1])
    contact = client.create("Contact", LastName="c")
    requested = [ids[2][:15], ids[1], "nonsense", ids[0], contact, ids[0]]
    query = {"ids": ",".join(requested), "fields": "name,id"}
    by_url = client.call("GET", "/composite/sobjects/Account", params=query)
    by_body = client.call("POST", "/composite/sobjects/Account", {"ids": requested, "fields": ["name", "id"]})
    assert (by_url.status_code, by_url.json()) == (200, by_body.json())
    assert [record and record["Name"] for record in by_url.json()] == ["m2", None, None, "m0", None, "m0"]
    assert by_url.json()[0] == {
        "attributes": {"type": "Account", "url": f"/services/data/v59.0/sobjects/Account/{ids[2]}"},
        "Id": ids[2],
        "Name": "m2",
    }


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"ids": ["001000000000001AAA"], "fields": ["Nothing"]}, "INVALID_FIELD"),
        ({"ids": ["001000000000001AAA"]}, "JSON_PARSER_ERROR"),
        ({"ids": [], "fields": ["Name"]}, "MISSING_ARGUMENT"),
        ({"ids": ["001000000000001AAA"] * 2001, "fields": ["Name"]}, "EXCEEDED_ID_LIMIT"),
    ],
)
def test_invalid_reads_of_several_records_are_refused(client: SObjectClient, body: dict[str, Any], code: str) -> None:
    assert error_of(client.call("POST", "/composite/sobjects/Account", body)) == (400, code)


def test_simple_salesforce_upserts_and_reads(org: LocalOrg) -> None:
    with requests.Session() as session:
        session.verify, session.trust_env = org.ca_file, False  # the environment may define another authority
        salesforce = Salesforce(
            instance_url=org.https_instance_url, session_id=org.token(), version="59.0", session=session
        )
        assert salesforce.Account.upsert("GUID__c/simple", {"Name": "simple"}) == 201
        assert salesforce.Account.upsert("GUID__c/simple", {"Name": "simpler"}) == 200
        assert salesforce.Account.get_by_custom_id("GUID__c", "simple")["Name"] == "simpler"
