"""Create, change, start, stop and delete managed event subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from airflow.sdk import Context

from airflow_provider_sfstream.actions.arguments import is_template
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.retries import RetriedOperator
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.managed_event_subscription import (
    VISIBILITY_TIMEOUT,
    ManagedEventSubscriptionHook,
    check_confirmed,
)
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.topics import Topic

REPLAY_PRESETS = ("LATEST", "EARLIEST")


class ManagedEventSubscriptionOperator(RetriedOperator):
    """Create, update, start or stop a managed event subscription: a position on a topic that Salesforce stores.

    Safe to retry and to clear. A change of label and replay settings does not change its committed replay ID. **When it
    is stopped, Salesforce permanently discards that replay ID**: its open stream ends, no client can subscribe, and
    after a start it begins at its default replay. Landed windows and their records do not change.

    The XCom result is a dict: ``id``, ``developer_name``, ``label``, ``topic_name``, ``default_replay``,
    ``error_recovery_replay``, ``state`` (``RUN`` or ``STOP``), ``version`` and ``changed`` (false without a change).

    :param managed_subscription: developer name: at most 80 letters, digits and single underscores, beginning with a
        letter, unique in the org; or the id of an existing record (from ``18x`` on). (templated)
    :param state: ``"running"``, or ``"stopped"``.
    :param topic: ``/event/Order__e``, ``/data/AccountChangeEvent``, ``/data/ChangeEvents`` or a channel. A missing
        subscription is created; an existing one on another topic fails the task, because Salesforce cannot change a
        topic. ``None``: the subscription must exist. (templated)
    :param subscription_label: label in Salesforce's Setup. ``None``: unchanged; for a new subscription the developer
        name with spaces. (templated)
    :param default_replay: begin without a committed replay ID: ``"EARLIEST"`` (the oldest retained event) or
        ``"LATEST"``, which skips events that are published without a subscriber. ``None``: unchanged; for a new
        subscription ``"EARLIEST"``, although Salesforce's own default is ``LATEST``.
    :param error_recovery_replay: begin after a committed replay ID that can no longer be read: the same values.
    :param confirm_position_loss: must be ``True`` with ``state="stopped"``: you accept that the position is lost.
    :param wait_until_visible: after it was created, started or stopped, wait until the Pub/Sub API shows the change,
        which takes up to about two minutes. For a running one without events, it is enough that a subscriber is not
        refused within ten seconds; the log then has that its state is not shown.
    :param visibility_timeout: seconds to wait for that; then the task fails and may be retried.
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :raises ConfigurationError: at construction, if an argument cannot be used, or a stop is not confirmed; in the run,
        if Salesforce does not accept or store a value.
    """

    template_fields: Sequence[str] = ("managed_subscription", "topic", "subscription_label", "salesforce_conn_id")
    ui_color = "#e6f0d8"

    def __init__(
        self,
        *,
        managed_subscription: str,
        state: Literal["running", "stopped"] = "running",
        topic: str | None = None,
        subscription_label: str | None = None,
        default_replay: Literal["LATEST", "EARLIEST"] | None = None,
        error_recovery_replay: Literal["LATEST", "EARLIEST"] | None = None,
        confirm_position_loss: bool = False,
        wait_until_visible: bool = True,
        visibility_timeout: float = VISIBILITY_TIMEOUT,
        salesforce_conn_id: str = "salesforce_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.managed_subscription = managed_subscription
        self.state = state
        self.topic = topic
        self.subscription_label = subscription_label
        self.default_replay = default_replay
        self.error_recovery_replay = error_recovery_replay
        self.confirm_position_loss = confirm_position_loss
        self.wait_until_visible = wait_until_visible
        self.visibility_timeout = visibility_timeout
        self.salesforce_conn_id = salesforce_conn_id
        check_choice("state", state, ("running", "stopped"))
        for name, preset in (("default_replay", default_replay), ("error_recovery_replay", error_recovery_replay)):
            if preset is not None:
                check_choice(name, preset, REPLAY_PRESETS)
        if state == "stopped":
            check_confirmed(confirm_position_loss, f"stopping managed event subscription {managed_subscription}")
        _check(managed_subscription, visibility_timeout)
        if topic is not None and not is_template(topic):
            Topic.parse(topic, "pubsub")

    def execute(self, context: Context) -> dict[str, Any]:
        """Apply the declared settings; return the settings."""
        hook = ManagedEventSubscriptionHook(self.salesforce_conn_id)
        with airflow_errors(self):
            change = hook.ensure(
                self.managed_subscription,
                self.state,
                topic=self.topic,
                label=self.subscription_label or None,
                default_replay=self.default_replay,
                error_recovery_replay=self.error_recovery_replay,
                confirm_position_loss=self.confirm_position_loss,
            )
            self.log.info("%s.", change)
            if self.wait_until_visible and _may_be_unseen(change.is_of_state, context):
                hook.wait_until_visible(change.record.id, self.state, timeout=self.visibility_timeout)
        return {**change.record.as_dict(), "changed": change.changed}


class DeleteManagedEventSubscriptionOperator(RetriedOperator):
    """Delete a managed event subscription. **Salesforce permanently discards its committed replay ID.**

    Its open stream ends. Landed windows and their records do not change.

    Safe to retry and to clear: it succeeds if the subscription does not exist, or is hidden from the connection's user.

    The XCom result is a dict: ``managed_subscription`` (as given), ``id``, ``developer_name`` and ``topic_name`` of
    the deleted subscription, ``None`` if none was found, and ``changed`` (whether this try deleted it).

    :param managed_subscription: developer name, or id of the record (from ``18x`` on). (templated)
    :param confirm_position_loss: must be ``True``: you accept that the position is lost.
    :param wait_until_visible: after a deletion succeed only once the Pub/Sub API has it, which takes up to about two
        minutes.
    :param visibility_timeout: seconds to wait for that; then the task fails and may be retried.
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :raises ConfigurationError: at construction, without ``confirm_position_loss=True``, or if an argument cannot be
        used.
    """

    template_fields: Sequence[str] = ("managed_subscription", "salesforce_conn_id")
    ui_color = "#f8e5d8"

    def __init__(
        self,
        *,
        managed_subscription: str,
        confirm_position_loss: bool = False,
        wait_until_visible: bool = False,
        visibility_timeout: float = VISIBILITY_TIMEOUT,
        salesforce_conn_id: str = "salesforce_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.managed_subscription = managed_subscription
        self.confirm_position_loss = confirm_position_loss
        self.wait_until_visible = wait_until_visible
        self.visibility_timeout = visibility_timeout
        self.salesforce_conn_id = salesforce_conn_id
        check_confirmed(confirm_position_loss, f"deleting managed event subscription {managed_subscription}")
        _check(managed_subscription, visibility_timeout)

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the subscription; return its former settings."""
        hook = ManagedEventSubscriptionHook(self.salesforce_conn_id)
        with airflow_errors(self):
            record = hook.delete(self.managed_subscription, confirm_position_loss=self.confirm_position_loss)
            if record is None:
                text = "Managed event subscription %s was not found: it does not exist, or is hidden from this user."
                self.log.info(text, self.managed_subscription)
            if self.wait_until_visible and _may_be_unseen(record is not None, context):
                seen_as = record.id if record is not None else self.managed_subscription
                hook.wait_until_visible(seen_as, "deleted", timeout=self.visibility_timeout)
        return {
            "managed_subscription": self.managed_subscription,
            **{name: getattr(record, name, None) for name in ("id", "developer_name", "topic_name")},
            "changed": record is not None,
        }


def _may_be_unseen(changed: bool, context: Context) -> bool:
    """Return whether the Pub/Sub API may lack a change of this try, or of an earlier one of the same run."""
    task_instance: Any = context["ti"]
    return changed or task_instance.try_number > 1


def _check(managed_subscription: str, visibility_timeout: float) -> None:
    if not is_template(managed_subscription):
        ManagedSubscription(managed_subscription)
    if not visibility_timeout > 0:
        raise ConfigurationError(f"visibility_timeout={visibility_timeout!r} must be a number of seconds above 0.")
