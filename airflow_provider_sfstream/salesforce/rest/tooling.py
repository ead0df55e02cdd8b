"""Records of managed event subscriptions, through the Tooling API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from airflow_provider_sfstream.exceptions import RequestRejectedError, TopicNotFoundError
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.salesforce.managed_subscription import ManagedSubscription
from airflow_provider_sfstream.salesforce.rest.api import ToolingRecordsClient, soql_text

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
    """A managed event subscription as the org has it.

    :param id: 18 characters, beginning with ``18x``.
    :param topic_name: cannot be changed once the record exists.
    :param default_replay: ``LATEST`` or ``EARLIEST``: where the subscription begins while nothing has been committed.
    :param error_recovery_replay: the same, for when the committed replay ID can no longer be read.
    :param state: ``RUN``; ``STOP``, which also discards the committed replay ID.
    :param version: API version of the record's metadata, where Salesforce tells it.
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
        """Return the record as JSON has it."""
        return asdict(self)

    def __str__(self) -> str:
        return f"managed event subscription {self.developer_name} ({self.id})"


class ToolingClient(ToolingRecordsClient):
    """Creates, reads, changes and deletes managed event subscriptions; a context manager that closes its connections.

    Reading needs the user permission "View Setup and Configuration", all else "Customize Application". Changes are
    seen by the Pub/Sub API up to about two minutes later. Stopping and deleting discard the committed replay ID
    (Metadata API guide, "ManagedEventSubscription"): this class just does it, its callers ask first. Errors are those
    of :mod:`airflow_provider_sfstream.salesforce.errors.tooling`.
    """

    first_api_version = FIRST_API_VERSION
    needs_version = "has managed event subscriptions"
    checked = _OBJECT, _ALL

    def create(
        self,
        developer_name: str,
        topic_name: str,
        *,
        label: str,
        default_replay: ReplayPreset,
        error_recovery_replay: ReplayPreset,
        state: SubscriptionState,
    ) -> ManagedEventSubscriptionRecord:
        """Create a record and return it as Salesforce stored it.

        :raises AlreadyExistsError: if the org has one of this name.
        :raises ConfigurationError: if Salesforce does not accept a value, such as a topic that the org does not have.
        """
        settings = {
            "label": label,
            "topic_name": topic_name,
            "default_replay": default_replay,
            "error_recovery_replay": error_recovery_replay,
            "state": state,
        }
        what = f"managed event subscription {developer_name} on {topic_name}"
        record_id = self._post(_OBJECT, developer_name, _metadata(settings), what)
        return self.get(ManagedSubscription.parse(record_id or developer_name))

    def get(self, subscription: ManagedSubscription) -> ManagedEventSubscriptionRecord:
        """Return the record of ``subscription``.

        :raises TopicNotFoundError: if the org has none, or hides it from this user.
        """
        return _record(self._row(subscription))

    def find(self, subscription: ManagedSubscription) -> ManagedEventSubscriptionRecord | None:
        """Return the record of ``subscription``, ``None`` if the org has none or hides it from this user."""
        row = self._find_row(subscription)
        return None if row is None else _record(row)

    def list(self) -> Sequence[ManagedEventSubscriptionRecord]:
        """Return every record of the org, by developer name. Takes a request for each: there are at most 200.

        Salesforce gives the metadata of one record at a time.
        """
        rows = self._query(f"SELECT Id FROM {_OBJECT}", _ALL)  # noqa: S608
        found = (self.find(ManagedSubscription.parse(str(row["Id"]))) for row in rows)
        return sorted((each for each in found if each is not None), key=lambda record: record.developer_name)

    def update(
        self,
        subscription: ManagedSubscription,
        *,
        label: str | None = None,
        default_replay: ReplayPreset | None = None,
        error_recovery_replay: ReplayPreset | None = None,
        state: SubscriptionState | None = None,
    ) -> ManagedEventSubscriptionRecord:
        """Change what is given and return the record as Salesforce stored it. The topic cannot be changed.

        Salesforce replaces all settings at once: what somebody else changes at the same moment is put back.

        :raises TopicNotFoundError: if the org has none, or hides it from this user.
        :raises ConfigurationError: if Salesforce does not accept a value.
        """
        row = self._row(subscription)
        changes = {
            "label": label,
            "default_replay": default_replay,
            "error_recovery_replay": error_recovery_replay,
            "state": state,
        }
        metadata = {**row["Metadata"], **_metadata({name: to for name, to in changes.items() if to is not None})}
        record = _record(row)
        self._patch(_OBJECT, record.id, record.developer_name, metadata, str(record))
        return self.get(ManagedSubscription.parse(record.id))

    def delete(self, subscription: ManagedSubscription) -> ManagedEventSubscriptionRecord | None:
        """Delete the record and return what it was; ``None`` if the org has none, or hides it from this user."""
        record = self.find(subscription)
        if record is None:
            return None
        return record if self._delete(_OBJECT, record.id, str(record)) else None

    def _row(self, subscription: ManagedSubscription) -> dict[str, Any]:
        row = self._find_row(subscription)
        if row is None:
            raise TopicNotFoundError(
                f"managed event subscription {subscription.text}: the org has none, or hides it from this user. Check "
                "the developer name or id, that it is this connection's org, and the user's permission 'View Setup and "
                "Configuration'. Create it with ManagedEventSubscriptionOperator(topic=...). Nothing was changed."
            )
        return row

    def _find_row(self, subscription: ManagedSubscription) -> dict[str, Any] | None:
        if subscription.subscription_id is not None:
            field, value = "Id", to_18(subscription.subscription_id)
        else:
            field, value = "DeveloperName", str(subscription.developer_name)
        what = f"managed event subscription {subscription.text}"
        # Metadata may be selected only where one record comes back.
        rows = self._query(
            f"SELECT Id, DeveloperName, Metadata FROM {_OBJECT} WHERE {field} = {soql_text(value)} LIMIT 1",  # noqa: S608
            what,
        )
        if not rows:
            return None
        if not isinstance(rows[0].get("Metadata"), dict):
            raise RequestRejectedError(f"{what}: Salesforce answered without its settings. Nothing was changed.")
        return rows[0]


def _metadata(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under the names that Salesforce has for them."""
    return {_METADATA[name]: value for name, value in settings.items()}


def _record(row: Mapping[str, Any]) -> ManagedEventSubscriptionRecord:
    metadata = row["Metadata"]
    version = metadata.get("version")
    return ManagedEventSubscriptionRecord(
        id=str(row["Id"]),
        developer_name=str(row.get("DeveloperName") or ""),
        **{name: str(metadata.get(theirs) or "") for name, theirs in _METADATA.items()},
        version=None if version is None else str(version),
    )
