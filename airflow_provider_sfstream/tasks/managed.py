"""A drain on a managed event subscription."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.protocol.events import StartFrom
from airflow_provider_sfstream.protocol.managed import ManagedSubscription

if TYPE_CHECKING:
    from airflow_provider_sfstream.protocol.streams import RunIdentity
    from airflow_provider_sfstream.runs.incremental import WindowOutcome
    from airflow_provider_sfstream.tasks.preparation import Prepared

log = logging.getLogger(__name__)


def drain_managed(drain: Prepared, subscription: ManagedSubscription, run: RunIdentity) -> WindowOutcome:
    """Drain what Salesforce has for the managed subscription, land and record it, then commit it.

    :raises SalesforceStreamError: what was landed is not lost, whatever it says; see ``runs/managed.py``.
    """
    from airflow_provider_sfstream.reading.managed.source import ManagedSource
    from airflow_provider_sfstream.runs.incremental import WindowRequest
    from airflow_provider_sfstream.runs.managed import drain_managed_window, landed_but_uncommitted

    error_recovery = _error_recovery(drain, subscription)
    client: Any
    with drain.hook.get_conn() as client:
        is_landed = landed_but_uncommitted(drain.landed)
        with _closed(ManagedSource(client, subscription, is_landed=is_landed)) as source:
            return drain_managed_window(
                drain.landed,
                WindowRequest(
                    run=run,
                    limits=drain.arguments.limits,
                    start_from=StartFrom.COMMITTED,
                    on_invalid_replay=error_recovery,
                ),
                source=source,
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
        log.info("%s: the settings of the managed subscription cannot be read: %s", drain.landed.stream, error)
        return "latest"
    if record.topic_name != drain.landed.stream.topic:
        raise ConfigurationError(
            f"Managed event subscription {subscription} is one of {record.topic_name}, and this task drains "
            f"{drain.landed.stream.topic}. Correct the topic, or the subscription. Nothing was read or moved."
        )
    return record.error_recovery_replay.lower()


@contextmanager
def _closed(source: Any) -> Any:
    try:
        yield source
    finally:
        source.close()
