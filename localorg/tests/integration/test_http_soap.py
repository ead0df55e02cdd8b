"""SOAP login(), parsed like Salesforce's Python sample and simple-salesforce do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
import pytest_asyncio

from sfstream_localorg.org import Org
from tests.support.org_server import Client, serving

ENVELOPE = """<?xml version="1.0" encoding="utf-8" ?>
<env:Envelope xmlns:env="http://schemas.xmlsoap.org/soap/envelope/" xmlns:urn="urn:partner.soap.sforce.com">
  <env:Body><n1:login xmlns:n1="urn:partner.soap.sforce.com">
    <n1:username>{username}</n1:username><n1:password>{password}</n1:password>
  </n1:login></env:Body></env:Envelope>"""


@pytest_asyncio.fixture
async def org_and_client(tmp_path: Path) -> AsyncIterator[tuple[Org, Client]]:
    async with serving(tmp_path) as (org, client):
        org.identity = replace(org.identity, password="p<&>d")
        yield org, client


@pytest.fixture
def org(org_and_client: tuple[Org, Client]) -> Org:
    return org_and_client[0]


@pytest.fixture
def client(org_and_client: tuple[Org, Client]) -> Client:
    return org_and_client[1]


async def login(client: Client, username: str, password: str, version: str = "59.0") -> tuple[int, ElementTree.Element]:
    body = ENVELOPE.format(username=escape(username), password=escape(password))
    headers = {"Content-Type": "text/xml", "SOAPAction": "login"}
    response = await client.post(f"/services/Soap/u/{version}", data=body, headers=headers)
    assert response.content_type == "text/xml"
    return response.status, ElementTree.fromstring(await response.text())


@pytest.mark.parametrize("with_security_token", [False, True])
async def test_children_of_the_soap_login_result_have_the_order_of_salesforce(
    client: Client, org: Org, with_security_token: bool
) -> None:
    password = org.password + (org.security_token if with_security_token else "")
    status, root = await login(client, org.username, password)
    assert status == 200
    result = root[0][0][0]
    user_info = result[6]
    session = org.sessions.check(result[4].text)
    assert session is not None
    assert result[3].text == f"{org.instance_url}/services/Soap/u/59.0/{org.org_id[:15]}"
    assert user_info.tag.endswith("userInfo")
    assert user_info[8].text == org.org_id
    assert result[5].text == session.user_id


async def test_soap_login_with_a_wrong_password_returns_a_fault(client: Client, org: Org) -> None:
    status, root = await login(client, org.username, "wrong")
    fault = root[0][0]
    assert status == 500
    assert fault.findtext("faultcode") == "sf:INVALID_LOGIN"
    code = fault.find(".//{urn:fault.partner.soap.sforce.com}exceptionCode")
    assert code is not None
    assert code.text == "INVALID_LOGIN"
    assert len(org.sessions) == 0


@pytest.mark.parametrize("version", ["65.0", "66.0", "fifty"])
async def test_soap_login_is_not_available_from_version_65_on(client: Client, org: Org, version: str) -> None:
    status, root = await login(client, org.username, org.password, version)
    assert status == 500
    assert root[0][0].findtext("faultcode") == "sf:UNSUPPORTED_API_VERSION"


@pytest.mark.parametrize("body", ["", "<not xml", "<Envelope/>"])
async def test_invalid_soap_requests_return_a_fault(client: Client, body: str) -> None:
    response = await client.post("/services/Soap/u/50.0", data=body)
    assert response.status == 500
    assert "UNKNOWN_EXCEPTION" in await response.text()
