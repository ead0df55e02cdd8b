"""Login without a network: requests, responses, and the error text of each refusal."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from airflow_provider_sfstream.exceptions import AuthenticationError, IdentityError, LoginUnavailableError
from airflow_provider_sfstream.salesforce.auth.credentials import (
    Credentials,
)
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from tests.support.stepwise_login import Login

URL = "https://acme.my.salesforce.com"
APP = Credentials("client_credentials", URL, "key", consumer_secret="s3cret-app")
ORG, USER = "00D000000000001AAA", "005000000000001AAA"
GRANTED = {"access_token": "s3cret-tok", "instance_url": f"{URL}/", "id": f"{URL}/id/{ORG}/{USER}"}


def form(login: Login) -> dict[str, str]:
    assert login.request is not None
    return dict(parse_qsl(login.request.content.decode()))


def answer(login: Login, status: int = 200, **kwargs: Any) -> None:
    login.answer(httpx.Response(status, request=login.request, **kwargs))


def refusal(credentials: Credentials, status: int = 400, **kwargs: Any) -> str:
    with pytest.raises(AuthenticationError) as caught:
        answer(Login(credentials, 0), status, **kwargs)
    assert "s3cret" not in str(caught.value)
    return str(caught.value)


def test_request_of_a_client_credentials_login() -> None:
    login = Login(APP, 0)
    assert login.request is not None
    assert (login.request.method, str(login.request.url)) == ("POST", f"{URL}/services/oauth2/token")
    assert form(login) == {"grant_type": "client_credentials", "client_id": "key", "client_secret": "s3cret-app"}
    answer(login, json=GRANTED)
    assert login.request is None
    assert login.token == AccessToken("s3cret-tok", URL, ORG, USER)


def test_request_of_a_refresh_token_login_with_and_without_a_secret() -> None:
    expected = {"grant_type": "refresh_token", "client_id": "key", "refresh_token": "r"}
    assert form(Login(Credentials("refresh_token", URL, "key", refresh_token="r"), 0)) == expected
    assert form(Login(Credentials("refresh_token", URL, "key", refresh_token="r", consumer_secret="s"), 0)) == {
        **expected,
        "client_secret": "s",
    }


def test_request_of_a_username_password_login() -> None:
    sent = form(Login(Credentials("password", URL, "key", "u@x", consumer_secret="s", password="pw+&="), 0))
    assert sent == {
        "grant_type": "password",
        "client_id": "key",
        "client_secret": "s",
        "username": "u@x",
        "password": "pw+&=",
    }


def test_jwt_bearer_is_signed_and_short_lived(rsa_key: rsa.RSAPrivateKey, private_key: str) -> None:
    sent = form(Login(Credentials("jwt_bearer", URL, "key", "u@x", private_key=private_key), 1_000_000.7))
    assert sent["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert set(sent) == {"grant_type", "assertion"}
    claims = jwt.decode(
        sent["assertion"],
        rsa_key.public_key(),
        ["RS256"],
        audience="https://login.salesforce.com",
        options={"verify_exp": False},
    )
    assert claims == {"iss": "key", "sub": "u@x", "aud": "https://login.salesforce.com", "exp": 1_000_180}


def test_login_with_an_access_token_requests_the_user_info() -> None:
    login = Login(Credentials("access_token", URL, access_token="s3cret-tok"), 0)
    assert login.request is not None
    assert str(login.request.url) == f"{URL}/services/oauth2/userinfo"
    assert login.request.headers["authorization"] == "Bearer s3cret-tok"
    answer(login, json={"organization_id": ORG, "user_id": USER})
    assert login.token == AccessToken("s3cret-tok", URL, ORG, USER)


@pytest.mark.parametrize("identity", [None, "", "https://x/other/00D/005", "nonsense"])
def test_user_info_is_requested_without_an_identity_url(identity: str | None) -> None:
    login = Login(APP, 0)
    answer(login, json={**GRANTED, "id": identity})
    assert login.request is not None
    assert login.request.url.path == "/services/oauth2/userinfo"
    answer(login, json={"organization_id": ORG, "user_id": USER})
    assert login.token is not None
    assert login.token.org_id == ORG


@pytest.mark.parametrize(
    "identity",
    ["https://[", "https://[::1", "http://]/id/00D/005", f"https://[x]/id/{ORG}/{USER}", f"//[/id/{ORG}/{USER}"],
)
def test_malformed_identity_url_is_an_identity_error(identity: str) -> None:
    login = Login(APP, 0)
    with pytest.raises(IdentityError, match=r"/services/oauth2/token returned an identity URL.*login_url") as caught:
        answer(login, json={**GRANTED, "id": identity})
    assert identity not in str(caught.value)


@pytest.mark.parametrize(
    "org_id",
    ["00D", "005000000000001AAA", f"{ORG}A", "00D00000000000\u0661AAA", "00D000000000001\n", "..", "%2e%2e", ""],
)
def test_invalid_organization_id_is_an_identity_error(org_id: str) -> None:
    for login, document in (
        (Login(APP, 0), {**GRANTED, "id": f"{URL}/id/{org_id}/{USER}"}),
        (
            Login(Credentials("access_token", URL, access_token="s3cret-tok"), 0),
            {"organization_id": org_id, "user_id": USER},
        ),
    ):
        if org_id.strip() == org_id or "id" not in document:  # a URL has no line breaks
            with pytest.raises(IdentityError, match="organization ID"):
                answer(login, json=document)


@pytest.mark.parametrize("user_id", [None, 5, {"a": 1}, "", "nobody\n", "x" * 100_000])
def test_invalid_user_id_is_ignored(user_id: Any) -> None:
    login = Login(Credentials("access_token", URL, access_token="s3cret-tok"), 0)
    answer(login, json={"organization_id": ORG, "user_id": user_id})
    assert login.token == AccessToken("s3cret-tok", URL, ORG)


@pytest.mark.parametrize(
    ("status", "kwargs"),
    [(403, {"text": "Bad_OAuth_Token"}), (200, {"json": {}}), (200, {"json": []}), (404, {"text": ""})],
)
def test_unknown_organization_is_an_identity_error(status: int, kwargs: dict[str, Any]) -> None:
    login = Login(Credentials("access_token", URL, access_token="s3cret-tok"), 0)
    with pytest.raises(IdentityError, match=r"userinfo returned no organization ID .*expired, revoked") as caught:
        answer(login, status, **kwargs)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "description", "remedy"),
    [
        ("invalid_client", "invalid client credentials", "consumer_secret"),
        ("invalid_client_id", "client identifier invalid", "Check consumer_key."),
        ("invalid_grant", "request not supported on this domain", "My Domain"),
        ("invalid_grant", "authentication failure", "login, password and security_token"),
        ("invalid_grant", "user hasn't approved this consumer", "Pre-authorize"),
        ("invalid_grant", "audience is invalid", "sandboxes"),
        ("invalid_grant", "Audience validation failed", "sandboxes"),
        ("invalid_grant", "expired authorization code", "clock"),
        ("invalid_grant", "expired access/refresh token", "log in interactively again"),
        ("invalid_grant", "invalid assertion", "certificate"),
        ("invalid_grant", "user is locked", "Unlock"),
        ("invalid_grant", "no client credentials user enabled", "Run-As"),
        ("unsupported_grant_type", "grant type not supported", "auth_flow"),
        ("inactive_user", "user is inactive", "Activate"),
        ("inactive_org", "org is inactive", "not active"),
        ("something_new", "of tomorrow", "external client app"),
    ],
)
def test_every_refusal_names_host_cause_and_remedy(error: str, description: str, remedy: str) -> None:
    message = refusal(APP, json={"error": error, "error_description": description})
    assert f"{URL}/services/oauth2/token refused the login: {error}: {description}." in message
    assert remedy in message


def test_a_refusal_that_quotes_a_secret_is_redacted() -> None:
    assert "***" in refusal(APP, json={"error": "invalid_client", "error_description": "secret s3cret-app is wrong"})


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_busy_login_host_is_a_retriable_error(status: int) -> None:
    with pytest.raises(LoginUnavailableError, match=f"HTTP {status}") as caught:
        answer(Login(APP, 0), status, text="<html>maintenance</html>", headers={"content-type": "text/html"})
    assert caught.value.retriable


@pytest.mark.parametrize(("status", "text"), [(404, "not found"), (302, ""), (200, "<html>hello</html>"), (400, "[]")])
def test_response_without_oauth_names_login_url_as_the_cause(status: int, text: str) -> None:
    assert "login_url is a Salesforce login host" in refusal(APP, status, text=text)


@pytest.mark.parametrize("granted", [{**GRANTED, "access_token": ""}, {**GRANTED, "instance_url": None}, {"id": "x"}])
def test_response_without_an_access_token_is_refused(granted: dict[str, Any]) -> None:
    assert "without an access token" in refusal(APP, 200, json=granted)


def test_access_token_that_is_no_valid_header_is_refused_before_the_request() -> None:
    with pytest.raises(AuthenticationError) as caught:
        Login(Credentials("access_token", URL, access_token="s3cret\r\nX: y"), 0)
    assert "s3cret" not in str(caught.value)
