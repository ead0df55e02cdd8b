"""Login flows of §4.1 of the protocol notes, and their refusals."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sfstream_localorg.login.grants import JWT_BEARER
from sfstream_localorg.org import Org
from tests.support.localorg import LocalOrg
from tests.support.org_server import Client, serving

TOKEN = "/services/oauth2/token"


@pytest_asyncio.fixture
async def org_and_client(tmp_path: Path) -> AsyncIterator[tuple[Org, Client]]:
    async with serving(tmp_path) as pair:
        yield pair


@pytest.fixture
def org(org_and_client: tuple[Org, Client]) -> Org:
    return org_and_client[0]


@pytest.fixture
def client(org_and_client: tuple[Org, Client]) -> Client:
    return org_and_client[1]


@pytest.fixture
def private_key(org: Org) -> rsa.RSAPrivateKey:
    key = serialization.load_pem_private_key(org.jwt_private_key_file.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def secret_form(org: Org, **fields: str) -> dict[str, str]:
    return {"client_id": org.client_id, "client_secret": org.client_secret, **fields}


async def request_token(client: Client, form: dict[str, str], **options: Any) -> tuple[int, dict[str, str]]:
    response = await client.post(TOKEN, data=form, **options)
    return response.status, await response.json()


async def test_login_with_client_credentials_in_the_body(client: Client, org: Org) -> None:
    status, answer = await request_token(client, secret_form(org, grant_type="client_credentials"))
    assert status == 200
    assert set(answer) == {"access_token", "signature", "scope", "instance_url", "id", "token_type", "issued_at"}
    assert answer["token_type"] == "Bearer"
    assert answer["instance_url"] == org.instance_url
    assert abs(int(answer["issued_at"]) - time.time() * 1000) < 60_000
    session = org.sessions.check(answer["access_token"])
    assert session is not None
    assert answer["id"] == f"{org.instance_url}/id/{org.org_id}/{session.user_id}"


def test_instance_url_has_the_scheme_of_the_token_request(shared_org: LocalOrg) -> None:
    org = shared_org
    form = {"grant_type": "client_credentials", "client_id": org.client_id, "client_secret": org.client_secret}
    context = ssl.create_default_context(cafile=org.ca_file)
    before = len(org.requests("http", f"POST {TOKEN}"))
    for base in (org.instance_url, org.https_instance_url):
        answer = httpx.post(base + TOKEN, data=form, verify=context, trust_env=False).json()
        assert answer["instance_url"] == base
        assert answer["id"].startswith(f"{base}/id/{org.org_id}/005")
    assert len(org.requests("http", f"POST {TOKEN}")) == before + 2


async def test_login_with_client_credentials_over_http_basic(client: Client, org: Org) -> None:
    encoded = base64.b64encode(f"{org.client_id}:{org.client_secret}".encode()).decode()
    headers = {"Authorization": f"Basic {encoded}"}
    status, answer = await request_token(client, {"grant_type": "client_credentials"}, headers=headers)
    assert status == 200
    assert org.sessions.check(answer["access_token"])


@pytest.mark.parametrize("host", ["login.localhost", "test.localhost:8080"])
async def test_client_credentials_are_refused_on_a_login_host(client: Client, org: Org, host: str) -> None:
    status, answer = await request_token(
        client, secret_form(org, grant_type="client_credentials"), headers={"Host": host}
    )
    assert status == 400
    assert answer == {"error": "invalid_grant", "error_description": "request not supported on this domain"}


async def test_fault_login_host_refuses_client_credentials_on_every_host(client: Client, org: Org) -> None:
    assert (await client.post("/admin/oauth", json={"login_host": True})).status == 200
    status, answer = await request_token(client, secret_form(org, grant_type="client_credentials"))
    assert (status, answer["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize("with_security_token", [False, True])
async def test_login_with_password_with_or_without_the_security_token(
    client: Client, org: Org, with_security_token: bool
) -> None:
    password = org.password + (org.security_token if with_security_token else "")
    form = secret_form(org, grant_type="password", username=org.username, password=password)
    status, answer = await request_token(client, form)
    assert status == 200
    assert org.sessions.check(answer["access_token"])


async def test_login_with_refresh_token_until_it_is_revoked(client: Client, org: Org) -> None:
    refresh = (await (await client.post("/admin/oauth/refresh_tokens")).json())["refresh_token"]
    form = {"grant_type": "refresh_token", "client_id": org.client_id, "refresh_token": refresh}
    status, answer = await request_token(client, form)
    assert status == 200
    assert "refresh_token" not in answer
    await client.post("/services/oauth2/revoke", data={"token": refresh})
    assert org.sessions.check(answer["access_token"]) is None
    status, answer = await request_token(client, form)
    assert (status, answer["error_description"]) == (400, "expired access/refresh token")


async def test_rotated_refresh_token_is_used_once_and_its_reuse_revokes_all(client: Client, org: Org) -> None:
    assert (await client.post("/admin/oauth", json={"rotate_refresh_tokens": True})).status == 200
    first = (await (await client.post("/admin/oauth/refresh_tokens")).json())["refresh_token"]
    tokens = [first]
    for _ in range(2):
        form = {"grant_type": "refresh_token", "client_id": org.client_id, "refresh_token": tokens[-1]}
        status, answer = await request_token(client, form)
        assert status == 200
        assert org.sessions.check(answer["access_token"])
        tokens.append(answer["refresh_token"])
    assert len(set(tokens)) == 3
    for token in (first, tokens[-1]):
        status, refusal = await request_token(client, {**form, "refresh_token": token})
        assert (status, refusal["error_description"]) == (400, "expired access/refresh token")
    assert org.sessions.check(answer["access_token"]) is None


@pytest.mark.parametrize(
    ("changed", "error", "description"),
    [
        ({"grant_type": "magic"}, "unsupported_grant_type", "grant type not supported"),
        ({"client_id": "other"}, "invalid_client_id", "client identifier invalid"),
        ({"client_secret": "other"}, "invalid_client", "invalid client credentials"),
        ({"password": "other"}, "invalid_grant", "authentication failure"),
        ({"username": "other@example.com"}, "invalid_grant", "authentication failure"),
        ({"password": ""}, "invalid_request", "missing required parameter: password"),
    ],
)
async def test_invalid_token_requests_are_refused(
    client: Client, org: Org, changed: dict[str, str], error: str, description: str
) -> None:
    form = secret_form(org, grant_type="password", username=org.username, password=org.password) | changed
    assert await request_token(client, form) == (400, {"error": error, "error_description": description})
    assert len(org.sessions) == 0


class SecondsFromNow(int):
    """A time relative to the execution of the test; an absolute time would be that of the collection of the tests."""

    def time(self) -> int:
        return int(time.time()) + self


SOON = SecondsFromNow(180)


def claims_of(org: Org, *, exp: Any = SOON, exp_as_text: bool = False, **changed: Any) -> dict[str, Any]:
    expires = exp.time() if isinstance(exp, SecondsFromNow) else exp
    claims = {"iss": org.client_id, "sub": org.username, "aud": org.login_url}
    return {**claims, "exp": str(expires) if exp_as_text else expires, **changed}


async def request_token_with_jwt(
    client: Client, key: rsa.RSAPrivateKey, claims: dict[str, Any]
) -> tuple[int, dict[str, str]]:
    # simple-salesforce sends exp as text. PyJWT refuses to sign that, but its lower layer does not check it.
    assertion = jwt.PyJWS().encode(jwt.api_jws.json.dumps(claims).encode(), key, algorithm="RS256")
    return await request_token(client, {"grant_type": JWT_BEARER, "assertion": assertion})


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"exp": SecondsFromNow(600), "exp_as_text": True},
        {"aud": "https://login.salesforce.com"},
        {"aud": "https://test.salesforce.com/"},
        {"aud": ["https://elsewhere.example.com", "https://test.salesforce.com"]},
        {"aud": "https://acme.localhost:8443"},
    ],
)
async def test_login_with_jwt_bearer(client: Client, org: Org, private_key: rsa.RSAPrivateKey, changed: Any) -> None:
    status, answer = await request_token_with_jwt(client, private_key, claims_of(org, **changed))
    assert status == 200, answer
    assert org.sessions.check(answer["access_token"])


@pytest.mark.parametrize(
    ("changed", "error", "description"),
    [
        ({"iss": "other"}, "invalid_client_id", "client identifier invalid"),
        ({"sub": "other@example.com"}, "invalid_grant", "user hasn't approved this consumer"),
        ({"aud": "https://elsewhere.example.com"}, "invalid_grant", "audience is invalid"),
        ({"aud": None}, "invalid_grant", "audience is invalid"),
        ({"exp": SecondsFromNow(-5)}, "invalid_grant", "expired authorization code"),
        ({"exp": SecondsFromNow(-5), "exp_as_text": True}, "invalid_grant", "expired authorization code"),
        ({"exp": "soon"}, "invalid_grant", "expired authorization code"),
    ],
)
async def test_invalid_jwt_claims_are_refused(
    client: Client, org: Org, private_key: rsa.RSAPrivateKey, changed: Any, error: str, description: str
) -> None:
    refused = await request_token_with_jwt(client, private_key, claims_of(org, **changed))
    assert refused == (400, {"error": error, "error_description": description})


async def test_a_jwt_signed_by_another_key_is_refused(client: Client, org: Org) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    status, answer = await request_token_with_jwt(client, other, claims_of(org))
    assert (status, answer["error_description"]) == (400, "invalid assertion")
    unsigned = jwt.encode(claims_of(org), None, algorithm="none")
    status, answer = await request_token(client, {"grant_type": JWT_BEARER, "assertion": unsigned})
    assert (status, answer["error_description"]) == (400, "invalid assertion")


async def test_userinfo_identity_introspection_and_revocation_of_a_token(client: Client, org: Org) -> None:
    _, answer = await request_token(client, secret_form(org, grant_type="client_credentials"))
    authorization = {"Authorization": f"Bearer {answer['access_token']}"}
    user = await (await client.get("/services/oauth2/userinfo", headers=authorization)).json()
    assert user["organization_id"] == org.org_id
    assert user["preferred_username"] == org.username
    assert user["sub"] == answer["id"]
    path = answer["id"].removeprefix(org.instance_url)
    identity = await (await client.get(path, headers=authorization)).json()
    assert identity["user_id"] == user["user_id"]
    wrong = path.replace(org.org_id, "00D000000000009EAA")
    assert (await client.get(wrong, headers=authorization)).status == 403

    token_form = secret_form(org, token=answer["access_token"])
    active = await (await client.post("/services/oauth2/introspect", data=token_form)).json()
    assert (active["active"], active["username"], active["client_id"]) == (True, org.username, org.client_id)
    assert (await client.post("/services/oauth2/introspect", data={"token": "x"})).status == 401

    assert (await client.post("/services/oauth2/revoke", data={"token": answer["access_token"]})).status == 200
    assert (await client.post("/services/oauth2/revoke", data={"token": answer["access_token"]})).status == 400
    assert await (await client.post("/services/oauth2/introspect", data=token_form)).json() == {"active": False}
    for url in ("/services/oauth2/userinfo", path):
        refused = await client.get(url, headers=authorization)
        assert (refused.status, await refused.text()) == (403, "Bad_OAuth_Token")


async def test_discovery_names_the_token_endpoint(client: Client, org: Org) -> None:
    discovered = await (await client.get("/.well-known/openid-configuration")).json()
    assert discovered["issuer"] == org.instance_url
    assert discovered["token_endpoint"] == org.instance_url + TOKEN


async def test_token_faults_apply_in_order_and_end(client: Client, org: Org) -> None:
    form = secret_form(org, grant_type="client_credentials")
    await client.post("/admin/oauth", json={"fail_next": 1})
    down = await client.post(TOKEN, data=form)
    assert (down.status, down.content_type) == (503, "text/html")
    await client.post("/admin/oauth", json={"fail_next": 1, "fail_error": "inactive_user", "empty_next": 1})
    status, answer = await request_token(client, form)
    assert (status, answer["error"]) == (400, "inactive_user")
    status, answer = await request_token(client, form)
    assert (status, answer["access_token"]) == (200, "")
    status, answer = await request_token(client, form)
    assert org.sessions.check(answer["access_token"])
    assert (await (await client.get("/admin/oauth")).json())["requests"] == 4


@pytest.mark.parametrize("body", ['{"fail_next": "many"}', '{"no_such": 1}', "nonsense", "[1]"])
async def test_invalid_token_faults_are_refused(client: Client, body: str) -> None:
    before = await (await client.get("/admin/oauth")).json()
    assert (await client.post("/admin/oauth", data=body)).status == 400
    assert await (await client.get("/admin/oauth")).json() == before
