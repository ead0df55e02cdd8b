"""Incremental mode of the drain: the events after the recorded position, or those of a managed event subscription."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.drain.results import DrainResult
from airflow_provider_sfstream.exceptions import AccessDeniedError, ConfigurationError, TopicNotFoundError
from airflow_provider_sfstream.landing.documents import to_document
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription

if TYPE_CHECKING:
    from airflow_provider_sfstream.actions.drain.arguments import Drain
    from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome, WindowRequest
    from airflow_provider_sfstream.salesforce.rest.tooling import ManagedEventSubscriptionRecord
    from airflow_provider_sfstream.salesforce.streams import RunIdentity
    from airflow_provider_sfstream.streams.recovery import OnInvalidReplay

log = logging.getLogger(__name__)

_OF_MANIFEST = (
    *("window_id", "stream", "kind", "after", "through", "event_count", "payload_bytes"),
    *("first_event_time", "last_event_time", "stop_reason", "contact_at", "gap"),
)
"""Keys of the result that are attributes of the manifest."""


def drain_new_events(drain: Drain, run: RunIdentity) -> DrainResult:
    """Land and record the new events of a run, from its managed subscription if it names one."""
    from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, drain_window

    arguments = drain.arguments
    request = WindowRequest(
        run=run,
        limits=arguments.limits,
        start_from=drain.start_from,
        on_invalid_replay=arguments.policy or "fail",
        accept_quiet_aging=arguments.accept_quiet_aging,
        advance=arguments.advance == "automatic",
    )
    if arguments.managed_subscription is not None:
        return _result(_drain_managed(drain, ManagedSubscription(arguments.managed_subscription), request), drain)
    with drain.hook.get_conn() as client:
        return _result(drain_window(drain.landed, request, source=client), drain)


def _drain_managed(drain: Drain, subscription: ManagedSubscription, request: WindowRequest) -> WindowOutcome:
    """Land and record the events of a managed subscription, then commit them to Salesforce."""
    from airflow_provider_sfstream.replay_windows.managed_windows import drain_managed_window, landed_but_uncommitted
    from airflow_provider_sfstream.streams.managed.source import ManagedSource

    record = _subscription_record(drain, subscription)
    # Of a record that cannot be read, Salesforce's default.
    recovery: OnInvalidReplay = "earliest" if record and record.error_recovery_replay == "EARLIEST" else "latest"
    policy = drain.arguments.policy or recovery
    client: Any
    with drain.hook.get_conn() as client:
        is_landed = landed_but_uncommitted(drain.landed)
        managed = ManagedSource(client, subscription, is_landed=is_landed, is_topic_proven=record is not None)
        with closing(managed) as source:
            return drain_managed_window(
                drain.landed,
                replace(request, start_from=StartFrom.COMMITTED, on_invalid_replay=policy),
                source=source,
                subscription_id=None if record is None else record.id,
            )


def _subscription_record(drain: Drain, subscription: ManagedSubscription) -> ManagedEventSubscriptionRecord | None:
    """Return the record of the subscription, ``None`` if it cannot be read. Warn if it is another one than before."""
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
            f"Managed event subscription {subscription} belongs to {record.topic_name}, but this task drains "
            f"{stream.topic}. Correct the topic or the subscription. Nothing was read or moved."
        )
    last = CommittedWindows(stream, drain.landed.catalog).last()
    before = None if last is None else last.subscription_id
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


def _result(outcome: WindowOutcome, drain: Drain) -> DrainResult:
    """Log a window and return its result, for later tasks. It contains no event."""
    from airflow_provider_sfstream.landing.window_bounds import event_hours

    result = {
        "manifest_url": outcome.manifest.window.manifest_url,
        "landing_url": drain.landed.catalog.landing.url,
        "asset_uri": drain.arguments.stream_uri,
        **outcome.manifest.facts(*_OF_MANIFEST),
        "event_hours": event_hours(outcome.manifest.window),
        "confirmed_at": to_document(outcome.manifest.window.covered_until),
        "drained": outcome.drained,
        "committed": outcome.committed,
    }
    _log_window(result)
    empty = f"Window {result['window_id']} of {drain.arguments.topic} is empty: no new event was received."
    return DrainResult(result, [outcome.manifest], [outcome.manifest], drain.landed.catalog, empty)


def _log_window(result: Mapping[str, Any]) -> None:
    log.info(
        "Window %s of %s: %d events, %d payload bytes, stopped because %s, position %s -> %s (%s). Manifest: %s",
        result["window_id"],
        result["stream"]["topic"],
        result["event_count"],
        result["payload_bytes"],
        result["stop_reason"],
        result["after"],
        result["through"],
        "recorded" if result["committed"] else "not recorded yet",
        result["manifest_url"],
    )
    if result["gap"]:
        lost = "Events were lost before this window"
        if result["gap"]["uncertain"]:
            lost = "Possible loss before this window, nothing is known to be lost"
        log.warning("%s: %s", lost, result["gap"])
