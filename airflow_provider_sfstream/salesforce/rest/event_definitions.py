"""Definitions of platform events, through the Tooling API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from airflow_provider_sfstream.exceptions import RequestRejectedError
from airflow_provider_sfstream.salesforce.rest.tooling_records import ToolingRecordsClient, soql_text
from airflow_provider_sfstream.salesforce.retention import retention_by_event_type, retention_by_kind

_OBJECT = "CustomObject"


class EventDefinitionClient(ToolingRecordsClient):
    """Reads definitions of platform events; a context manager that closes its connections.

    The user needs the permission "View Setup and Configuration". Errors are those of
    :mod:`airflow_provider_sfstream.salesforce.errors.tooling`.
    """

    needs_version = "has definitions of platform events"
    checked = _OBJECT, "the definitions of the org's objects"

    def retention(self, topic: str) -> timedelta | None:
        """Return how long Salesforce retains the events of ``topic``; ``None`` if its definition does not say it, or
        the org has none or hides it from this user.

        Takes one request for a custom platform event, and none for any other topic. Where other objects of the org
        have the same developer name (``Order__c`` besides ``Order__e``), it takes one more, and one for each of them.

        :raises SalesforceStreamError: if the definition cannot be read.
        """
        by_kind = retention_by_kind(topic)
        return retention_by_event_type(self.event_type(topic.removeprefix("/event/"))) if by_kind is None else by_kind

    def event_type(self, name: str) -> str | None:
        """Return ``HighVolume`` or ``StandardVolume``; ``None`` if the org has no such event, or hides it.

        :param name: of a custom platform event: ``Order__e``, with a namespace ``Shop__Order__e``.
        :raises SalesforceStreamError: if the definition cannot be read.
        """
        what = f"the definition of {name}"
        namespace, _, developer_name = name.removesuffix("__e").rpartition("__")
        where = f"DeveloperName = {soql_text(developer_name)}"
        if namespace:
            where += f" AND NamespacePrefix = {soql_text(namespace)}"
        for row in self._definitions(where, what):
            event_type = _event_type(row)
            # Of all objects with this developer name, only the platform event has a volume.
            if event_type is not None and (row.get("NamespacePrefix") or "").lower() == namespace.lower():
                return event_type
        return None

    def _definitions(self, where: str, what: str) -> Iterator[Mapping[str, Any]]:
        try:
            # Metadata may be selected only where one record is returned.
            yield from self._query(f"SELECT Id, NamespacePrefix, Metadata FROM {_OBJECT} WHERE {where}", what)  # noqa: S608
            return
        except RequestRejectedError:
            rows = self._query(f"SELECT Id, NamespacePrefix FROM {_OBJECT} WHERE {where}", what)  # noqa: S608
            if len(rows) < 2:
                raise
        for row in rows:
            found = self._get(_OBJECT, str(row["Id"]), what)
            if found is not None:
                yield {**found, "NamespacePrefix": row.get("NamespacePrefix")}


def _event_type(row: Mapping[str, Any]) -> str | None:
    metadata = row.get("Metadata")
    value = metadata.get("eventType") if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else None
