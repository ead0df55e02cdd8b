"""The requests and responses of one login. Source: "OAuth Authorization Flows" of the Salesforce help."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import httpx

from airflow_provider_sfstream.exceptions import (
    AuthenticationError,
    ConfigurationError,
    IdentityError,
    LoginUnavailableError,
    RefreshTokenSpentError,
)
from airflow_provider_sfstream.redaction import redacted, remember_secrets
from airflow_provider_sfstream.salesforce.auth.credentials import Credentials
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK, NetworkSettings

ASSERTION_SECONDS = 180
"""Seconds that a JWT is valid. Salesforce accepts up to five minutes, so clocks may differ a little."""

_LONGEST_REASON = 500
_ID = re.compile(r"[A-Za-z0-9]{15}(?:[A-Za-z0-9]{3})?")
_ORG_ID = re.compile(r"00D[A-Za-z0-9]{12}(?:[A-Za-z0-9]{3})?")
_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        "not supported on this domain",
        "Log in at the org's My Domain host: set domain (for example 'mycompany.my') or login_url.",
    ),
    ("client_id", "Check consumer_key. A new external client app can be used after about ten minutes."),
    ("client identifier", "Check consumer_key. A new external client app can be used after about ten minutes."),
    ("invalid_client", "Check consumer_key and consumer_secret."),
    ("no client credentials user", "Choose a Run-As user for the client credentials flow of the external client app."),
    ("approved this consumer", "Pre-authorize the external client app for the user's profile or permission set."),
    (
        "audience",
        "Set domain or login_url to the org's own host; sandboxes use 'test' (the JWT's audience follows it).",
    ),
    ("expired authorization code", "The JWT's times were refused: correct this machine's clock."),
    (
        "expired access/refresh token",
        "The refresh token is expired, revoked, or spent by an earlier login (refresh token rotation): log in "
        "interactively again and store the new one.",
    ),
    (
        "assertion",
        "The private key does not match the certificate of the external client app, or this machine's clock is wrong.",
    ),
    ("user is locked", "Unlock the user in Salesforce."),
    ("inactive_user", "Activate the user in Salesforce."),
    ("inactive_org", "The org is not active; contact Salesforce."),
    ("unsupported_grant_type", "Enable this login flow for the external client app, or choose another with auth_flow."),
    (
        "authentication failure",
        "Check login, password and security_token, and that the org still allows this login flow.",
    ),
)
"""Remedies by a part of the lower-case error or its description; the first match counts."""


async def log_in(
    credentials: Credentials,
    now: float,
    send: Callable[[httpx.Request], Awaitable[httpx.Response]],
    network: NetworkSettings = DEFAULT_NETWORK,
) -> AccessToken:
    """Log in with one or two requests.

    :param network: settings that decide whether an instance URL without TLS is accepted.
    :raises RefreshTokenSpentError: if the response has another refresh token. The one of ``credentials`` is spent.
    :raises AuthenticationError: naming host, cause and remedy, never a credential.
    """
    credentials.remember()  # the process may have used many other secrets since their creation
    if credentials.flow == "access_token":
        value, instance_url, identity = credentials.access_token, credentials.login_url, ""
    else:
        response = await send(httpx.Request("POST", token_url(credentials), data=_form(credentials, now)))
        document = _token_document(response)
        if credentials.refresh_token and document.get("refresh_token") not in (None, "", credentials.refresh_token):
            raise RefreshTokenSpentError(
                "The login has spent the refresh token of the connection: the app rotates refresh tokens, and a task "
                "cannot store the next one in the connection. Events and positions are unchanged. Use client "
                "credentials or a JWT. Or turn off refresh token rotation, log in interactively and store the new "
                "token; pause the DAGs until then, because after a second login with a spent token Salesforce revokes "
                "the current one."
            )
        value, instance_url = str(document.get("access_token") or ""), str(document.get("instance_url") or "")
        identity = str(document.get("id") or "")
        if not value or not instance_url:
            raise AuthenticationError(
                f"{token_url(credentials)} answered without an access token or instance URL. Check that domain or "
                "login_url is a Salesforce login host."
            )
        try:
            instance_url = network.origin("instance_url", instance_url)
        except ConfigurationError as error:
            raise AuthenticationError(
                f"{token_url(credentials)} returned an invalid instance_url. The token was not sent to it. {error}"
            ) from None
    org_id, user_id = _identity(identity, token_url(credentials))
    if not org_id:
        # The identity URL contains the ids; a token from the connection has no identity URL.
        AccessToken(value, instance_url, "")  # raises for a token that is invalid in a header
        url = f"{instance_url}/services/oauth2/userinfo"
        response = await send(httpx.Request("GET", url, headers={"Authorization": f"Bearer {value}"}))
        org_id, user_id = _user(response, from_connection=credentials.flow == "access_token")
    return AccessToken(value, instance_url, org_id, user_id)


def token_url(credentials: Credentials) -> str:
    """Return the OAuth token endpoint, or the org for a token from the connection."""
    is_org = credentials.flow == "access_token"
    return credentials.login_url if is_org else f"{credentials.login_url}/services/oauth2/token"


def _form(credentials: Credentials, now: float) -> dict[str, str]:
    if credentials.flow == "jwt_bearer":
        import jwt

        claims = {
            "iss": credentials.consumer_key,
            "sub": credentials.username,
            "aud": credentials.audience,
            "exp": int(now) + ASSERTION_SECONDS,
        }
        assertion = jwt.encode(claims, credentials.private_key, algorithm="RS256")
        remember_secrets(assertion)
        return {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}
    form = {
        "grant_type": credentials.flow,
        "client_id": credentials.consumer_key,
        "client_secret": credentials.consumer_secret,
        "refresh_token": credentials.refresh_token,
        "username": credentials.username,
        "password": credentials.password,
    }
    return {name: value for name, value in form.items() if value}


def _identity(url: str, address: str) -> tuple[str, str | None]:
    """Return org id and user id from ``https://host/id/{org id}/{user id}``; an empty org id for another URL."""
    try:
        parts = urlsplit(url).path.strip("/").split("/")
    except ValueError:  # without its text: a host with a malformed URL is not Salesforce's
        raise IdentityError(
            f"{address} returned an identity URL that cannot be parsed. Check that domain or login_url is a "
            "Salesforce login host, and any proxy on the way."
        ) from None
    if len(parts) < 3 or parts[-3] != "id":
        return "", None
    return _checked_ids(parts[-2], parts[-1], address)


def _checked_ids(org_id: str, user_id: object, address: str) -> tuple[str, str | None]:
    """Return the valid ids, which become headers and folder names; the user's is ``None`` if it is invalid."""
    if not _ORG_ID.fullmatch(org_id):
        raise IdentityError(
            f"{address} returned an invalid organization ID: expected 15 or 18 characters that begin with 00D. Check "
            "that domain or login_url is a Salesforce login host, and any proxy on the way."
        )
    return org_id, user_id if isinstance(user_id, str) and _ID.fullmatch(user_id) else None


def _json_object(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object in a response, empty if it has none. A busy host may send any body."""
    if response.status_code >= 500 or response.status_code == 429:
        raise LoginUnavailableError(
            f"{_address(response)} answered HTTP {response.status_code}: the service is busy or in maintenance. "
            "Try again later."
        )
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _address(response: httpx.Response) -> str:
    url = response.request.url
    return f"{url.scheme}://{url.netloc.decode()}{url.path}"


def _token_document(response: httpx.Response) -> dict[str, Any]:
    document = _json_object(response)
    if response.status_code == 200 and document:
        return document
    if "error" in document:
        raise AuthenticationError(_refusal(_address(response), document))
    raise AuthenticationError(
        f"{_address(response)} answered HTTP {response.status_code} without an OAuth response. Check that domain or "
        "login_url is a Salesforce login host."
    )


def _user(response: httpx.Response, *, from_connection: bool) -> tuple[str, str | None]:
    """Return org id and user id from a userinfo response."""
    document = _json_object(response)
    org_id = str(document.get("organization_id") or "")
    if response.status_code == 200 and org_id:
        return _checked_ids(org_id, document.get("user_id"), _address(response))
    cause = "the token lacks"
    if from_connection:
        cause = "the access token of the connection is expired, revoked, of another org, or lacks"
    raise IdentityError(
        f"{_address(response)} returned no organization ID (HTTP {response.status_code}): {cause} the scope 'id'. "
        "Renew the token, or add the scope to the external client app."
    )


def _refusal(url: str, document: dict[str, Any]) -> str:
    error, description = str(document["error"]), str(document.get("error_description") or "no description")
    text = f"{error} {description}".lower()
    remedy = next(
        (remedy for part, remedy in _REMEDIES if part in text), "Check the connection and the external client app."
    )
    return f"{url} refused the login: {redacted(f'{error}: {description}')[:_LONGEST_REASON]}. {remedy}"
