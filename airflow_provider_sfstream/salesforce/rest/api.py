"""Base clients of the REST API and of objects of the Tooling API: queries, and records by their ID."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Self
from urllib.parse import quote

from airflow_provider_sfstream.exceptions import RequestRejectedError, TopicNotFoundError
from airflow_provider_sfstream.salesforce.api_versions import (
    DEFAULT_API_VERSION,
    FIRST_API_VERSION,
    api_version_from,
)
from airflow_provider_sfstream.salesforce.auth.tokens import TokenProvider
from airflow_provider_sfstream.salesforce.rest.client import RestClient


class RestApiClient:
    """Base of REST clients; a context manager that closes its connections. The first request connects.

    :param token_provider: source of the access token, read at each request.
    :param api_version: of ``first_api_version`` or above, a leading ``v`` allowed.
    :param tls_ca: certificate authority to trust instead of the public ones: a file, or PEM text.
    :param proxies: proxy URL by scheme (``http``, ``https``), with precedence over ``HTTPS_PROXY`` of the environment.
    :param allow_insecure: accept an org's address without TLS that is not loopback.
    :raises ConfigurationError: if an argument is invalid. Nothing was contacted.
    """

    first_api_version: ClassVar[int] = FIRST_API_VERSION
    """The first API version that supports the client."""
    needs_version: ClassVar[str]
    """Subject and verb of the error's sentence "... 37.0 or above", which name the feature."""

    def __init__(
        self,
        token_provider: TokenProvider,
        *,
        api_version: str = DEFAULT_API_VERSION,
        tls_ca: str | None = None,
        proxies: Mapping[str, str] | None = None,
        allow_insecure: bool = False,
    ) -> None:
        self.api_version = api_version_from(api_version, first=self.first_api_version, what=self.needs_version)
        self._rest = RestClient(
            token_provider,
            api_version=self.api_version,
            tls_ca=tls_ca,
            proxies=proxies,
            allow_insecure=allow_insecure,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def server_time(self) -> datetime:
        """Return the org's time, aware, in whole seconds, from a ``Date`` header (RFC 9110). No counted API request.

        :raises SalesforceStreamError: if the org does not respond, or its response has no time.
        """
        return self._rest.server_time()

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()


class ToolingRecordsClient(RestApiClient):
    """Client for records of the Tooling API. Errors are those of
    :mod:`airflow_provider_sfstream.salesforce.errors.tooling`."""

    checked: ClassVar[tuple[str, str]]
    """The object that :meth:`check` reads, and its name in errors."""

    def check(self) -> None:
        """Read one record, to check the permission of this user.

        :raises SalesforceStreamError: naming the failed step.
        """
        kind, what = self.checked
        self._query(f"SELECT Id FROM {kind} LIMIT 1", what)  # noqa: S608

    def _query(self, soql: str, what: str) -> Sequence[dict[str, Any]]:
        answer = self._rest.request("GET", "tooling/query/", what=what, parameters={"q": soql})
        rows = answer.get("records")
        if not isinstance(rows, Sequence) or not all(isinstance(row, dict) and "Id" in row for row in rows):
            raise RequestRejectedError(f"{what}: the response to the query does not have the documented form.")
        return rows

    def _post(self, kind: str, full_name: str, metadata: Mapping[str, Any], what: str) -> str | None:
        """Create a record; return its ID, if the response contains it."""
        body = {"FullName": full_name, "Metadata": metadata}
        created = self._rest.request("POST", f"tooling/sobjects/{kind}", what=what, body=body)
        return str(created["id"]) if created.get("id") else None

    def _patch(self, kind: str, record_id: str, full_name: str, metadata: Mapping[str, Any], what: str) -> None:
        """Replace all settings of a record."""
        body = {"FullName": full_name, "Metadata": metadata}
        self._rest.request("PATCH", _path(kind, record_id), what=what, body=body, names_record=True)

    def _delete(self, kind: str, record_id: str, what: str) -> bool:
        """Delete a record; return whether it existed until now."""
        try:
            self._rest.request("DELETE", _path(kind, record_id), what=what, names_record=True)
        except TopicNotFoundError:
            return False  # another client deleted it first
        return True

    def _get(self, kind: str, record_id: str, what: str) -> dict[str, Any] | None:
        """Return a record with its settings, ``None`` if it does not exist (any more)."""
        try:
            row = self._rest.request("GET", _path(kind, record_id), what=what, names_record=True)
        except TopicNotFoundError:
            return None
        if not isinstance(row.get("Metadata"), dict):
            raise RequestRejectedError(f"{what}: the response of Salesforce has no settings. Nothing was changed.")
        return row


def soql_text(text: str) -> str:
    """Return ``text`` as a SOQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _path(kind: str, record_id: str) -> str:
    return f"tooling/sobjects/{kind}/{quote(record_id, safe='')}"
