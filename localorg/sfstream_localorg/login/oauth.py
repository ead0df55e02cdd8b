"""OAuth endpoints of the local org: token, userinfo, introspect, revoke, identity and discovery (§4.1)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.login.grants import Grant, GrantRefusedError, basic_credentials
from sfstream_localorg.login.sessions import Session, bearer_token

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_SCOPE = "id api refresh_token"
_HTML_503 = (
    "<html><head><title>Service Unavailable</title></head><body><h1>503</h1>We are down for maintenance.</body></html>"
)


@dataclass
class TokenFaults:
    """Faults of the token endpoint, set over ``POST /admin/oauth`` until a restart.

    The next ``fail_next`` requests fail with ``fail_error`` (an OAuth error name, status 400), or with an HTML page and
    status 503 if it is ``None``. The ``empty_next`` requests after them return an empty access token. With
    ``login_host``, every host behaves like ``login.salesforce.com``, which refuses client credentials; hosts named
    ``login.…`` and ``test.…`` always do. With ``rotate_refresh_tokens``, each login with a refresh token spends it and
    returns another one. ``requests`` counts the token requests since the start.
    """

    fail_next: int = 0
    fail_error: str | None = None
    empty_next: int = 0
    login_host: bool = False
    rotate_refresh_tokens: bool = False
    requests: int = 0


def base_url(org: Org, request: web.BaseRequest) -> str:
    """Return the instance URL with the scheme of the request, and with the host ``localhost`` if the request used it.

    Some clients of the Streaming API, for example aiohttp, store cookies of named hosts only, not of IP addresses.
    """
    url = org.https_instance_url if request.scheme == "https" else org.instance_url
    return f"{request.scheme}://{request.host}" if request.url.host == "localhost" else url


def routes(org: Org) -> list[web.RouteDef]:
    """Return the OAuth routes, and ``/admin/oauth`` for their faults."""
    endpoints = _OAuth(org)
    return [
        web.post("/services/oauth2/token", endpoints.token),
        web.route("*", "/services/oauth2/userinfo", endpoints.user_info),
        web.post("/services/oauth2/introspect", endpoints.introspect),
        web.route("*", "/services/oauth2/revoke", endpoints.revoke),
        web.get("/id/{org_id}/{user_id}", endpoints.identity),
        web.get("/.well-known/openid-configuration", endpoints.discovery),
        web.get("/admin/oauth", endpoints.faults_get),
        web.post("/admin/oauth", endpoints.faults_set),
        web.post("/admin/oauth/refresh_tokens", endpoints.refresh_token_create),
        web.post("/admin/oauth/consumer_secret", endpoints.consumer_secret_rotate),
    ]


class _OAuth:
    def __init__(self, org: Org) -> None:
        self._org = org
        self._faults = TokenFaults()

    async def token(self, request: web.Request) -> web.Response:
        self._faults.requests += 1
        if self._faults.fail_next > 0:
            self._faults.fail_next -= 1
            if self._faults.fail_error is None:
                return web.Response(status=503, text=_HTML_503, content_type="text/html")
            return _refusal(GrantRefusedError(self._faults.fail_error, "fault set over /admin/oauth"))
        form = await _form(request)
        grant = self._grant(request, form)
        try:
            username = grant.username()
        except GrantRefusedError as refused:
            return _refusal(refused)
        client_id = form.get("client_id") or self._org.client_id
        rotated = None
        if grant.refresh_token and self._faults.rotate_refresh_tokens:
            rotated = self._org.sessions.rotate_refresh_token(grant.refresh_token)
        refresh_token = rotated or (grant.refresh_token.token if grant.refresh_token else None)
        token = self._org.sessions.issue(username, client_id=client_id, refresh_token=refresh_token)
        session = self._org.sessions.check(token)
        if session is None:  # revoked between the two calls
            return _refusal(GrantRefusedError("invalid_grant", "expired access/refresh token"))
        answer = self._token_answer(request, session) | ({"refresh_token": rotated} if rotated else {})
        if self._faults.empty_next > 0:
            self._faults.empty_next -= 1
            answer["access_token"] = ""
        return web.json_response(answer, headers={"Cache-Control": "no-store"})

    def _grant(self, request: web.Request, form: dict[str, str]) -> Grant:
        host = f"{request.scheme}://{request.host}"
        audiences = (self._org.login_url, self._org.instance_url, self._org.https_instance_url, host)
        on_login_host = self._faults.login_host or request.host.split(".")[0].lower() in ("login", "test")
        return Grant(self._org, form, audiences=audiences, on_login_host=on_login_host, now=time.time())

    def _token_answer(self, request: web.Request, session: Session) -> dict[str, str]:
        identity = self._identity_url(request, session)
        issued_at = str(int(session.issued_at * 1000))
        signed = hmac.new(self._org.client_secret.encode(), (identity + issued_at).encode(), hashlib.sha256).digest()
        return {
            "access_token": session.token,
            "signature": base64.b64encode(signed).decode(),
            "scope": _SCOPE,
            "instance_url": base_url(self._org, request),
            "id": identity,
            "token_type": "Bearer",
            "issued_at": issued_at,
        }

    def _identity_url(self, request: web.Request, session: Session) -> str:
        return f"{base_url(self._org, request)}/id/{session.org_id}/{session.user_id}"

    async def user_info(self, request: web.Request) -> web.Response:
        session = self._session(request)
        if session is None:
            return web.Response(status=403, text="Bad_OAuth_Token")
        return web.json_response(self._user(request, session) | {"sub": self._identity_url(request, session)})

    async def identity(self, request: web.Request) -> web.Response:
        session = self._session(request)
        if session is None:
            return web.Response(status=403, text="Bad_OAuth_Token")
        requested = (request.match_info["org_id"][:15], request.match_info["user_id"][:15])
        if requested != (session.org_id[:15], session.user_id[:15]):
            return web.Response(status=403, text="Wrong_Org" if requested[0] != session.org_id[:15] else "No_Access")
        user = self._user(request, session)
        user["id"] = self._identity_url(request, session)
        user["asserted_user"] = True
        user["username"] = session.username
        return web.json_response(user)

    def _session(self, request: web.Request) -> Session | None:
        return self._org.sessions.check(bearer_token(request.headers.get("Authorization")))

    def _user(self, request: web.Request, session: Session) -> dict[str, Any]:
        base = base_url(self._org, request)
        return {
            "user_id": session.user_id,
            "organization_id": session.org_id,
            "preferred_username": session.username,
            "nickname": session.username.partition("@")[0],
            "name": session.username.partition("@")[0],
            "email": session.username,
            "email_verified": True,
            "active": True,
            "user_type": "STANDARD",
            "language": "en_US",
            "locale": "en_US",
            "utcOffset": 0,
            "urls": {
                "rest": f"{base}/services/data/v{{version}}/",
                "sobjects": f"{base}/services/data/v{{version}}/sobjects/",
                "query": f"{base}/services/data/v{{version}}/query/",
                "partner": f"{base}/services/Soap/u/{{version}}/{session.org_id[:15]}",
            },
        }

    async def introspect(self, request: web.Request) -> web.Response:
        form = await _form(request)
        try:
            self._grant(request, form).check_client(secret_required=True)
        except GrantRefusedError as refused:
            return _refusal(refused, status=401)
        session = self._org.sessions.check(form.get("token"))
        if session is None:
            return web.json_response({"active": False})
        issued = int(session.issued_at)
        return web.json_response(
            {
                "active": True,
                "scope": _SCOPE,
                "client_id": session.client_id,
                "username": session.username,
                "sub": self._identity_url(request, session),
                "token_type": "access_token",
                "iat": issued,
                "nbf": issued,
                "exp": int(time.time()) + 7200,
            }
        )

    async def revoke(self, request: web.Request) -> web.Response:
        token = (await _form(request)).get("token") or request.query.get("token", "")
        if not self._org.sessions.revoke(token):
            return _refusal(GrantRefusedError("unsupported_token_type", "this token type is not supported"))
        return web.Response()

    async def discovery(self, request: web.Request) -> web.Response:
        base = base_url(self._org, request)
        return web.json_response(
            {
                "issuer": base,
                "token_endpoint": f"{base}/services/oauth2/token",
                "revocation_endpoint": f"{base}/services/oauth2/revoke",
                "introspection_endpoint": f"{base}/services/oauth2/introspect",
                "userinfo_endpoint": f"{base}/services/oauth2/userinfo",
                "scopes_supported": ["id", "api", "refresh_token", "openid"],
                "subject_types_supported": ["public"],
                "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
            }
        )

    async def faults_get(self, request: web.Request) -> web.Response:
        return web.json_response(asdict(self._faults) | {"sessions": len(self._org.sessions)})

    async def faults_set(self, request: web.Request) -> web.Response:
        """Set some of the faults. The body is a JSON object with names and types of :class:`TokenFaults`."""
        known = asdict(self._faults)
        try:
            wanted = dict(await request.json())
        except (ValueError, TypeError):
            return web.json_response({"error": f"send a JSON object with some of {known}"}, status=400)
        for name, value in wanted.items():
            allowed = (str, type(None)) if name == "fail_error" else type(known.get(name))
            if name not in known or not isinstance(value, allowed):
                message = f"{name} is unknown or of the wrong type; known: {known}"
                return web.json_response({"error": message}, status=400)
        for name, value in wanted.items():
            setattr(self._faults, name, value)
        return await self.faults_get(request)

    async def refresh_token_create(self, request: web.Request) -> web.Response:
        """Issue a refresh token without the browser that the OAuth web server flow needs."""
        token = self._org.sessions.issue_refresh_token(self._org.username, client_id=self._org.client_id)
        return web.json_response({"refresh_token": token}, status=201)

    async def consumer_secret_rotate(self, request: web.Request) -> web.Response:
        """Replace the secret of the external client app until a restart. Tokens and streams stay valid."""
        self._org.identity = replace(self._org.identity, client_secret=secrets.token_hex(32).upper())
        return web.json_response({"client_secret": self._org.client_secret}, status=201)


async def _form(request: web.Request) -> dict[str, str]:
    form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
    basic = basic_credentials(request.headers.get("Authorization"))
    if basic is not None:
        form["client_id"], form["client_secret"] = basic
    return form


def _refusal(refused: GrantRefusedError, *, status: int = 400) -> web.Response:
    return web.json_response({"error": refused.error, "error_description": refused.description}, status=status)
