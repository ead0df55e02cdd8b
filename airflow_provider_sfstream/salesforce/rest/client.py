"""Base client of an org's REST API, and Salesforce's time from the ``Date`` header of its responses."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

import httpx

from airflow_provider_sfstream.exceptions import RequestRejectedError, SalesforceStreamError, SessionExpiredError
from airflow_provider_sfstream.salesforce.api_versions import DEFAULT_API_VERSION, FIRST_API_VERSION, api_version_from
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, Session, TokenProvider
from airflow_provider_sfstream.salesforce.closing import ClosedOnExit
from airflow_provider_sfstream.salesforce.errors.rest import error_from_response
from airflow_provider_sfstream.salesforce.network.bounded import UNPACKED, read
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK, NetworkSettings
from airflow_provider_sfstream.salesforce.server_time import ServerTime

log = logging.getLogger(__name__)

CALL_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
"""Seconds. Salesforce may need long for metadata."""
TIME_TIMEOUT = 10.0
"""Seconds for a request of the org's time: a drain waits for it, and a late response is an inexact measurement."""
_UNCACHED = {**UNPACKED, "Cache-Control": "no-cache"}
_LAST_YEAR = 9999
"""The last year that Python can represent: no later time exists."""
LONGEST_CALL = 300.0
"""Seconds for the whole body of a response."""
LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes."""


class RestClient(ClosedOnExit):
    """Base of clients for requests below ``/services/data/v{version}`` of the login's org. Not thread-safe.

    A context manager that closes its connections. The first request connects. Logs in again once if Salesforce refuses
    the token, which it does before it executes a request; does not retry otherwise.

    :param api_version: of ``first_api_version`` or above, a leading ``v`` allowed.
    """

    first_api_version: ClassVar[int] = FIRST_API_VERSION
    """The first API version that supports the client."""
    needs_version: ClassVar[str] = "the REST API requires"
    """Subject and verb of the error's sentence "... 37.0 or above", which name the feature."""

    def __init__(
        self,
        token_provider: TokenProvider,
        *,
        api_version: str = DEFAULT_API_VERSION,
        network: NetworkSettings = DEFAULT_NETWORK,
    ) -> None:
        self.api_version = api_version_from(api_version, first=self.first_api_version, what=self.needs_version)
        self._session = Session(token_provider)
        self._network = network
        self._clients: dict[str | None, httpx.Client] = {}

    def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        names_record: bool = False,
    ) -> dict[str, Any]:
        """Send one request and return the JSON object of its response, empty if it has no body.

        :param path: path below ``/services/data/v{version}/``, with quoted segments.
        :param what: subject of the request, with which an error begins.
        :param names_record: whether ``path`` names a record, so that "not found" means that record.
        """
        arguments = {"params": parameters, "json": body}
        try:
            return self._send(method, path, arguments, what, names_record)
        except SessionExpiredError:
            self._session.renew()
            return self._send(method, path, arguments, what, names_record)

    def _send(
        self, method: str, path: str, arguments: Mapping[str, Any], what: str, names_record: bool
    ) -> dict[str, Any]:
        token = self._session.token()
        url = f"{self._origin(token)}/services/data/v{self.api_version}/{path}"
        with self._session.using(token):
            headers = {"Authorization": f"Bearer {token.value}", **UNPACKED}
            with _network_faults(what):
                client = self._client(url)
                answer = client.send(client.build_request(method, url, headers=headers, **arguments), stream=True)
                response = read(answer, most_bytes=LARGEST_ANSWER, most_seconds=LONGEST_CALL)
            document = _document(response)
            if not response.is_success or not isinstance(document, dict) or document.get("success") is False:
                raise _error(response, document, what, names_record)
        return document

    def server_time(self) -> datetime:
        """Return the org's time, aware, in whole seconds, from a ``Date`` header (RFC 9110).

        Reads the public list of API versions, which is no counted API request.
        """
        what = "the org's time"
        url = f"{self._origin(self._session.token())}/services/data"
        with _network_faults(what):
            client = self._client(url)
            response = client.send(
                client.build_request("GET", url, headers=_UNCACHED, timeout=TIME_TIMEOUT), stream=True
            )
            response.close()  # only the header is needed
        if not response.is_success:  # the error may be from a proxy or portal, with another clock
            status, reason = response.status_code, response.reason_phrase
            raise error_from_response(status, None, reason, what=what)
        try:
            return _date(response)
        except (KeyError, ValueError):
            raise RequestRejectedError(f"{what}: the response has no reliable Date header.") from None

    def _origin(self, token: AccessToken) -> str:
        return self._network.origin("The org's instance URL", token.instance_url)

    def _client(self, url: str) -> httpx.Client:
        options = self._network.httpx_options(url)
        if options["proxy"] not in self._clients:
            self._clients[options["proxy"]] = httpx.Client(timeout=CALL_TIMEOUT, follow_redirects=False, **options)
        return self._clients[options["proxy"]]


@contextmanager
def _network_faults(what: str) -> Iterator[None]:
    """Convert network errors, without their cause: it contains the request, and with it the token."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as fault:
        text = f"{type(fault).__name__}: {fault}"
        raise error_from_response(None, None, text, what=what) from None


def _date(response: httpx.Response) -> datetime:
    """Return the time of a response that its origin sent now."""
    date = parsedate_to_datetime(response.headers["Date"])
    if date.tzinfo is None or date.year >= _LAST_YEAR or response.headers.get("Age", "").strip() not in ("", "0"):
        raise ValueError
    return date


def _error(response: httpx.Response, document: Any, what: str, names_record: bool) -> SalesforceStreamError:
    code, message = _first_error(document)
    if message is None:
        message = response.text if not response.is_success else "not a JSON object"
    return error_from_response(response.status_code, code, message, what=what, names_record=names_record)


def _document(response: httpx.Response) -> Any:
    """Return the JSON of a response; an empty object if it has no body, ``None`` if it is not JSON."""
    if not response.content:
        return {}
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


def _first_error(document: Any) -> tuple[str | None, str | None]:
    """Return code and message of the first error of a response: a list of errors, or a result with errors."""
    errors = document.get("errors") if isinstance(document, dict) else document
    first = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(first, dict):
        return None, None
    code = first.get("errorCode") or first.get("statusCode")
    return (str(code) if code else None), str(first.get("message") or "")


def measured_server_time(
    token_provider: TokenProvider, network: NetworkSettings, clock: Callable[[], float]
) -> ServerTime | None:
    """Return Salesforce's time, measured now with ``clock``; ``None``, with a warning, if no response has it."""
    token_provider.token()  # a failed login is an error of the run, not a missing measurement
    with RestClient(token_provider, network=network) as client:
        try:
            sent = clock()
            date = client.server_time()
            return ServerTime(date, sent, clock())
        except SalesforceStreamError as error:
            log.warning(
                "Salesforce's time could not be measured, so the window of this run has no confirmed_at and no "
                "contact_at. No event is affected. %s",
                error,
            )
            return None
