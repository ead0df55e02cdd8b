"""Records of a local org, read over TLS through the REST API and the Bulk API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from requests.adapters import BaseAdapter

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
)
from airflow_provider_sfstream.salesforce import soql
from airflow_provider_sfstream.salesforce.auth.credentials import Credentials, credentials_from
from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.rest.records import Record, RecordClient
from tests.support.clients import app_fields
from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient

COLUMNS = (
    *("Id", "IsDeleted", "SystemModstamp", "Name", "LastName", "BillingLatitude", "Description", "NumberOfEmployees"),
    *("Some_Time__c", "Some_Date_Time__c", "Some_Date__c", "Some_Check_Box__c", "AnnualRevenue"),
)
MANY = 2_100
Reader = Callable[..., list[Record]]


def provider(org: LocalOrg, **options: Any) -> OAuthTokenProvider:
    fields = app_fields(org) | {"login_url": org.https_instance_url}
    return OAuthTokenProvider(credentials_from(fields), network=NetworkSettings(org.ca_file), **options)


def connect(org: LocalOrg, **options: Any) -> RecordClient:
    arguments = {"api_version": "62.0", "network": NetworkSettings(org.ca_file), "job_wait": 0.01, **options}
    return RecordClient(arguments.pop("provider", None) or provider(org), **arguments)


@dataclass(frozen=True)
class Accounts:
    """All accounts of the org as its REST API returns them, and their IDs."""

    records: list[dict[str, Any]]
    ids: list[str]


@pytest.fixture(scope="module")
def accounts(running_org: LocalOrg) -> Accounts:
    client = SObjectClient(running_org)
    client.create(
        "Account",
        Name='Smith, "Jones"\r\n& Söhne 💧',
        Description="x" * 200_000,
        BillingLatitude=47.0707,
        NumberOfEmployees=7,
        Some_Time__c="10:20:30.125Z",
        Some_Date_Time__c="2026-01-31T10:00:00Z",
        Some_Date__c="1999-12-31",
        Some_Check_Box__c=True,
        AnnualRevenue=12345678.25,
    )
    client.create("Account", FirstName="Ada", LastName="Lovelace")
    client.delete("Account", client.create("Account", Name="deleted"))
    body = [{"attributes": {"type": "Account"}, "Name": f"Account {number}"} for number in range(MANY - 3)]
    for start in range(0, len(body), 200):
        assert client.call("POST", "/composite/sobjects", {"records": body[start : start + 200]}).status_code == 200
    # Read here, because later tests revoke every token.
    records = client.query(soql.select("Account", COLUMNS), deleted=True)
    ids = [record["Id"] for record in client.query("SELECT Id FROM Account", deleted=True)]
    client.close()
    return Accounts(records, ids)


@pytest.fixture
def client(org: LocalOrg, accounts: Accounts) -> Iterator[RecordClient]:
    with connect(org) as one:
        yield one


@pytest.fixture(params=["rest", "bulk"])
def read(request: pytest.FixtureRequest, client: RecordClient) -> Reader:
    if request.param == "rest":
        return lambda *arguments: list(client.query(*arguments))
    return lambda *arguments: list(client.bulk_query(*arguments, page_records=1_000))


def as_text(record: dict[str, Any]) -> Record:
    """Return a record of the REST API with its values as text."""
    shown = {None: None, True: "true", False: "false"}
    return {
        name: shown[value] if value is None or isinstance(value, bool) else str(value)
        for name, value in record.items()
        if name != "attributes"
    }


def test_all_records_are_read_with_their_values(read: Reader, accounts: Accounts) -> None:
    assert len(accounts.records) == MANY
    found = read("Account", COLUMNS)
    assert found == [as_text(record) for record in accounts.records]
    assert sorted((record["Name"] or "")[:8] for record in found[:3]) == ["Ada Love", 'Smith, "', "deleted"]


def test_records_are_read_by_id(read: Reader, accounts: Accounts) -> None:
    ids = accounts.ids
    unknown = "001zzzzzzzzzzzzAAA"
    assert {record["Id"] for record in read("Account", ["Id"], [*ids[:3], unknown])} == set(ids[:3])
    room = soql.ids_in_url("Account", COLUMNS)
    assert [record["Id"] for record in read("Account", COLUMNS, ids[:room])] == ids[:room]


def test_empty_object_has_no_records(read: Reader) -> None:
    assert read("Shipment__c", ["Id"]) == []


def ended_early(page: bytes) -> bytes:
    return json.dumps({**json.loads(page), "done": True}).encode()


def without_last_record(page: bytes) -> bytes:
    content = json.loads(page)
    return json.dumps({**content, "records": content["records"][:-1], "done": True}).encode()


class Damaging(BaseAdapter):
    """Adapter that damages the pages of queries, by default of query jobs, in responses, and removes a header."""

    def __init__(
        self, inner: BaseAdapter, damage: Callable[[bytes], bytes], path: str = "/results", *, without: str = ""
    ) -> None:
        super().__init__()
        self._inner, self._damage, self._path, self._without = inner, damage, path, without

    def send(self, request: Any, **options: Any) -> Any:  # type: ignore[override]
        response = self._inner.send(request, **options)
        if urlsplit(request.url).path.endswith(self._path):
            response._content = self._damage(response.content)
            response.headers.pop(self._without, None)
        return response

    def close(self) -> None:
        self._inner.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda page: page[: page.rstrip().rfind(b"\n") + 1],
        lambda page: page[: page.rstrip().rfind(b",")],
        lambda page: page.rstrip()[:-1],
        lambda page: page[: page.find(b"\n") + 1],
        lambda page: b"\n".join(line for number, line in enumerate(page.split(b"\n")) if number != 7),
        lambda page: page + page.splitlines(keepends=True)[-1],
    ],
    ids=["last_row_gone", "last_row_cut", "last_value_cut", "all_rows_gone", "a_row_gone", "a_row_twice"],
)
@pytest.mark.usefixtures("accounts")
def test_incomplete_page_of_a_query_job_raises(client: RecordClient, damage: Callable[[bytes], bytes]) -> None:
    client._session.mount("https://", Damaging(client._session.get_adapter("https://"), damage))
    with pytest.raises(SalesforceStreamError, match=r"^Account: .*by the Bulk API, after 0.*not as documented"):
        list(client.bulk_query("Account", ["Id", "SystemModstamp"], page_records=1_000))


@pytest.mark.usefixtures("accounts")
def test_page_of_a_query_job_without_a_locator_is_not_the_last_one(client: RecordClient) -> None:
    damaging = Damaging(client._session.get_adapter("https://"), bytes, without="Sforce-Locator")
    client._session.mount("https://", damaging)
    with pytest.raises(SalesforceStreamError, match=r"^Account: .*by the Bulk API, after 0.*does not show whether"):
        list(client.bulk_query("Account", ["Id"], page_records=1_000))


@pytest.mark.parametrize("damage", [ended_early, without_last_record], ids=["pages", "record"])
@pytest.mark.usefixtures("accounts")
def test_query_that_ends_before_its_last_record_raises(client: RecordClient, damage: Callable[[bytes], bytes]) -> None:
    client._session.mount("https://", Damaging(client._session.get_adapter("https://"), damage, "/queryAll/"))
    with pytest.raises(ServiceUnavailableError, match=rf"^Account: .*returned \d+ of {MANY} records.*is unchanged"):
        list(client.query("Account", ["Id"]))


def test_describe_returns_field_types_and_count_the_number_of_records(client: RecordClient) -> None:
    described = client.describe("Account")
    assert (described["Name"], described["Some_Time__c"], described["BillingAddress"]) == ("string", "time", "address")
    assert client.count("Account") == MANY


@pytest.mark.parametrize("step", ["describe", "count", "query", "bulk"])
def test_unknown_object_raises(client: RecordClient, step: str) -> None:
    steps: dict[str, Callable[[str], Any]] = {
        "describe": client.describe,
        "count": client.count,
        "query": lambda name: list(client.query(name, ["Id"])),
        "bulk": lambda name: list(client.bulk_query(name, ["Id"], page_records=10)),
    }
    with pytest.raises(AccessDeniedError, match=r"^Nothing__c: .*does not exist in the org, or is hidden"):
        steps[step]("Nothing__c")


def test_removed_field_raises(read: Reader) -> None:
    with pytest.raises(ServiceUnavailableError, match=r"Account: its records.*INVALID_FIELD.*Run the task again"):
        read("Account", ["Id", "Gone__c"])


def test_expired_session_is_renewed_before_the_first_page(org: LocalOrg, client: RecordClient, read: Reader) -> None:
    org.revoke()
    assert len(read("Account", ["Id"])) == MANY


@pytest.mark.parametrize("api", ["rest", "bulk"])
def test_session_that_expires_between_two_pages_is_renewed(org: LocalOrg, client: RecordClient, api: str) -> None:
    if api == "rest":
        records = client.query("Account", ["Id"])
    else:
        records = client.bulk_query("Account", ["Id"], page_records=1_000)
    found = {next(records)["Id"]}
    org.revoke()
    found |= {record["Id"] for record in records}
    assert len(found) == MANY


def test_expired_token_that_cannot_be_renewed_raises(org: LocalOrg, accounts: Accounts) -> None:
    token = org.token()
    given = OAuthTokenProvider(
        Credentials("access_token", access_token=token, login_url=org.https_instance_url),
        network=NetworkSettings(org.ca_file),
    )
    with connect(org, provider=given) as client:
        assert client.count("Account") == MANY
        org.revoke(token)
        with pytest.raises(SalesforceStreamError) as caught:
            client.count("Account")
    assert isinstance(caught.value, SessionExpiredError | AuthenticationError)
    assert token not in str(caught.value)


def test_record_client_refuses_an_org_without_tls(org: LocalOrg) -> None:
    plain = OAuthTokenProvider(credentials_from(app_fields(org)))
    with pytest.raises(ConfigurationError, match=r"over HTTPS only.*Nothing was sent"):
        connect(org, provider=plain)


def test_records_are_not_read_with_an_unknown_certificate_authority(org: LocalOrg, other_authority: str) -> None:
    with (
        connect(org, network=NetworkSettings(other_authority)) as client,
        pytest.raises(ConfigurationError, match=r"TLS with the org failed.*tls_ca"),
    ):
        client.count("Account")


def test_private_certificate_authority_is_refused_without_tls_ca(org: LocalOrg) -> None:
    with (
        connect(org, network=NetworkSettings()) as client,
        pytest.raises(ConfigurationError, match="TLS with the org failed"),
    ):
        client.count("Account")


def test_failed_connection_raises_without_the_proxy_password(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "http://user:pr0xypass@127.0.0.1:9"
    monkeypatch.setattr("urllib3.util.retry.Retry.sleep", lambda *_: None)
    with (
        connect(org, provider=provider(org), network=NetworkSettings(org.ca_file, {"https": secret})) as client,
        pytest.raises(
            ServiceUnavailableError, match=r"Account: its number of records: the connection failed"
        ) as caught,
    ):
        client.count("Account")
    assert "pr0xypass" not in str(caught.value)


@pytest.mark.parametrize("version", ["46.0", "latest"])
def test_api_version_without_query_jobs_is_refused(org: LocalOrg, version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"query jobs require 47\.0 or above"):
        connect(org, api_version=version)
