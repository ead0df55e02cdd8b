"""The hook of managed event subscriptions: their records on the Tooling API, and when the Pub/Sub API sees a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_provider_sfstream.exceptions import (
    AlreadyExistsError,
    ConfigurationError,
    SalesforceStreamError,
)
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook
from airflow_provider_sfstream.protocol.api_versions import DEFAULT_API_VERSION
from airflow_provider_sfstream.protocol.managed import ManagedSubscription
from airflow_provider_sfstream.protocol.topics import Topic

if TYPE_CHECKING:
    from airflow_provider_sfstream.clients.rest.tooling import (
        ManagedEventSubscriptionRecord,
        ReplayPreset,
        SubscriptionState,
        ToolingClient,
    )

VISIBILITY_TIMEOUT = 180.0
"""Seconds to wait until the Pub/Sub API sees a change. At Salesforce it takes up to about two minutes."""


@dataclass(frozen=True)
class ManagedEventSubscriptionChange:
    """What was asked for is so: the record as it is now, and whether anything had to be changed for that."""

    record: ManagedEventSubscriptionRecord
    changed: bool


class ManagedEventSubscriptionHook(SalesforceLoginHook):
    """Create, read, change and delete the org's managed event subscriptions.

    Every method may be repeated: what is as asked for is left alone. Stopping and deleting make Salesforce discard the
    committed replay ID, so they are refused without ``confirm_position_loss=True``.

    Understands every field of Airflow's ``salesforce`` connection type, and in its Extra: ``version`` (API version,
    60.0 and up), ``auth_flow``, ``login_url``, ``refresh_token``, ``access_token``, ``proxies``, ``pubsub_endpoint``,
    ``tls_ca`` and ``allow_insecure``. The user needs the permission "View Setup and Configuration" to read, and
    "Customize Application" for all else.

    A subscription is given by its developer name, or by the id of its record (15 or 18 characters from ``18x`` on).
    All methods raise errors of :mod:`airflow_provider_sfstream.exceptions`.

    :param salesforce_conn_id: the Airflow connection.
    """

    def get_conn(self) -> ToolingClient:
        """Return a new client, for the caller to close (``with hook.get_conn() as client``). It connects on first use.

        :raises ConfigurationError: if the connection's fields cannot be used. Nothing was contacted.
        """
        from airflow_provider_sfstream.clients.rest.tooling import ToolingClient

        settings = self.settings()
        try:
            return ToolingClient(
                self.token_provider(),
                api_version=settings.version or DEFAULT_API_VERSION,
                tls_ca=settings.tls_ca,
                proxies=settings.proxies,
                allow_insecure=settings.allow_insecure,
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"Airflow connection {self.salesforce_conn_id!r}: {error}") from None

    def get(self, subscription: str) -> ManagedEventSubscriptionRecord:
        """Return the record of ``subscription``.

        :raises TopicNotFoundError: if the org has none, or hides it from this user.
        """
        parsed = ManagedSubscription.parse(subscription)
        with self.get_conn() as client:
            return client.get(parsed)

    def list(self) -> Sequence[ManagedEventSubscriptionRecord]:
        """Return every managed event subscription of the org, by developer name."""
        with self.get_conn() as client:
            return client.list()

    def create(
        self,
        developer_name: str,
        topic: str,
        *,
        label: str | None = None,
        default_replay: ReplayPreset = "EARLIEST",
        error_recovery_replay: ReplayPreset = "EARLIEST",
        state: SubscriptionState = "RUN",
    ) -> ManagedEventSubscriptionChange:
        """Create a managed event subscription, or return the one that exists with these settings.

        :param topic: of the Pub/Sub API; it cannot be changed later.
        :param label: ``None``: the developer name with spaces; the label of one that exists is then not compared.
        :param default_replay: where it begins while nothing has been committed.
        :param error_recovery_replay: where it goes on when the committed replay ID can no longer be read.
        :param state: ``"STOP"`` creates one that nobody can subscribe to yet.
        :raises ConfigurationError: if one exists with other settings, naming them; or if Salesforce does not accept a
            value.
        """
        name = check_developer_name(developer_name)
        settings = {
            "topic_name": Topic.parse(topic, "pubsub").name,
            "default_replay": default_replay,
            "error_recovery_replay": error_recovery_replay,
            "state": state,
        }
        # Salesforce finds names in any letter case.
        compared = {"developer_name": developer_name, **settings, **({} if label is None else {"label": label})}
        with self.get_conn() as client:
            existing = client.find(name)
            if existing is None:
                try:
                    created = client.create(
                        developer_name,
                        settings["topic_name"],
                        label=label or developer_name.replace("_", " "),
                        default_replay=default_replay,
                        error_recovery_replay=error_recovery_replay,
                        state=state,
                    )
                except AlreadyExistsError:
                    # Created by somebody else since, or by this request where its answer was lost.
                    existing = client.find(name)
                    if existing is None:
                        raise
                else:
                    return ManagedEventSubscriptionChange(created, changed=True)
        _check_equal(existing, compared)
        return ManagedEventSubscriptionChange(existing, changed=False)

    def update(
        self,
        subscription: str,
        *,
        label: str | None = None,
        default_replay: ReplayPreset | None = None,
        error_recovery_replay: ReplayPreset | None = None,
    ) -> ManagedEventSubscriptionChange:
        """Change what is given. The committed replay ID stays. Neither topic nor developer name can be changed.

        :raises TopicNotFoundError: if the org has none, or hides it from this user.
        """
        parsed = ManagedSubscription.parse(subscription)
        with self.get_conn() as client:
            record = client.get(parsed)
            wanted = (
                label or record.label,
                default_replay or record.default_replay,
                error_recovery_replay or record.error_recovery_replay,
            )
            if wanted == (record.label, record.default_replay, record.error_recovery_replay):
                return ManagedEventSubscriptionChange(record, changed=False)
            updated = client.update(
                parsed, label=label, default_replay=default_replay, error_recovery_replay=error_recovery_replay
            )
            return ManagedEventSubscriptionChange(updated, changed=True)

    def start(self, subscription: str) -> ManagedEventSubscriptionChange:
        """Set the state to RUN. One that was stopped begins at its default replay: it has no committed replay ID.

        :raises TopicNotFoundError: if the org has none, or hides it from this user.
        """
        return self._set_state(subscription, "RUN")

    def stop(self, subscription: str, *, confirm_position_loss: bool = False) -> ManagedEventSubscriptionChange:
        """Set the state to STOP: Salesforce ends its stream, and **discards the committed replay ID**.

        :raises ConfigurationError: without ``confirm_position_loss``. Nothing was contacted.
        :raises TopicNotFoundError: if the org has none, or hides it from this user.
        """
        check_confirmed(confirm_position_loss, f"stopping managed event subscription {subscription}")
        return self._set_state(subscription, "STOP")

    def delete(
        self, subscription: str, *, confirm_position_loss: bool = False
    ) -> ManagedEventSubscriptionRecord | None:
        """Delete the record, and with it the **committed replay ID**. Return what it was; ``None`` if there is none.

        :raises ConfigurationError: without ``confirm_position_loss``. Nothing was contacted.
        """
        check_confirmed(confirm_position_loss, f"deleting managed event subscription {subscription}")
        parsed = ManagedSubscription.parse(subscription)
        with self.get_conn() as client:
            record = client.delete(parsed)
        if record is not None:
            self.log.warning("Deleted %s on %s. %s", record, record.topic_name, _POSITION_LOST)
        return record

    def wait_until_visible(
        self,
        subscription: str,
        state: Literal["RUN", "STOP", "DELETED"] = "RUN",
        *,
        timeout: float = VISIBILITY_TIMEOUT,
    ) -> None:
        """Return once the Pub/Sub API sees that ``subscription`` is in ``state``.

        It subscribes, commits nothing, and closes the stream at once. That takes the subscription's only place for a
        moment, so ask only right after a change, while nobody can be using it; see
        :mod:`airflow_provider_sfstream.clients.pubsub.visibility`.

        :param timeout: seconds.
        :raises ServiceUnavailableError: if the Pub/Sub API does not see it within ``timeout``.
        """
        from airflow_provider_sfstream.clients.pubsub.client import PubSubClient
        from airflow_provider_sfstream.clients.pubsub.visibility import Seen, wait_until_seen
        from airflow_provider_sfstream.hooks.salesforce_pubsub import way_to_pubsub

        parsed = ManagedSubscription.parse(subscription)
        expected = {"RUN": Seen.OPEN, "STOP": Seen.STOPPED, "DELETED": Seen.UNKNOWN}[state]
        self.log.info("Waiting until managed event subscription %s %s.", parsed.text, expected.value)
        with PubSubClient(self.token_provider(), **way_to_pubsub(self.settings())) as client:
            wait_until_seen(client, parsed, expected, timeout=timeout)
        self.log.info("The Pub/Sub API sees that managed event subscription %s %s.", parsed.text, expected.value)

    def test_connection(self) -> tuple[bool, str]:
        """Log in and read the managed event subscriptions. Return whether all went well, and which part did not."""
        try:
            client = self.get_conn()
        except SalesforceStreamError as error:
            return False, f"Connection fields: {error}"
        with client:
            refused = self.login_failure()
            if refused is not None:
                return False, refused
            try:
                client.check()
            except SalesforceStreamError as error:
                return False, f"Tooling API: {error}"
            return True, f"Logged in to org {self.org_id}; Tooling API {client.api_version} reached."

    def _set_state(self, subscription: str, state: SubscriptionState) -> ManagedEventSubscriptionChange:
        parsed = ManagedSubscription.parse(subscription)
        with self.get_conn() as client:
            record = client.get(parsed)
            if record.state == state:
                return ManagedEventSubscriptionChange(record, changed=False)
            changed = client.update(parsed, state=state)
        if state == "STOP":
            self.log.warning("Stopped %s on %s. %s", record, record.topic_name, _POSITION_LOST)
        return ManagedEventSubscriptionChange(changed, changed=True)


_POSITION_LOST = (
    "Salesforce has discarded its committed replay ID: the next subscription begins at its default replay, which "
    "reads events again (EARLIEST) or skips those published until then (LATEST)."
)


def check_developer_name(text: str) -> ManagedSubscription:
    """Return the subscription of this developer name.

    :raises ConfigurationError: if it is none, or the id of a record.
    """
    parsed = ManagedSubscription.parse(text)
    if parsed.developer_name is None:
        raise ConfigurationError(
            f"developer_name={text!r} is the id of a record. Give the name that the new managed event subscription is "
            "to have. Nothing was contacted."
        )
    return parsed


def check_confirmed(confirm_position_loss: bool, doing: str) -> None:
    """Refuse what discards a committed replay ID, unless it is confirmed.

    :param doing: what is to be done, as a sentence begins with it.
    :raises ConfigurationError: if it is not.
    """
    if confirm_position_loss is not True:
        raise ConfigurationError(
            f"{doing[:1].upper()}{doing[1:]} makes Salesforce discard its committed replay ID, and with it where its "
            "consumer is: events are then read again or skipped. Set confirm_position_loss=True if that is what you "
            "want. Nothing was changed."
        )


def _check_equal(record: ManagedEventSubscriptionRecord, wanted: dict[str, str]) -> None:
    differences = [
        f"{name} is {getattr(record, name)!r}, not {value!r}"
        for name, value in wanted.items()
        if getattr(record, name) != value
    ]
    if differences:
        raise ConfigurationError(
            f"{record} exists already with other settings: {'; '.join(differences)}. Nothing was changed. Choose "
            "another developer name, or change it: label and replay settings with "
            "UpdateManagedEventSubscriptionOperator, the state with StartManagedEventSubscriptionOperator or "
            "StopManagedEventSubscriptionOperator. Its topic cannot be changed: delete it, which discards its "
            "committed replay ID, and create it anew."
        )
