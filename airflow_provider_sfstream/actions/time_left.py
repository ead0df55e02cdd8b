"""Time in which the events that a failed drain did not read can still be read, and the certainty of that."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.parts import open_landing
from airflow_provider_sfstream.exceptions import LandingError, PositionAgedOutError, SalesforceStreamError
from airflow_provider_sfstream.monitoring.headroom import Headroom
from airflow_provider_sfstream.monitoring.status import Certainty, drain_document
from airflow_provider_sfstream.salesforce.topics import SHORT_RETENTION, Topic, retention_by_kind

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

log = logging.getLogger(__name__)

_MOST_WINDOWS = 100
"""Windows that are read at most, the newest first, to find one that shows how far events are stored."""


def drain_headroom(operator: BaseOperator, error: SalesforceStreamError, now: datetime) -> Headroom:
    """Return the headroom of the stream of a drain that failed, by its landing; an unknown one if that cannot be read.

    Asks neither Salesforce nor the stores of positions and status: the drain may have failed because of them.
    """
    drain: Any = operator
    try:
        found = None if isinstance(error, LandingError) else _landed_headroom(drain, now)
    except Exception as fault:  # the report is about another error
        log.debug("The landing does not show how far events are stored:", exc_info=fault)
        found = None
    retention = retention_by_kind(str(drain.topic))
    return found or Headroom(None, None, retention or SHORT_RETENTION, retention is not None, now)


def _landed_headroom(drain: Any, now: datetime) -> Headroom | None:
    topic = Topic.parse(drain.topic, drain.api)
    catalog = open_landing(drain.landing_url, drain.landing_conn_id)
    streams = catalog.streams_of(topic.api, topic.name, drain.subscription)
    newest = catalog.newest_live(streams[0]) if len(streams) == 1 else None
    if newest is None:
        return None
    for manifest in islice(catalog.chain(streams[0], newest.window.window_id), _MOST_WINDOWS):
        status = drain_document(None, streams[0], [manifest], run=manifest.window.run, at=now)
        headroom = Headroom.of(status, now)
        if headroom.until is not None:
            return headroom
    return None


def estimate_basis(headroom: Headroom) -> str:
    """Return the basis of an estimate of the time up to which events are stored; an empty text if it is proven."""
    return "" if headroom.estimated_until is None else ", by the time of the last one"


def time_left(headroom: Headroom, error: SalesforceStreamError) -> tuple[str, Certainty]:
    """Return how long the events that a drain did not read can still be had, and the certainty of that."""
    is_defined = headroom.is_retention_proven
    rule = f"Salesforce keeps an event for {_hours(headroom.retention)}{'' if is_defined else ' at least'}."
    if isinstance(error, PositionAgedOutError):
        return (
            f"Unknown: an event that was not delivered, if there is one, is lost once it is as old. {rule}",
            "unknown",
        )
    if headroom.until is None or headroom.best is None:
        return f"Unknown, as nothing shows up to when events are stored. {rule}", "unknown"
    certainty, stored = headroom.certainty, minute(headroom.until)
    how = f"{certainty}{estimate_basis(headroom)}"
    if headroom.best <= timedelta(0):
        lost = "are being lost" if is_defined else "may be lost"
        return f"Nothing ({how}): events from {stored} on were not read, and {lost}. {rule}", certainty
    left = f"{_hours(headroom.best)}, until {minute(headroom.now + headroom.best)} ({how})"
    return f"{left}: events until {stored} are stored. {rule}", certainty


def _hours(time: timedelta) -> str:
    hours = time.total_seconds() / 3600
    return f"{hours:.0f} hours" if hours >= 2 else f"{time.total_seconds() / 60:.0f} minutes"


def minute(time: datetime) -> str:
    """Return a time in UTC, to the minute."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
