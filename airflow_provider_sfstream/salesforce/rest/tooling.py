"""Tooling API: base client of its records, and the client of managed event subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from airflow_provider_sfstream.exceptions import ConfigurationError, RequestRejectedError, TopicNotFoundError
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription, to_18
from airflow_provider_sfstream.salesforce.rest.client import RestClient


class ToolingRecordsClient(RestClient):
    """Client for records of the Tooling API."""

    checked: ClassVar[tuple[str, str]]
    """The object that :meth:`check` reads, and its name in errors."""

    def check(self) -> None:
        """Read one record, to check the permission of this user."""
        kind, what = self.checked
        self._query(f"SELECT Id FROM {kind} LIMIT 1", what)  # noqa: S608

    def _query(self, soql: str, what: str, path: str = "tooling/query/") -> Sequence[dict[str, Any]]:
        """Return the records of all pages of a query, each with its ID at least."""
        rows: list[dict[str, Any]] = []
        root, passed, parameters = f"/services/data/v{self.api_version}/", {""}, {"q": soql}
        while path not in passed:
            passed.add(path)
            answer = self.request("GET", path, what=what, parameters=parameters)
            page, following = answer.get("records"), str(answer.get("nextRecordsUrl"))
            if not isinstance(page, list) or not all(isinstance(row, dict) and "Id" in row for row in page):
                break
            rows += page
            if answer.get("done") is True:
                return rows
            path, parameters = following.removeprefix(root) if page and following.startswith(root) else "", {}
        raise RequestRejectedError(f"{what}: the response to the query does not have the documented form.")

    def _post(self, kind: str, full_name: str, metadata: Mapping[str, Any], what: str) -> str | None:
        """Create a record; return its ID, if the response contains it."""
        body = {"FullName": full_name, "Metadata": metadata}
        created = self.request("POST", f"tooling/sobjects/{kind}", what=what, body=body)
        return str(created["id"]) if created.get("id") else None

    def _patch(self, kind: str, record_id: str, full_name: str, metadata: Mapping[str, Any], what: str) -> None:
        body = {"FullName": full_name, "Metadata": metadata}
        self.request("PATCH", _path(kind, record_id), what=what, body=body, names_record=True)

    def _delete(self, kind: str, record_id: str, what: str) -> bool:
        """Delete a record; return whether it existed until now."""
        try:
            self.request("DELETE", _path(kind, record_id), what=what, names_record=True)
        except TopicNotFoundError:
            return False  # another client deleted it first
        return True

    def _get(self, kind: str, record_id: str, what: str) -> dict[str, Any] | None:
        """Return a record with its settings, ``None`` if it does not exist (any more)."""
        try:
            row = self.request("GET", _path(kind, record_id), what=what, names_record=True)
        except TopicNotFoundError:
            return None
        if not isinstance(row.get("Metadata"), dict):
            raise RequestRejectedError(f"{what}: the response of Salesforce has no settings. Nothing was changed.")
        return row


def check_stored(what: str, differences: Iterable[str]) -> None:
    """Check that what Salesforce returns after a change does not differ from the declared settings."""
    if text := "; ".join(differences):
        raise ConfigurationError(
            f"{what}: after the change Salesforce has stored {text}, which now applies. Another client may have "
            "changed it meanwhile: run the task again. If both mean the same, declare the stored value."
        )


def soql_text(text: str) -> str:
    """Return ``text`` as a SOQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _path(kind: str, record_id: str) -> str:
    return f"tooling/sobjects/{kind}/{quote(record_id, safe='')}"


ReplayPreset = Literal["LATEST", "EARLIEST"]
SubscriptionState = Literal["RUN", "STOP"]

FIRST_API_VERSION = 60
"""The first API version with managed event subscriptions (Tooling API guide, "ManagedEventSubscription")."""

_OBJECT = "ManagedEventSubscription"
_ALL = "the managed event subscriptions of the org"
_METADATA = {
    "label": "label",
    "topic_name": "topicName",
    "default_replay": "defaultReplay",
    "error_recovery_replay": "errorRecoveryReplay",
    "state": "state",
}


@dataclass(frozen=True)
class ManagedEventSubscriptionRecord:
    """Record of a managed event subscription in the org.

    :param topic_name: topic; cannot change after creation.
    :param default_replay: ``LATEST`` or ``EARLIEST``: start of the subscription before the first commit.
    :param error_recovery_replay: the same, if the committed replay ID can no longer be read.
    :param state: ``RUN``; ``STOP``, which also discards the committed replay ID.
    :param version: API version of the record's metadata, if Salesforce reports it.
    """

    id: str
    developer_name: str
    label: str
    topic_name: str
    default_replay: str
    error_recovery_replay: str
    state: str
    version: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return asdict(self)

    def differences(self, declared: Mapping[str, str]) -> Iterator[str]:
        """Yield the differences of the record from declared settings."""
        for name, value in declared.items():
            if getattr(self, name) != value:
                yield f"{name} {getattr(self, name)!r} instead of {value!r}"

    def __str__(self) -> str:
        return f"managed event subscription {self.developer_name} ({self.id})"


class ToolingClient(ToolingRecordsClient):
    """Client that creates, reads, changes and deletes managed event subscriptions.

    Reading needs the user permission "View Setup and Configuration", other calls "Customize Application". The Pub/Sub
    API applies changes up to about two minutes later. Stopping and deleting discard the committed replay ID (Metadata
    API guide, "ManagedEventSubscription"): callers ask for confirmation, this class does not.
    """

    first_api_version = FIRST_API_VERSION
    needs_version = "managed event subscriptions require"
    checked = _OBJECT, _ALL

    def create(self, developer_name: str, topic_name: str, **settings: str) -> ManagedEventSubscriptionRecord:
        """Create a record and return it as stored by Salesforce.

        :param settings: ``label``, ``default_replay``, ``error_recovery_replay`` and ``state``.
        """
        what = f"managed event subscription {developer_name} on {topic_name}"
        metadata = _metadata({"topic_name": topic_name, **settings})
        record_id = self._post(_OBJECT, developer_name, metadata, what)
        return self.get(ManagedSubscription(record_id or developer_name))

    def get(self, subscription: ManagedSubscription) -> ManagedEventSubscriptionRecord:
        """Return the record of ``subscription``."""
        return _record(self._row(subscription))

    def find(self, subscription: ManagedSubscription) -> ManagedEventSubscriptionRecord | None:
        """Return the record of ``subscription``, ``None`` if it does not exist or is hidden from this user."""
        row = self._find_row(subscription)
        return None if row is None else _record(row)

    def list(self) -> Sequence[ManagedEventSubscriptionRecord]:
        """Return every record of the org, by developer name. Sends one request for each; the maximum is 200.

        Salesforce returns the metadata of one record per request.
        """
        rows = self._query(f"SELECT Id FROM {_OBJECT}", _ALL)  # noqa: S608
        records = (self.find(ManagedSubscription(str(row["Id"]))) for row in rows)
        return sorted((record for record in records if record is not None), key=lambda record: record.developer_name)

    def update(self, subscription: ManagedSubscription, **changes: str) -> ManagedEventSubscriptionRecord:
        """Change settings, those of :meth:`create`, and return the stored record. The topic cannot change.

        Salesforce replaces all settings together, which reverts a concurrent change by another client.
        """
        row = self._row(subscription)
        record = _record(row)
        metadata = {**row["Metadata"], **_metadata(changes)}
        self._patch(_OBJECT, record.id, record.developer_name, metadata, str(record))
        return self.get(ManagedSubscription(record.id))

    def delete(self, subscription: ManagedSubscription) -> ManagedEventSubscriptionRecord | None:
        """Delete the record and return its last state; ``None`` if it does not exist or is hidden from this user."""
        record = self.find(subscription)
        if record is None:
            return None
        return record if self._delete(_OBJECT, record.id, str(record)) else None

    def _row(self, subscription: ManagedSubscription) -> dict[str, Any]:
        row = self._find_row(subscription)
        if row is None:
            raise TopicNotFoundError(
                f"managed event subscription {subscription.text}: it does not exist in the org, or is hidden from this "
                "user. Check the developer name or ID, the org of the connection, and the user's permission 'View "
                "Setup and Configuration'. Create it with ManagedEventSubscriptionOperator(topic=...). Nothing was "
                "changed."
            )
        return row

    def _find_row(self, subscription: ManagedSubscription) -> dict[str, Any] | None:
        if subscription.subscription_id is not None:
            field, value = "Id", to_18(subscription.subscription_id)
        else:
            field, value = "DeveloperName", str(subscription.developer_name)
        what = f"managed event subscription {subscription.text}"
        # Salesforce allows Metadata only in queries that return one record.
        rows = self._query(
            f"SELECT Id, DeveloperName, Metadata FROM {_OBJECT} WHERE {field} = {soql_text(value)} LIMIT 1",  # noqa: S608
            what,
        )
        if not rows:
            return None
        if not isinstance(rows[0].get("Metadata"), dict):
            raise RequestRejectedError(f"{what}: the response of Salesforce has no settings. Nothing was changed.")
        return rows[0]


def _metadata(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under Salesforce's field names."""
    return {_METADATA[name]: value for name, value in settings.items()}


def _record(row: Mapping[str, Any]) -> ManagedEventSubscriptionRecord:
    metadata = row["Metadata"]
    version = metadata.get("version")
    return ManagedEventSubscriptionRecord(
        id=str(row["Id"]),
        developer_name=str(row.get("DeveloperName") or ""),
        **{name: str(metadata.get(salesforce_name) or "") for name, salesforce_name in _METADATA.items()},
        version=None if version is None else str(version),
    )
