"""The hook for records against a local org: every login flow gives a client, and a connection test says what fails."""

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
        # Field for field what the hook of Airflow's Salesforce provider takes, and a local org beside it.
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
def test_every_login_flow(org: LocalOrg, flow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "sf", **connection(org, flow))
    hook = SalesforceRecordHook("sf")
    with hook.get_conn() as client:
        assert client.org_id == org.org_id
        assert [record["Name"] for record in client.query("Account", ["Name"])] == ["Acme"]
        # The library's own object, for what this package has no method for.
        assert client.salesforce.query("SELECT Name FROM Account")["totalSize"] == 1
    assert hook.test_connection() == (True, f"Logged in to org {org.org_id}; records can be read.")


def test_what_a_connection_test_says(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = org.airflow_connection(version="46.0")
    set_connection(monkeypatch, "sf", **fields)
    works, said = SalesforceRecordHook("sf").test_connection()
    assert not works
    assert "connection 'sf': API version '46.0' is none that has query jobs" in said
    set_connection(monkeypatch, "sf", **org.airflow_connection(consumer_secret="wrong"))
    works, said = SalesforceRecordHook("sf").test_connection()
    assert not works
    assert said.startswith("Records: ")
    assert "wrong" not in said


def test_an_address_without_tls(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "sf", **org.airflow_connection(login_url=org.instance_url))
    with pytest.raises(ConfigurationError, match=r"connection 'sf': Records are fetched over HTTPS only"):
        SalesforceRecordHook("sf").get_conn()
