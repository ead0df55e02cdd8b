"""OAuth grants of the token endpoint: validation of requests, and Salesforce's error texts (§4.1)."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jwt

from sfstream_localorg.login.sessions import RefreshToken

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
PUBLIC_KEY_FILE = "jwt_public.pem"
_SALESFORCE_LOGIN_HOSTS = ("https://login.salesforce.com", "https://test.salesforce.com")


class GrantRefusedError(Exception):
    """Refusal of a token request: 400 with ``error`` and ``error_description``."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description


class Grant:
    """A token request, validated against the org.

    :param form: the fields of the body; ``client_id`` and ``client_secret`` may come from HTTP Basic.
    :param audiences: URLs of this org that a JWT may name as its audience.
    :param on_login_host: whether the request was sent to a login or test host instead of My Domain.
    :param now: the current time in seconds since the epoch.
    """

    def __init__(
        self, org: Org, form: Mapping[str, str], *, audiences: tuple[str, ...], on_login_host: bool, now: float
    ) -> None:
        self._org = org
        self._form = form
        self._audiences = {url.rstrip("/") for url in (*audiences, *_SALESFORCE_LOGIN_HOSTS)}
        self._on_login_host = on_login_host
        self._now = now
        self.refresh_token: RefreshToken | None = None

    def username(self) -> str:
        """Return the user of the granted session.

        :raises GrantRefusedError: if the request is refused, with Salesforce's error name and description.
        """
        grants: dict[str, Callable[[], str]] = {
            "client_credentials": self._client_credentials,
            "password": self._password,
            "refresh_token": self._refresh,
            JWT_BEARER: self._jwt_bearer,
        }
        grant = grants.get(self._form.get("grant_type", ""))
        if grant is None:
            raise GrantRefusedError("unsupported_grant_type", "grant type not supported")
        return grant()

    def _client_credentials(self) -> str:
        if self._on_login_host:
            raise GrantRefusedError("invalid_grant", "request not supported on this domain")
        self.check_client(secret_required=True)
        return self._org.username

    def _password(self) -> str:
        self.check_client(secret_required=True)
        if not password_is_right(self._org, self._required("username"), self._required("password")):
            raise GrantRefusedError("invalid_grant", "authentication failure")
        return self._org.username

    def _refresh(self) -> str:
        token = self._required("refresh_token")
        self.check_client(secret_required=False)
        granted = self._org.sessions.check_refresh_token(token)
        if granted is None or granted.client_id != self._form.get("client_id"):
            raise GrantRefusedError("invalid_grant", "expired access/refresh token")
        self.refresh_token = granted
        return granted.username

    def _jwt_bearer(self) -> str:
        claims = self._claims(self._required("assertion"))
        if not _equal(str(claims.get("iss", "")), self._org.client_id):
            raise GrantRefusedError("invalid_client_id", "client identifier invalid")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(url, str) and url.rstrip("/") in self._audiences for url in named):
            raise GrantRefusedError("invalid_grant", "audience is invalid")
        try:
            expires = float(claims.get("exp", ""))
        except (TypeError, ValueError):
            expires = 0.0
        if expires <= self._now:
            raise GrantRefusedError("invalid_grant", "expired authorization code")
        if str(claims.get("sub", "")).lower() != self._org.username.lower():
            raise GrantRefusedError("invalid_grant", "user hasn't approved this consumer")
        return self._org.username

    def _claims(self, assertion: str) -> dict[str, Any]:
        key_file = self._org.data_dir / PUBLIC_KEY_FILE
        # The caller checks expiry and audience, because clients send exp as text and the errors differ.
        options: Any = {f"verify_{claim}": False for claim in ("exp", "aud", "iss", "sub", "iat", "nbf", "jti")}
        try:
            claims: dict[str, Any] = jwt.decode(assertion, key_file.read_bytes(), algorithms=["RS256"], options=options)
        except (jwt.PyJWTError, OSError):
            raise GrantRefusedError("invalid_grant", "invalid assertion") from None
        return claims

    def check_client(self, *, secret_required: bool) -> None:
        """Validate the client id and secret. An optional secret must be correct if it is sent.

        :raises GrantRefusedError: ``invalid_client_id`` or ``invalid_client``.
        """
        if not _equal(self._form.get("client_id", ""), self._org.client_id):
            raise GrantRefusedError("invalid_client_id", "client identifier invalid")
        secret = self._form.get("client_secret")
        if secret is None and not secret_required:
            return
        if not _equal(secret or "", self._org.client_secret):
            raise GrantRefusedError("invalid_client", "invalid client credentials")

    def _required(self, name: str) -> str:
        value = self._form.get(name)
        if not value:
            raise GrantRefusedError("invalid_request", f"missing required parameter: {name}")
        return value


def password_is_right(org: Org, username: str, password: str) -> bool:
    """Return whether the password is the user's, with or without the security token at its end."""
    known = username.lower() == org.username.lower()
    right = _equal(password, org.password) or _equal(password, org.password + org.security_token)
    return known and right


def basic_credentials(authorization: str | None) -> tuple[str, str] | None:
    """Return client id and secret of an HTTP Basic ``Authorization`` header, ``None`` for another header."""
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return client_id, secret


def _equal(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode(), right.encode())
