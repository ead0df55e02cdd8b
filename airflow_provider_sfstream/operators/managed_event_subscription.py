"""Create, change, start, stop and delete managed event subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.managed_event_subscription import (
    VISIBILITY_TIMEOUT,
    ManagedEventSubscriptionChange,
    ManagedEventSubscriptionHook,
    check_confirmed,
    check_developer_name,
)
from airflow_provider_sfstream.protocol.managed import ManagedSubscription
from airflow_provider_sfstream.protocol.topics import Topic
from airflow_provider_sfstream.tasks.parts import airflow_errors, check_choice

if TYPE_CHECKING:
    from airflow.sdk import Context

REPLAY_PRESETS = ("LATEST", "EARLIEST")
STATES = ("RUN", "STOP")


class CreateManagedEventSubscriptionOperator(BaseOperator):
    """Create a managed event subscription: a place on a topic that Salesforce itself keeps.

    Safe to retry and to clear: one that exists with these settings is left as it is, and one with other settings fails
    the task, naming the differences. Nothing is ever changed.

    The XCom result is a dict: ``id``, ``developer_name``, ``label``, ``topic_name``, ``default_replay``,
    ``error_recovery_replay``, ``state``, ``version`` and ``changed`` (false when it existed).

    :param developer_name: the name it is known by: letters, digits and underscores, beginning with a letter, unique in
        the org. (templated)
    :param topic: ``/event/Order__e``, ``/data/AccountChangeEvent``, ``/data/ChangeEvents`` or a channel. It cannot be
        changed later. (templated)
    :param subscription_label: for people. ``None``: the developer name with spaces, and any label of one that exists is
        right. (templated)
    :param default_replay: where it begins while nothing has been committed: ``"EARLIEST"`` (all that Salesforce still
        has) or ``"LATEST"``, Salesforce's own default, which skips what is published while nobody is subscribed.
    :param error_recovery_replay: where it goes on when the committed replay ID can no longer be read: the same choices.
    :param state: ``"RUN"``; ``"STOP"`` creates one that nobody can subscribe to yet.
    :param wait_until_visible: succeed only once the Pub/Sub API sees it, up to about two minutes after it was created.
    :param visibility_timeout: seconds to wait for that; then the task fails and may be retried.
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :raises ConfigurationError: at construction, if an argument cannot be used.
    """

    template_fields: Sequence[str] = ("developer_name", "topic", "subscription_label", "salesforce_conn_id")
    ui_color = "#e6f0d8"

    def __init__(
        self,
        *,
        developer_name: str,
        topic: str,
        subscription_label: str | None = None,
        default_replay: Literal["LATEST", "EARLIEST"] = "EARLIEST",
        error_recovery_replay: Literal["LATEST", "EARLIEST"] = "EARLIEST",
        state: Literal["RUN", "STOP"] = "RUN",
        wait_until_visible: bool = True,
        visibility_timeout: float = VISIBILITY_TIMEOUT,
        salesforce_conn_id: str = "salesforce_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.developer_name = developer_name
        self.topic = topic
        self.subscription_label = subscription_label
        self.default_replay = default_replay
        self.error_recovery_replay = error_recovery_replay
        self.state = state
        self.wait_until_visible = wait_until_visible
        self.visibility_timeout = visibility_timeout
        self.salesforce_conn_id = salesforce_conn_id
        check_choice("default_replay", default_replay, REPLAY_PRESETS)
        check_choice("error_recovery_replay", error_recovery_replay, REPLAY_PRESETS)
        check_choice("state", state, STATES)
        _check_timeout(visibility_timeout)
        if _is_known(developer_name):
            check_developer_name(developer_name)
        if _is_known(topic):
            Topic.parse(topic, "pubsub")

    def execute(self, context: Context) -> dict[str, Any]:
        """Create it, or find it as it is to be; return its settings."""
        hook = ManagedEventSubscriptionHook(self.salesforce_conn_id)
        with airflow_errors():
            change = hook.create(
                self.developer_name,
                self.topic,
                label=self.subscription_label or None,
                default_replay=self.default_replay,
                error_recovery_replay=self.error_recovery_replay,
                state=self.state,
            )
            self.log.info("%s: %s.", change.record, "created" if change.changed else "exists with these settings")
            if self.wait_until_visible and _may_be_unseen(change.changed, context):
                hook.wait_until_visible(change.record.id, self.state, timeout=self.visibility_timeout)
        return _result(change)


class UpdateManagedEventSubscriptionOperator(BaseOperator):
    """Change label or replay settings of a managed event subscription. Its committed replay ID stays.

    Safe to retry and to clear: one that is as it is to be is left alone. Topic and developer name cannot be changed,
    and the state has operators of its own. Does not wait: nothing shows when the Pub/Sub API has seen these settings,
    which takes up to about two minutes.

    The XCom result is that of :class:`CreateManagedEventSubscriptionOperator`.

    :param managed_subscription: developer name, or id of the record (from ``18x`` on). (templated)
    :param subscription_label: the new label. ``None``: as it is. (templated)
    :param default_replay: ``"LATEST"`` or ``"EARLIEST"``. ``None``: as it is.
    :param error_recovery_replay: ``"LATEST"`` or ``"EARLIEST"``. ``None``: as it is.
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :raises ConfigurationError: at construction, if an argument cannot be used, or nothing is to be changed.
    """

    template_fields: Sequence[str] = ("managed_subscription", "subscription_label", "salesforce_conn_id")
    ui_color = "#e6f0d8"

    def __init__(
        self,
        *,
        managed_subscription: str,
        subscription_label: str | None = None,
        default_replay: Literal["LATEST", "EARLIEST"] | None = None,
        error_recovery_replay: Literal["LATEST", "EARLIEST"] | None = None,
        salesforce_conn_id: str = "salesforce_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.managed_subscription = managed_subscription
        self.subscription_label = subscription_label
        self.default_replay = default_replay
        self.error_recovery_replay = error_recovery_replay
        self.salesforce_conn_id = salesforce_conn_id
        _check_subscription(managed_subscription)
        presets = {"default_replay": default_replay, "error_recovery_replay": error_recovery_replay}
        for name, preset in presets.items():
            if preset is not None:
                check_choice(name, preset, REPLAY_PRESETS)
        if subscription_label is None and not any(presets.values()):
            raise ConfigurationError(
                "Nothing is to be changed: give subscription_label, default_replay or error_recovery_replay."
            )

    def execute(self, context: Context) -> dict[str, Any]:
        """Change it; return its settings."""
        with airflow_errors():
            change = ManagedEventSubscriptionHook(self.salesforce_conn_id).update(
                self.managed_subscription,
                label=self.subscription_label or None,
                default_replay=self.default_replay,
                error_recovery_replay=self.error_recovery_replay,
            )
        self.log.info("%s: %s.", change.record, "changed" if change.changed else "is as it is to be")
        return _result(change)


class _StateOperator(BaseOperator):
    """What the operators share that bring a managed event subscription into a state.

    Their arguments are described there.
    """

    template_fields: Sequence[str] = ("managed_subscription", "salesforce_conn_id")

    def __init__(
        self,
        *,
        managed_subscription: str,
        wait_until_visible: bool,
        visibility_timeout: float,
        salesforce_conn_id: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.managed_subscription = managed_subscription
        self.wait_until_visible = wait_until_visible
        self.visibility_timeout = visibility_timeout
        self.salesforce_conn_id = salesforce_conn_id
        _check_subscription(managed_subscription)
        _check_timeout(visibility_timeout)


class StartManagedEventSubscriptionOperator(_StateOperator):
    """Set a managed event subscription to RUN, so that it can be subscribed to.

    Safe to retry and to clear: one that runs is left alone. One that was stopped begins at its default replay, because
    stopping discarded its committed replay ID.

    The XCom result is that of :class:`CreateManagedEventSubscriptionOperator`.

    :param managed_subscription: developer name, or id of the record (from ``18x`` on). (templated)
    :param wait_until_visible: succeed only once the Pub/Sub API sees it, up to about two minutes later.
    :param visibility_timeout: seconds to wait for that; then the task fails and may be retried.
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :raises ConfigurationError: at construction, if an argument cannot be used.
    """

    ui_color = "#e6f0d8"

    def __init__(
        self,
        *,
        managed_subscription: str,
        wait_until_visible: bool = True,
        visibility_timeout: float = VISIBILITY_TIMEOUT,
        salesforce_conn_id: str = "salesforce_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            managed_subscription=managed_subscription,
            wait_until_visible=wait_until_visible,
            visibility_timeout=visibility_timeout,
            salesforce_conn_id=salesforce_conn_id,
            **kwargs,
        )

    def execute(self, context: Context) -> dict[str, Any]:
        """Start it; return its settings."""
        hook = ManagedEventSubscriptionHook(self.salesforce_conn_id)
        with airflow_errors():
            change = hook.start(self.managed_subscription)
            self.log.info("%s: %s.", change.record, "started" if change.changed else "is running already")
            if self.wait_until_visible and _may_be_unseen(change.changed, context):
                hook.wait_until_visible(change.record.id, "RUN", timeout=self.visibility_timeout)
        return _result(change)


class StopManagedEventSubscriptionOperator(_StateOperator):
    """Set a managed event subscription to STOP. **Salesforce discards its committed replay ID**, for good.

    Its open stream ends, and nobody can subscribe until it is started; it then begins at its default replay. Windows
    that were landed stay, and so do their records.

    Safe to retry and to clear: one that is stopped is left alone.

    The XCom result is that of :class:`CreateManagedEventSubscriptionOperator`.

    :param managed_subscription: developer name, or id of the record (from ``18x`` on). (templated)
    :param confirm_position_loss: must be ``True``: you know that the position is lost.
    :param wait_until_visible: succeed only once the Pub/Sub API sees it, up to about two minutes later.
    :param visibility_timeout: seconds to wait for that; then the task fails and may be retried.
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :raises ConfigurationError: at construction, without ``confirm_position_loss=True``, or if an argument cannot be
        used.
    """

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
        super().__init__(
            managed_subscription=managed_subscription,
            wait_until_visible=wait_until_visible,
            visibility_timeout=visibility_timeout,
            salesforce_conn_id=salesforce_conn_id,
            **kwargs,
        )
        self.confirm_position_loss = confirm_position_loss
        check_confirmed(confirm_position_loss, f"stopping managed event subscription {managed_subscription}")

    def execute(self, context: Context) -> dict[str, Any]:
        """Stop it; return its settings."""
        hook = ManagedEventSubscriptionHook(self.salesforce_conn_id)
        with airflow_errors():
            change = hook.stop(self.managed_subscription, confirm_position_loss=self.confirm_position_loss)
            if not change.changed:
                self.log.info("%s: is stopped already.", change.record)
            if self.wait_until_visible and _may_be_unseen(change.changed, context):
                hook.wait_until_visible(change.record.id, "STOP", timeout=self.visibility_timeout)
        return _result(change)


class DeleteManagedEventSubscriptionOperator(_StateOperator):
    """Delete a managed event subscription. **Salesforce discards its committed replay ID**, for good.

    Its open stream ends. Windows that were landed stay, and so do their records.

    Safe to retry and to clear: it succeeds where there is none (any more).

    The XCom result is a dict: ``managed_subscription`` (as given), ``id``, ``developer_name`` and ``topic_name`` of
    what was deleted, ``None`` where there was none, and ``changed`` (whether it was deleted now).

    :param managed_subscription: developer name, or id of the record (from ``18x`` on). (templated)
    :param confirm_position_loss: must be ``True``: you know that the position is lost.
    :param wait_until_visible: succeed only once the Pub/Sub API sees it, up to about two minutes later.
    :param visibility_timeout: seconds to wait for that; then the task fails and may be retried.
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :raises ConfigurationError: at construction, without ``confirm_position_loss=True``, or if an argument cannot be
        used.
    """

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
        super().__init__(
            managed_subscription=managed_subscription,
            wait_until_visible=wait_until_visible,
            visibility_timeout=visibility_timeout,
            salesforce_conn_id=salesforce_conn_id,
            **kwargs,
        )
        self.confirm_position_loss = confirm_position_loss
        check_confirmed(confirm_position_loss, f"deleting managed event subscription {managed_subscription}")

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete it; return what it was."""
        hook = ManagedEventSubscriptionHook(self.salesforce_conn_id)
        with airflow_errors():
            record = hook.delete(self.managed_subscription, confirm_position_loss=self.confirm_position_loss)
            if record is None:
                self.log.info("There is no managed event subscription %s.", self.managed_subscription)
            if self.wait_until_visible and _may_be_unseen(record is not None, context):
                seen_as = record.id if record is not None else self.managed_subscription
                hook.wait_until_visible(seen_as, "DELETED", timeout=self.visibility_timeout)
        return {
            "managed_subscription": self.managed_subscription,
            **{name: getattr(record, name, None) for name in ("id", "developer_name", "topic_name")},
            "changed": record is not None,
        }


def _may_be_unseen(changed: bool, context: Context) -> bool:
    """Return whether this try, or an earlier one of the same run, changed what the Pub/Sub API may not have seen."""
    task_instance: Any = context["ti"]
    return changed or task_instance.try_number > 1


def _result(change: ManagedEventSubscriptionChange) -> dict[str, Any]:
    return {**change.record.as_dict(), "changed": change.changed}


def _is_known(value: Any) -> bool:
    """Return whether a value is known when the DAG is parsed: no template, no result of another task."""
    return isinstance(value, str) and "{{" not in value and "{%" not in value


def _check_subscription(text: str) -> None:
    if _is_known(text):
        ManagedSubscription.parse(text)


def _check_timeout(timeout: float) -> None:
    if not timeout > 0:
        raise ConfigurationError(f"visibility_timeout={timeout!r} must be a number of seconds above 0.")
