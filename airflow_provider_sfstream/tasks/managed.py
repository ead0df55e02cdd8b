"""A drain on a managed event subscription: which arguments go with it, and how it is carried out."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.protocol.events import StartFrom
from airflow_provider_sfstream.protocol.managed import ManagedSubscription

if TYPE_CHECKING:
    from airflow_provider_sfstream.drain.limits import DrainLimits
    from airflow_provider_sfstream.protocol.streams import RunIdentity
    from airflow_provider_sfstream.runs.incremental import WindowOutcome
    from airflow_provider_sfstream.tasks.preparation import Prepared

log = logging.getLogger(__name__)

_UNUSED = {
    "start_from": ("earliest", "the subscription's defaultReplay says where it begins"),
    "on_invalid_replay": ("fail", "the subscription's errorRecoveryReplay says where it goes on; the gap is recorded"),
    "mode": ("incremental", "Salesforce keeps one position. Backfills of this DAG are intervals all the same"),
    "advance": ("automatic", "Salesforce is told of a window by the task that drained it"),
}


def check_managed_arguments(operator: Any, subscription: str) -> None:
    """Refuse what makes no sense with a managed subscription, when the DAG is parsed.

    :raises ConfigurationError: naming the argument.
    """
    for name, (default, why) in _UNUSED.items():
        if getattr(operator, name) != default:
            raise ConfigurationError(f"{name}={getattr(operator, name)!r} goes with no managed_subscription: {why}.")
    if subscription != "airflow":
        raise ConfigurationError("Give subscription or managed_subscription, not both: either names the consumer.")
    if operator.api == "streaming":
        raise ConfigurationError("Managed event subscriptions are on the Pub/Sub API only: leave out api='streaming'.")
    if "{{" not in operator.managed_subscription:
        ManagedSubscription.parse(operator.managed_subscription)


def bounded(limits: DrainLimits) -> DrainLimits:
    """Return ``limits`` that end before Salesforce ends a stream on which nothing is committed."""
    from airflow_provider_sfstream.runs.managed import LONGEST_DRAIN

    seconds = LONGEST_DRAIN if limits.max_seconds is None else min(LONGEST_DRAIN, limits.max_seconds)
    return replace(limits, max_seconds=seconds)


def drain_managed(drain: Prepared, name: str, run: RunIdentity) -> WindowOutcome:
    """Drain what Salesforce has for the managed subscription, land and record it, then commit it.

    :raises SalesforceStreamError: what was landed is not lost, whatever it says; see ``windows/managed.py``.
    """
    from airflow_provider_sfstream.clients.managed.source import ManagedSource
    from airflow_provider_sfstream.runs.incremental import WindowRequest
    from airflow_provider_sfstream.runs.managed import drain_managed_window, landed_but_uncommitted

    subscription = ManagedSubscription.parse(name)
    error_recovery = _error_recovery(drain, subscription)
    client: Any
    with drain.hook.get_conn() as client:
        is_landed = landed_but_uncommitted(drain.stream, drain.store, drain.catalog)
        with _closed(ManagedSource(client, subscription, is_landed=is_landed)) as source:
            return drain_managed_window(
                WindowRequest(
                    stream=drain.stream,
                    run=run,
                    limits=drain.limits,
                    start_from=StartFrom.COMMITTED,
                    on_invalid_replay=error_recovery,
                ),
                source=source,
                store=drain.store,
                catalog=drain.catalog,
            )


def _error_recovery(drain: Prepared, subscription: ManagedSubscription) -> Any:
    """Return where the subscription goes on when its position can no longer be read, as ``on_invalid_replay`` says it.

    :raises ConfigurationError: if the subscription is one of another topic.
    """
    from airflow_provider_sfstream.hooks.managed_event_subscription import ManagedEventSubscriptionHook

    try:
        record = ManagedEventSubscriptionHook(drain.hook.salesforce_conn_id).get(subscription.text)
    except (AccessDeniedError, TopicNotFoundError, ConfigurationError) as error:
        # Reading it takes a permission that draining does not.
        log.info("%s: the settings of the managed subscription cannot be read: %s", drain.stream, error)
        return "latest"
    if record.topic_name != drain.stream.topic:
        raise ConfigurationError(
            f"Managed event subscription {subscription} is one of {record.topic_name}, and this task drains "
            f"{drain.stream.topic}. Correct the topic, or the subscription. Nothing was read or moved."
        )
    return record.error_recovery_replay.lower()


@contextmanager
def _closed(source: Any) -> Any:
    try:
        yield source
    finally:
        source.close()
