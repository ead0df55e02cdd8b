"""Formula fields and roll-up summaries, which change without an event and without SystemModstamp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.computed_fields import add_computed_fields
from tests.support.localorg import AdminError, LocalOrg
from tests.support.sobject_client import SObjectClient, error_of


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        add_computed_fields(local_org)
        yield local_org


@pytest.fixture
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org)
    yield client
    client.http.close()


def field_values(client: SObjectClient, entity: str, record_id: str, *fields: str) -> list[Any]:
    (record,) = client.query(f"SELECT {', '.join(fields)} FROM {entity} WHERE Id = '{record_id}'")
    return [record[name] for name in fields]


def test_computed_fields_follow_changes_of_their_sources_without_an_event(org: LocalOrg, client: SObjectClient) -> None:
    account = client.create("Account", Name="A", Industry="Energy", Amount_Owed__c=10)
    contact = client.create("Contact", LastName="C", AccountId=account)
    deal = {"StageName": "New", "CloseDate": "2026-12-31", "AccountId": account}
    first = client.create("Opportunity", Name="1", Amount=5, **deal)
    client.create("Opportunity", Name="2", Amount=7.5, **deal)
    stamps = (
        field_values(client, "Account", account, "SystemModstamp"),
        field_values(client, "Contact", contact, "SystemModstamp"),
    )
    events = len(org.record("/data/AccountChangeEvent"))
    assert field_values(client, "Account", account, "Owed_With_Tax__c", "Pipeline__c") == [20.0, 12.5]
    client.delete("Opportunity", first)
    assert field_values(client, "Account", account, "Pipeline__c") == [7.5]
    assert stamps[0] == field_values(client, "Account", account, "SystemModstamp")
    assert len(org.record("/data/AccountChangeEvent")) == events
    client.update("Account", account, Industry="Media")
    assert field_values(client, "Contact", contact, "Account_Industry__c") == ["Media"]
    assert stamps[1] == field_values(client, "Contact", contact, "SystemModstamp")
    (event,) = (one["fields"] for one in org.record("/data/ContactChangeEvent"))
    assert "Account_Industry__c" not in event


def test_computed_fields_are_described_as_calculated_and_are_read_only(client: SObjectClient) -> None:
    fields = {field["name"]: field for field in client.call("GET", "/sobjects/Account/describe").json()["fields"]}
    assert {name for name, field in fields.items() if field["calculated"]} == {"Owed_With_Tax__c", "Pipeline__c"}
    assert fields["Owed_With_Tax__c"]["calculatedFormula"] == "Amount_Owed__c * 2"
    assert fields["Pipeline__c"]["type"] == "currency"
    response = client.call("POST", "/sobjects/Account", {"Name": "A", "Pipeline__c": 1})
    assert error_of(response)[1] == "INVALID_FIELD_FOR_INSERT_UPDATE"


def test_computed_fields_survive_a_restart(org: LocalOrg, client: SObjectClient) -> None:
    account = client.create("Account", Name="A", Amount_Owed__c=4)
    org.restart()
    assert field_values(client, "Account", account, "Owed_With_Tax__c", "Pipeline__c") == [8.0, 0.0]


@pytest.mark.parametrize(
    "field",
    [
        {"name": "X__c", "type": "Text", "formula": "Name & Industry"},
        {"name": "X__c", "type": "Location", "formula": "Name"},
        {"name": "X__c", "type": "Double", "summaryOperation": "max", "summaryForeignKey": "Contact.AccountId"},
        {"name": "X__c", "type": "Double", "summaryOperation": "sum", "summaryForeignKey": "Contact.AccountId"},
        {"name": "Pipeline__c", "type": "Double", "formula": "Amount_Owed__c"},
        {"name": "Pipeline__c", "type": "Double"},
        {"name": "X", "type": "Text", "formula": "Name"},
    ],
)
def test_unsupported_definitions_of_computed_fields_are_refused(
    org: LocalOrg, client: SObjectClient, field: dict[str, str]
) -> None:
    before = client.call("GET", "/sobjects/Account/describe").json()
    with pytest.raises(AdminError, match="400"):
        org.admin("POST", "/entities/Account/fields", field)
    assert client.call("GET", "/sobjects/Account/describe").json() == before
