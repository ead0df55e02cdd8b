"""Hook of records against a local org: every login flow, and connection tests that name the failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.salesforce_records import SalesforceRecordHook
from tests.support.localorg import LocalOrg
from tests.support.tasks import set_connection


def connection(org: LocalOrg, flow: str) -> dict[str, Any]:
    common = {"login_url": org.https_instance_url, "tls_ca": org.ca_file}
    extra: dict[str, dict[str, Any]] = {
        "client_credentials": {"consumer_key": org.client_id, "consumer_secret": org.client_secret},
        "jwt_bearer": {"consumer_key": org.client_id, "private_key": Path(org.jwt_private_key_file).read_text()},
        "refresh_token": {
            "consumer_key": org.client_id,
            "refresh_token": org.admin("POST", "/oauth/refresh_tokens", {})["refresh_token"],
        },
        "access_token": {"access_token": org.token(), "instance_url": org.https_instance_url},
        # The fields that the hook of Airflow's Salesforce provider reads, and the addresses of the local org.
        "password": {
            "consumer_key": org.client_id,
            "consumer_secret": org.client_secret,
            "security_token": org.security_token,
        },
    }
    fields: dict[str, Any] = {"conn_type": "salesforce", "extra": common | extra[flow] | {"auth_flow": flow}}
    if flow in ("jwt_bearer", "password"):
        fields["login"] = org.username
    if flow == "password":
        fields["password"] = org.password
    return fields


@pytest.mark.parametrize("flow", ["client_credentials", "jwt_bearer", "refresh_token", "access_token", "password"])
def test_every_login_flow_reads_records(org: LocalOrg, flow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "sf", **connection(org, flow))
    hook = SalesforceRecordHook("sf")
    with hook.get_conn() as client:
        assert client.org_id == org.org_id
        assert [record["Name"] for record in client.query("Account", ["Name"])] == ["Acme"]
        # The library's own object, for calls that this package has no method for.
        assert client.salesforce.query("SELECT Name FROM Account")["totalSize"] == 1
    assert hook.test_connection() == (True, f"Logged in to org {org.org_id}; records can be read.")


def test_connection_test_of_records_names_the_failure(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = org.airflow_connection(version="46.0")
    set_connection(monkeypatch, "sf", **fields)
    works, message = SalesforceRecordHook("sf").test_connection()
    assert not works
    assert "connection 'sf': API version '46.0' is invalid or too old: query jobs require 47.0 or above" in message
    set_connection(monkeypatch, "sf", **org.airflow_connection(consumer_secret="wrong"))
    works, message = SalesforceRecordHook("sf").test_connection()
    assert not works
    assert message.startswith("Records: ")
    assert "wrong" not in message


def test_login_url_without_tls_is_refused(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "sf", **org.airflow_connection(login_url=org.instance_url))
    with pytest.raises(ConfigurationError, match=r"connection 'sf': Records are fetched over HTTPS only"):
        SalesforceRecordHook("sf").get_conn()
