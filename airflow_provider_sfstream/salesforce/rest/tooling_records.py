"""What the clients of objects of the Tooling API share: queries, and records by their ID."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from airflow_provider_sfstream.exceptions import RequestRejectedError, TopicNotFoundError
from airflow_provider_sfstream.salesforce.rest.api import RestApiClient


class ToolingRecordsClient(RestApiClient):
    """Requests for records of the Tooling API. Errors are those of
    :mod:`airflow_provider_sfstream.salesforce.errors.tooling`."""

    checked: ClassVar[tuple[str, str]]
    """The object that :meth:`check` reads, and how an error names it."""

    def check(self) -> None:
        """Read something, to see that this user may.

        :raises SalesforceStreamError: naming what does not work.
        """
        kind, what = self.checked
        self._query(f"SELECT Id FROM {kind} LIMIT 1", what)  # noqa: S608

    def _query(self, soql: str, what: str) -> Sequence[dict[str, Any]]:
        answer = self._rest.request("GET", "tooling/query/", what=what, parameters={"q": soql})
        rows = answer.get("records")
        if not isinstance(rows, Sequence) or not all(isinstance(row, dict) and "Id" in row for row in rows):
            raise RequestRejectedError(f"{what}: the answer to the query is not one that Salesforce gives.")
        return rows

    def _post(self, kind: str, full_name: str, metadata: Mapping[str, Any], what: str) -> str | None:
        """Create a record; return its ID, where Salesforce tells it."""
        body = {"FullName": full_name, "Metadata": metadata}
        created = self._rest.request("POST", f"tooling/sobjects/{kind}", what=what, body=body)
        return str(created["id"]) if created.get("id") else None

    def _patch(self, kind: str, record_id: str, full_name: str, metadata: Mapping[str, Any], what: str) -> None:
        """Replace all settings of a record."""
        body = {"FullName": full_name, "Metadata": metadata}
        self._rest.request("PATCH", _path(kind, record_id), what=what, body=body, names_record=True)

    def _delete(self, kind: str, record_id: str, what: str) -> bool:
        """Delete a record; return whether it was there until now."""
        try:
            self._rest.request("DELETE", _path(kind, record_id), what=what, names_record=True)
        except TopicNotFoundError:
            return False  # somebody else was faster
        return True

    def _get(self, kind: str, record_id: str, what: str) -> dict[str, Any] | None:
        """Return a record with its settings, ``None`` if there is none (any more)."""
        try:
            row = self._rest.request("GET", _path(kind, record_id), what=what, names_record=True)
        except TopicNotFoundError:
            return None
        if not isinstance(row.get("Metadata"), dict):
            raise RequestRejectedError(f"{what}: Salesforce answered without its settings. Nothing was changed.")
        return row


def soql_text(text: str) -> str:
    """Return ``text`` as a SOQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _path(kind: str, record_id: str) -> str:
    return f"tooling/sobjects/{kind}/{quote(record_id, safe='')}"
