"""Hook of managed event subscriptions: their records on the Tooling API, and the wait until a change takes effect."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream.exceptions import (
    AlreadyExistsError,
    ConfigurationError,
    ServiceUnavailableError,
    SessionExpiredError,
    SubscriptionBusyError,
    SubscriptionStoppedError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.rest.tooling import (
    ManagedEventSubscriptionRecord,
    ReplayPreset,
    SubscriptionState,
    ToolingClient,
    check_stored,
)
from airflow_provider_sfstream.salesforce.topics import Topic

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient

State = Literal["running", "stopped"]
VisibleState = Literal[State, "deleted"]
SeenState = VisibleState | None
_STATES: Mapping[State, SubscriptionState] = {"running": "RUN", "stopped": "STOP"}
_SHOWN: Mapping[SeenState, str] = {
    None: "refuses no subscriber; no response showed its state",
    "running": "is running",
    "stopped": "is stopped",
    "deleted": "was not found",
}
VISIBILITY_TIMEOUT = 180.0
"""Seconds to wait until the Pub/Sub API has applied a change, which Salesforce does within about two minutes."""
SILENCE = 5.0
"""Seconds to wait for a response: a refusal is expected immediately, an event if one exists, and a keepalive only after
minutes. Another response on the same connection meanwhile shows that the server answers."""
INTERVAL = 5.0
"""Seconds between two attempts."""
_STANDARD_CHANNEL = "/data/ChangeEvents"
"""A topic that every org has."""


@dataclass(frozen=True)
class ManagedEventSubscriptionChange:
    """Result of a change: the record now, and before (``None``: it did not exist)."""

    record: ManagedEventSubscriptionRecord
    before: ManagedEventSubscriptionRecord | None

    @property
    def changed(self) -> bool:
        """``True`` after a change."""
        return self.record != self.before

    @property
    def is_of_state(self) -> bool:
        """``True`` if the subscription was created, or its state changed, which the Pub/Sub API shows later."""
        return self.before is None or self.record.state != self.before.state

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.record}: created on {self.record.topic_name}"
        before, after = self.before.as_dict(), self.record.as_dict()
        changes = [f"{name} {before[name]!r} -> {after[name]!r}" for name in after if after[name] != before[name]]
        return f"{self.record}: {', '.join(changes) or 'no change'}"


class ManagedEventSubscriptionHook(SalesforceLoginHook):
    """Create, read, change and delete the org's managed event subscriptions.

    Every method may be repeated: settings that are already as declared are not written. Stopping and deleting discard
    the committed replay ID, so they are refused without ``confirm_position_loss=True``.

    Needs API version 60.0 or above. The user needs the permission "View Setup and Configuration" to read, and
    "Customize Application" for all else. A subscription is identified by its developer name, or by the id of its record
    (15 or 18 characters, starting with ``18x``).

    :param salesforce_conn_id: the Airflow connection.
    """

    def get_conn(self) -> ToolingClient:
        """Return a new client, connected on first use; the caller closes it (``with hook.get_conn() as client``)."""
        return self._rest_client(ToolingClient)

    def get(self, subscription: str) -> ManagedEventSubscriptionRecord:
        """Return the record of ``subscription``.

        :raises TopicNotFoundError: if the org has none, or hides it from this user.
        """
        parsed = ManagedSubscription(subscription)
        with self.get_conn() as client:
            return client.get(parsed)

    def list(self) -> Sequence[ManagedEventSubscriptionRecord]:
        """Return every managed event subscription of the org, by developer name."""
        with self.get_conn() as client:
            return client.list()

    def ensure(
        self,
        subscription: str,
        state: State = "running",
        *,
        topic: str | None = None,
        label: str | None = None,
        default_replay: ReplayPreset | None = None,
        error_recovery_replay: ReplayPreset | None = None,
        confirm_position_loss: bool = False,
    ) -> ManagedEventSubscriptionChange:
        """Create a managed event subscription, or change the settings that differ.

        ``None`` means unchanged. A change of label and replay settings keeps the committed replay ID; stopping discards
        it. After another start the subscription begins at its default replay.

        :param subscription: its developer name, or the id of its record.
        :param topic: a topic of the Pub/Sub API. A missing subscription is created; its topic cannot be changed later.
        :param label: label in Salesforce's Setup; default for a new subscription: the developer name with spaces.
        :param default_replay: start without a committed replay ID. Default for a new subscription: ``"EARLIEST"``.
        :param error_recovery_replay: start after a committed replay ID that can no longer be read; the same values.
        :param confirm_position_loss: required for ``"stopped"``.
        :raises ConfigurationError: ``"stopped"`` without ``confirm_position_loss``; or it exists on another topic; or
            Salesforce does not accept or store a value.
        :raises TopicNotFoundError: if it does not exist or is hidden from this user, and ``topic`` is ``None``.
        """
        parsed = ManagedSubscription(subscription)
        topic_name = None if topic is None else Topic.parse(topic, "pubsub").name
        if state == "stopped":
            check_confirmed(confirm_position_loss, f"stopping managed event subscription {subscription}")
        settings = {
            "label": label,
            "default_replay": default_replay,
            "error_recovery_replay": error_recovery_replay,
            "state": _STATES[state],
        }
        declared = {setting: value for setting, value in settings.items() if value}
        with self.get_conn() as client:
            before = client.find(parsed)
            if before is None and topic_name is not None and parsed.developer_name is not None:
                name = parsed.developer_name
                try:
                    created = client.create(name, topic_name, **(_defaults(name) | declared))
                    check_stored(str(created), created.differences({"topic_name": topic_name, **declared}))
                    return ManagedEventSubscriptionChange(created, None)
                except AlreadyExistsError:
                    # Another client created it meanwhile, or this request did and its response was lost.
                    before = client.find(parsed)
                    if before is None:
                        raise
            before = before or client.get(parsed)
            _check_identity(before, parsed, topic_name)
            changes = {setting: value for setting, value in declared.items() if value != getattr(before, setting)}
            after = client.update(parsed, **changes) if changes else before
        if after.state == "STOP" != before.state:
            self.log.warning("Stopped %s on %s. %s", after, after.topic_name, _POSITION_LOST)
        check_stored(str(after), after.differences(changes))
        return ManagedEventSubscriptionChange(after, before)

    def delete(
        self, subscription: str, *, confirm_position_loss: bool = False
    ) -> ManagedEventSubscriptionRecord | None:
        """Delete the record and its **committed replay ID**. Return the former record; ``None`` if it does not exist or
        is hidden from this user.

        :raises ConfigurationError: without ``confirm_position_loss``. Nothing was contacted.
        """
        check_confirmed(confirm_position_loss, f"deleting managed event subscription {subscription}")
        parsed = ManagedSubscription(subscription)
        with self.get_conn() as client:
            record = client.delete(parsed)
        if record is not None:
            self.log.warning("Deleted %s on %s. %s", record, record.topic_name, _POSITION_LOST)
        return record

    def wait_until_visible(
        self, subscription: str, state: VisibleState = "running", *, timeout: float = VISIBILITY_TIMEOUT
    ) -> bool:
        """Wait until the Pub/Sub API has ``subscription`` in ``state``.

        It subscribes, commits nothing, and closes the stream. That occupies the subscription's only stream for a
        moment, so call it only right after a change, when there is no other consumer.

        - A refusal means that the change is not visible yet; an event or an empty response, that it is. Ten seconds
          without any of them end the wait for a running one too: a refusal is expected immediately.
        - One event at most is delivered, and again to the consumer. It counts towards the delivery allocation.
        - A connected consumer stays connected, and its presence also shows the change. A consumer that connects in that
          moment is refused. Salesforce frees it within 15 seconds, and a drain waits for that; if the network fails in
          that moment, it can take 15 minutes.

        :param timeout: seconds.
        :return: ``False`` if the wait ended without a response that shows the state.
        :raises ServiceUnavailableError: if the change is not visible within ``timeout``.
        """
        from airflow_provider_sfstream.hooks.salesforce_pubsub import pubsub_arguments
        from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient

        parsed = ManagedSubscription(subscription)
        self.log.info("Waiting until managed event subscription %s %s at the Pub/Sub API.", parsed.text, _SHOWN[state])
        with PubSubClient(self.token_provider(), **pubsub_arguments(self.settings())) as client:
            seen = wait_until_seen(client, parsed, state, timeout=timeout)
        self.log.info("Managed event subscription %s at the Pub/Sub API: it %s.", parsed.text, _SHOWN[seen])
        return seen is not None

    def test_connection(self) -> tuple[bool, str]:
        """Log in and read the managed event subscriptions. Return whether that works, and the failed part otherwise."""
        return self._run_test(self.get_conn, self._test_tooling)


_POSITION_LOST = (
    "Salesforce has discarded its committed replay ID: the next subscription begins at its default replay, which "
    "reads events again (EARLIEST) or skips those published until then (LATEST)."
)


def check_confirmed(confirm_position_loss: bool, doing: str) -> None:
    """Check that a change that discards a committed replay ID is confirmed."""
    if confirm_position_loss is not True:
        raise ConfigurationError(
            f"{doing[:1].upper()}{doing[1:]} discards its committed replay ID, the position of its consumer: events "
            "are then read again or skipped. Set confirm_position_loss=True if you accept this. Nothing was changed."
        )


def _defaults(developer_name: str) -> dict[str, Any]:
    label = developer_name.replace("_", " ")
    return {"label": label, "default_replay": "EARLIEST", "error_recovery_replay": "EARLIEST"}


def _check_identity(
    record: ManagedEventSubscriptionRecord, subscription: ManagedSubscription, topic_name: str | None
) -> None:
    """Check that a record is the expected one: its identifying fields cannot be changed."""
    # Salesforce ignores the letter case of a name, but a drain does not: to it, two spellings are two subscriptions.
    name = subscription.developer_name or record.developer_name
    if topic_name is not None and (record.topic_name, record.developer_name) != (topic_name, name):
        raise ConfigurationError(
            f"{record} on {record.topic_name} exists already, but {name} on {topic_name} was requested. Nothing was "
            "changed. Choose another developer name; or delete the existing subscription, which discards its committed "
            "replay ID, and create it again."
        )


def visible_state(client: PubSubClient, subscription: ManagedSubscription, *, silence: float = SILENCE) -> SeenState:
    """Return the state of ``subscription`` at the Pub/Sub API now, ``None`` without a response. Log in again once.

    Only the Pub/Sub API reports this state: to a subscriber it answers "not found" until it has applied the creation,
    and "stopped" until it has applied a start (Pub/Sub API guide, "Managed Event Subscriptions"). An active consumer is
    an answer too. A subscription is closed immediately and commits nothing: its events are delivered again.

    :param silence: seconds to wait for a response, before and after Salesforce has answered another request.
    """
    try:
        return _observe(client, subscription, silence)
    except SessionExpiredError:
        client.renew_session()
        return _observe(client, subscription, silence)


def _observe(client: PubSubClient, subscription: ManagedSubscription, silence: float) -> SeenState:
    try:
        with closing(client.managed_subscribe(subscription, limit=1, idle_timeout=silence)) as stream:
            if next(stream, None) is None:
                client.prove_contact(_STANDARD_CHANNEL)  # a refusal that was sent before has arrived by then
                if next(stream, None) is None:
                    return None
    except TopicNotFoundError:
        return "deleted"
    except SubscriptionStoppedError:
        return "stopped"
    except SubscriptionBusyError:
        return "running"
    return "running"


def wait_until_seen(
    client: PubSubClient,
    subscription: ManagedSubscription,
    expected: VisibleState,
    *,
    timeout: float,
    interval: float = INTERVAL,
    silence: float = SILENCE,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> SeenState:
    """Wait until ``subscription`` has the state ``expected`` at the Pub/Sub API. Retry after temporary errors.

    :param timeout: seconds within which the last attempt begins. ``silence``: see :func:`visible_state`.
    :return: ``expected``; ``None`` if a running one only did not refuse the subscriber.
    """
    deadline = now() + timeout
    while True:
        try:
            state = visible_state(client, subscription, silence=silence)
            if state == expected or (state is None and expected == "running"):
                return state
            last = f"the managed event subscription {_SHOWN[state]}"
        except ServiceUnavailableError as error:
            last = str(error)
        if now() + interval > deadline:
            raise ServiceUnavailableError(
                f"managed event subscription {subscription.text}: it was changed, but the Pub/Sub API did not apply "
                f"the change within {timeout:g} seconds ({last}). It usually does so after about two minutes. Run the "
                "task again: it does not repeat changes that are already applied."
            )
        sleep(interval)
