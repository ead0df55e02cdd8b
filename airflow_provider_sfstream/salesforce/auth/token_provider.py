"""Logins to Salesforce: one token, cached until Salesforce refuses it, and renewed once for all callers."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import httpx

from airflow_provider_sfstream.exceptions import AuthenticationError, LoginUnavailableError, RefreshTokenSpentError
from airflow_provider_sfstream.redaction import quoted_setting
from airflow_provider_sfstream.salesforce.auth.credentials import Credentials
from airflow_provider_sfstream.salesforce.auth.login import log_in, token_url
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.network.bounded import UNPACKED, UnusableAnswerError, aread
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK, NetworkSettings

log = logging.getLogger(__name__)

LOGIN_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
"""Seconds for each phase of a request. A login has up to two requests."""

_LONGEST_LOGIN = 120.0
"""Seconds for a whole login."""
_LARGEST_ANSWER = 1024 * 1024
"""Bytes."""


class OAuthTokenProvider:
    """Token provider that logs in with ``credentials`` at the first use, and again after :meth:`invalidate`.

    Guarantees: exactly one login for all callers that wait at the same time, threads and tasks alike; a failed login is
    not cached, the next caller logs in again; every network wait is bounded. Neither repr nor errors show a secret.
    Refused credentials are read again, so that a rotation does not fail tasks that started with the old ones.

    :param read_again: returns the current credentials, after Salesforce refused the former. May block.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        network: NetworkSettings = DEFAULT_NETWORK,
        organization_id: str | None = None,
        read_again: Callable[[], Credentials] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._credentials = credentials
        self._read_again = read_again
        self._organization_id = organization_id
        self._now = now
        self._network = network
        self._lock = threading.Lock()
        self._token: AccessToken | None = None
        self._login: Future[AccessToken] | None = None
        self._unusable: AuthenticationError | None = None  # the reason not to log in with the credentials again

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._credentials!r})"

    def token(self) -> AccessToken:
        """Return the current token; log in if needed. A temporary failure is a :class:`LoginUnavailableError`."""
        while True:
            login, is_owner = self._join()
            if is_owner:
                return self._log_in(login)
            try:
                return login.result(_LONGEST_LOGIN)
            except _AbandonedError:
                continue
            except TimeoutError:
                raise self._timeout_error() from None

    async def atoken(self) -> AccessToken:
        """Return a token as :meth:`token` does, without blocking the event loop."""
        while True:
            login, is_owner = self._join()
            if is_owner:
                return await self._alog_in(login)
            try:
                return await asyncio.wait_for(asyncio.wrap_future(login), _LONGEST_LOGIN)
            except _AbandonedError:
                continue
            except TimeoutError:
                raise self._timeout_error() from None

    def invalidate(self, token: AccessToken) -> None:
        """Invalidate ``token``, which Salesforce refused. Do nothing if another token has replaced it."""
        with self._lock:
            if self._token is not None and self._token.value == token.value:
                self._token = self._login = None
                if self._credentials.flow == "access_token":
                    self._unusable = AuthenticationError(
                        "Salesforce refused the access token of the connection, and it cannot be renewed. Store a new "
                        "one in access_token, or use a login flow that can renew its token."
                    )

    def _join(self) -> tuple[Future[AccessToken], bool]:
        """Return the shared login, and whether the caller has to perform it; other callers wait for it."""
        with self._lock:
            if self._login is not None:
                return self._login, False
            self._login = Future()
            # A running future cannot be cancelled together with a task that waits for it.
            self._login.set_running_or_notify_cancel()
            return self._login, True

    def _log_in(self, login: Future[AccessToken]) -> AccessToken:
        """Do what :meth:`_alog_in` does, on a separate event loop, where a login can be cancelled at its time limit."""
        result: Future[AccessToken] = Future()

        def run() -> None:
            try:
                result.set_result(asyncio.run(self._alog_in(login)))
            except BaseException as error:
                result.set_exception(error)

        try:
            threading.Thread(target=run, name="sfstream-login", daemon=True).start()
        except BaseException as error:  # interrupted before the login: the next caller logs in
            raise self._fail(login, error) from None
        return result.result()

    async def _alog_in(self, login: Future[AccessToken]) -> AccessToken:
        try:
            try:
                token = await self._asend_login()
            except AuthenticationError as error:
                if not await asyncio.to_thread(self._changed_since, error):
                    raise
                token = await self._asend_login()
            return self._succeed(login, token)
        except BaseException as error:
            raise self._fail(login, error) from None

    async def _asend_login(self) -> AccessToken:
        if self._unusable:
            raise type(self._unusable)(*self._unusable.args)
        try:
            async with asyncio.timeout(_LONGEST_LOGIN):

                async def send(request: httpx.Request) -> httpx.Response:
                    # In a thread: reading the public certificate authorities blocks for tens of milliseconds.
                    options = await asyncio.to_thread(self._network.httpx_options, str(request.url))
                    async with httpx.AsyncClient(timeout=LOGIN_TIMEOUT, **options) as client:
                        request.headers.update(UNPACKED)
                        response = await client.send(request, stream=True)
                        return await aread(response, most_bytes=_LARGEST_ANSWER, most_seconds=_LONGEST_LOGIN)

                return await log_in(self._credentials, self._now(), send, self._network)
        except RefreshTokenSpentError as error:
            self._unusable = error
            raise
        except TimeoutError:
            raise self._timeout_error() from None

    def _changed_since(self, error: AuthenticationError) -> bool:
        """Read the current credentials, and return whether they differ from the refused ones."""
        if self._read_again is None or error.retriable:
            return False
        try:
            current = self._read_again()
        except Exception as fault:
            # Without its text, which may quote a secret.
            log.warning(
                "Salesforce refused a login, and the connection could not be read again (%s).", type(fault).__name__
            )
            return False
        if current == self._credentials:
            return False
        log.info("Salesforce refused a login; logging in again with the changed credentials of the connection.")
        self._credentials, self._unusable = current, None
        return True

    def _timeout_error(self) -> LoginUnavailableError:
        return LoginUnavailableError(
            f"{token_url(self._credentials)} did not answer within {_LONGEST_LOGIN:.0f} seconds. Try again later."
        )

    def _succeed(self, login: Future[AccessToken], token: AccessToken) -> AccessToken:
        expected = self._organization_id
        # IDs of 15 and 18 characters name the same org; the last three are a checksum.
        if expected and expected[:15] != token.org_id[:15]:
            raise AuthenticationError(
                f"The login is to org {token.org_id}, but the connection has organization_id "
                f"{quoted_setting(expected)}. Correct the wrong one. Nothing was read."
            )
        with self._lock:
            self._token = token
        login.set_result(token)
        return token

    def _fail(self, login: Future[AccessToken], error: BaseException) -> BaseException:
        """Let the next caller log in again, pass the error to the waiting callers, and return the error to raise."""
        if isinstance(error, httpx.HTTPError | httpx.InvalidURL):
            error = self._unreachable(error)
        with self._lock:
            self._login = None
        # The interruption of the caller that logs in is not a result of the login: a waiting caller logs in instead.
        login.set_exception(error if isinstance(error, Exception) else _AbandonedError())
        return error

    def _unreachable(self, error: Exception) -> AuthenticationError:
        url = token_url(self._credentials)
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, UnusableAnswerError):
            return AuthenticationError(
                f"{url} returned no valid login response ({error}). Check domain or login_url, and any proxy on the "
                "way."
            )
        if _is_tls_fault(error):
            return AuthenticationError(
                f"TLS with {url} failed ({reason}). Check tls_ca: it must contain the certificate authority of the "
                "login host, or of a proxy on the way. Nothing was sent."
            )
        return LoginUnavailableError(
            f"{url} cannot be reached ({reason}). Check domain or login_url, the network and its proxy."
        )


class _AbandonedError(Exception):
    """Interruption of the caller that was logging in."""


def _is_tls_fault(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
