"""Interval mode of the drain: the windows that hold the interval of a run."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.drain.results import DrainResult
from airflow_provider_sfstream.actions.drain.waiting import defer_until_confirmed
from airflow_provider_sfstream.actions.task_runs import is_backfill, run_identity
from airflow_provider_sfstream.hooks.salesforce_allocations import delivery_allocation
from airflow_provider_sfstream.landing.documents import to_document

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.actions.drain.arguments import Drain
    from airflow_provider_sfstream.replay_windows.interval import IntervalOutcome, IntervalWindow
    from airflow_provider_sfstream.salesforce.streams import Span, Stream
    from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd

log = logging.getLogger(__name__)

_OF_MANIFEST = ("window_id", "kind", "event_count", "first_event_time", "last_event_time", "counts_from")
"""Keys of a window in the result that are attributes of its manifest."""


def drain_run_interval(
    drain: Drain,
    interval: Span,
    context: Context,
    *,
    confirmed_end: ConfirmedEnd | None,
    give_up_at: datetime | None,
) -> DrainResult:
    """Return the windows that have the interval of a run; drain missing parts, if the reserve allows it.

    :param confirmed_end: end of the stream that a trigger confirmed.
    :param give_up_at: when to stop deferring for a confirmed end of the stream; ``None``: the wait has not begun.
    :raises SalesforceStreamError: if the drain fails. Events that are landed are not lost.
    """
    from airflow_provider_sfstream.replay_windows.interval import IntervalRequest, drain_interval
    from airflow_provider_sfstream.streams.drain.limits import DrainLimits

    arguments, backfill = drain.arguments, is_backfill(context)
    may_defer = arguments.wait_for_confirmation and arguments.deferrable and arguments.reuses and not backfill
    # A stream without a position has no end to wait for.
    defers = may_defer and drain.landed.position().replay_id is not None
    waits = arguments.wait_for_confirmation and not defers
    if backfill and arguments.incremental_limits:
        log.info("Backfill of %s: %s are not applied.", interval, ", ".join(arguments.incremental_limits))

    def admit(least_events: int) -> None:
        # Without the brackets of a span, whose odd parenthesis would hide where the sentence ends.
        span = f"{interval.start.isoformat()} to {interval.end.isoformat()}"
        arguments.reserve.check(
            arguments.salesforce_conn_id,
            allocation=delivery_allocation(arguments.topic),
            least=least_events,
            what=f"{drain.landed.stream}: {span} is not drained",
        )

    outcome = drain_interval(
        drain.landed,
        IntervalRequest(
            run=run_identity(context),
            interval=interval,
            backfill=backfill,
            limits=DrainLimits(idle_timeout=arguments.longest_idle, wait_for_confirmation=waits),
            start_from=drain.start_from,
            on_invalid_replay=arguments.policy or "fail",
            accept_quiet_aging=arguments.accept_quiet_aging,
            on_expired=arguments.on_expired,
            reuse=arguments.reuses,
            confirmed_end=confirmed_end,
        ),
        open_source=drain.hook.get_conn,
        admit=admit if arguments.reserve else None,
    )
    _log_interval(outcome, drain.landed.stream)
    if defers and outcome.confirmed_at is None:
        defer_until_confirmed(drain, give_up_at)
    return _result(outcome, drain)


def _result(outcome: IntervalOutcome, drain: Drain) -> DrainResult:
    """Return the result of an interval, for later tasks. It contains no event."""
    document = {
        "mode": "interval",
        "stream": dict(vars(drain.landed.stream)),
        "landing_url": drain.landed.catalog.landing.url,
        "asset_uri": drain.arguments.stream_uri,
        "event_time_from": outcome.interval.start.isoformat(),
        "event_time_to": outcome.interval.end.isoformat(),
        "windows": [_window(window) for window in outcome.windows],
        "event_count": sum(window.manifest.window.event_count for window in outcome.windows),
        "event_hours": _event_hours(outcome),
        "confirmed_at": to_document(outcome.confirmed_at),
        "missing": [{"from": span.start.isoformat(), "to": span.end.isoformat()} for span in outcome.missing],
        "drained": outcome.drained,
    }
    windows = [window.manifest for window in outcome.windows]
    empty = f"The windows of {drain.arguments.topic} for {outcome.interval} have no events."
    return DrainResult(document, windows, list(outcome.own), drain.landed.catalog, empty)


def _event_hours(outcome: IntervalOutcome) -> list[str]:
    """Return the hours of the interval's events in its windows, and of the late events that the run landed."""
    from airflow_provider_sfstream.landing.window_bounds import event_hours, hour_key

    begin = hour_key(outcome.interval.start.replace(minute=0, second=0, microsecond=0))
    end = hour_key(outcome.interval.end)
    hours: set[str] = set()
    for window in outcome.windows:
        late_before = window.manifest.late_before if _is_own(window) else None
        late = "" if late_before is None else hour_key(late_before)
        hours.update(hour for hour in event_hours(window.manifest.window) if begin <= hour < end or hour < late)
    return sorted(hours)


def _log_interval(outcome: IntervalOutcome, stream: Stream) -> None:
    interval, origins = outcome.interval, [window.origin for window in outcome.windows]
    counts = len(origins), origins.count("landed"), origins.count("bus")
    log.info("Interval %s of %s is in %d windows: %d landed before, %d drained for it.", interval, stream, *counts)
    if outcome.confirmed_at is None:
        log.info(
            "Salesforce has not confirmed that these are all events of %s, so the interval is not recorded. The run "
            "that lands a later event of it returns that event. On the Pub/Sub API, wait_for_confirmation=True waits "
            "for the confirmation.",
            interval,
        )
    if outcome.missing:
        missing = ", ".join(map(str, outcome.missing))
        log.warning("Missing spans of interval %s, which can no longer be read: %s", interval, missing)


def _window(window: IntervalWindow) -> dict[str, Any]:
    return {
        "manifest_url": window.manifest.window.manifest_url,
        "origin": window.origin,
        **window.manifest.facts(*_OF_MANIFEST),
        "late_before": to_document(window.manifest.late_before) if _is_own(window) else None,
    }


def _is_own(window: IntervalWindow) -> bool:
    """Return whether this run landed the window with the events after the position."""
    return (window.manifest.window.kind, window.origin) == ("live", "bus")
