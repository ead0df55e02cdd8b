"""Incremental mode of the drain: the events after the recorded position, or those of a managed event subscription."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.parts import warn_of_other_writers
from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.managed_subscription import ManagedSubscription

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from airflow_provider_sfstream.actions.drain.preparation import Prepared
    from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome
    from airflow_provider_sfstream.salesforce.rest.tooling import ManagedEventSubscriptionRecord
    from airflow_provider_sfstream.salesforce.streams import RunIdentity
    from airflow_provider_sfstream.streams.recovery import OnInvalidReplay

log = logging.getLogger(__name__)


def drain_new_events(operator: BaseOperator, drain: Prepared, run: RunIdentity) -> WindowOutcome:
    """Land and record the new events of a run, from its managed subscription if it names one.

    :raises SalesforceStreamError: if the drain fails. Events that are landed are not lost.
    """
    from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, drain_window

    arguments = drain.arguments
    if arguments.managed_subscription is not None:
        return _drain_managed(drain, ManagedSubscription.parse(arguments.managed_subscription), run)
    warn_of_other_writers(drain.landed, operator, run)
    with drain.hook.get_conn() as client:
        return drain_window(
            drain.landed,
            WindowRequest(
                run=run,
                limits=arguments.limits,
                start_from=drain.start_from,
                on_invalid_replay=arguments.on_invalid_replay or "fail",
                accept_quiet_aging=arguments.accept_quiet_aging,
                advance=arguments.advance == "automatic",
            ),
            source=client,
        )


def _drain_managed(drain: Prepared, subscription: ManagedSubscription, run: RunIdentity) -> WindowOutcome:
    """Land and record the events of a managed subscription, then commit them to Salesforce."""
    from airflow_provider_sfstream.replay_windows.incremental import WindowRequest
    from airflow_provider_sfstream.replay_windows.managed_windows import drain_managed_window, landed_but_uncommitted
    from airflow_provider_sfstream.streams.managed.source import ManagedSource

    record = _subscription_record(drain, subscription)
    client: Any
    with drain.hook.get_conn() as client:
        is_landed = landed_but_uncommitted(drain.landed)
        with closing(
            ManagedSource(client, subscription, is_landed=is_landed, is_topic_proven=record is not None)
        ) as source:
            return drain_managed_window(
                drain.landed,
                WindowRequest(
                    run=run,
                    limits=drain.arguments.limits,
                    start_from=StartFrom.COMMITTED,
                    on_invalid_replay=drain.arguments.on_invalid_replay or _policy_for_lost_position(record),
                ),
                source=source,
                subscription_id=None if record is None else record.id,
            )


def _subscription_record(drain: Prepared, subscription: ManagedSubscription) -> ManagedEventSubscriptionRecord | None:
    """Return the record of the subscription, ``None`` if it cannot be read. Warn if it is another one than before.

    :raises ConfigurationError: if the subscription is one of another topic.
    """
    from airflow_provider_sfstream.hooks.managed_event_subscription import ManagedEventSubscriptionHook
    from airflow_provider_sfstream.replay_windows.managed_windows import CommittedWindows

    stream = drain.landed.stream
    try:
        record = ManagedEventSubscriptionHook(drain.hook.salesforce_conn_id).get(subscription.text)
    except (AccessDeniedError, TopicNotFoundError, ConfigurationError) as error:
        # Reading it takes a permission that draining does not.
        log.info("%s: the settings of the managed subscription cannot be read: %s", stream, error)
        return None
    if record.topic_name != stream.topic:
        raise ConfigurationError(
            f"Managed event subscription {subscription} is one of {record.topic_name}, and this task drains "
            f"{stream.topic}. Correct the topic, or the subscription. Nothing was read or moved."
        )
    before = CommittedWindows(stream, drain.landed.catalog).subscription_id()
    if before not in (None, record.id):
        log.warning(
            "%s: managed event subscription %s was deleted and recreated: its record is %s, and was %s. Salesforce "
            "discarded its position. Nothing is lost: the drain continues after the recorded position of the stream.",
            stream,
            subscription,
            record.id,
            before,
        )
    return record


def _policy_for_lost_position(record: ManagedEventSubscriptionRecord | None) -> OnInvalidReplay:
    """Return the policy for a lost position that the record's ``errorRecoveryReplay`` stands for.

    Without a record, the drain continues where Salesforce does, which is the meaning of "latest" here.
    """
    return "earliest" if record is not None and record.error_recovery_replay == "EARLIEST" else "latest"
