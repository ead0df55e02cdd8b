"""Time in which the events that a failed drain did not read can still be read, and the certainty of that."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import PositionAgedOutError, SalesforceStreamError
from airflow_provider_sfstream.protocol.certainty import Certainty
from airflow_provider_sfstream.protocol.retention import SHORT, retention_by_kind
from airflow_provider_sfstream.protocol.topics import Topic
from airflow_provider_sfstream.tasks.parts import open_landing

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from airflow_provider_sfstream.landing.catalog import LandingCatalog
    from airflow_provider_sfstream.protocol.streams import Stream

log = logging.getLogger(__name__)

_WINDOWS_LOOKED_AT = 100
"""How many windows are looked at, from the newest back, for one that says how far events are stored."""


@dataclass(frozen=True)
class Stored:
    """Time up to which all events of a stream are stored, with its certainty.

    ``proven``: Salesforce confirmed the end of the stream for ``until``. ``estimated``: ``until`` is the time of the
    last stored event, which its publisher set.

    :param retention: how long Salesforce retains the events, where the landing records it.
    """

    until: datetime
    certainty: Certainty
    retention: timedelta | None = None


def stored_until(operator: BaseOperator) -> Stored | None:
    """Return until when all events of a drain's stream are stored, as its landing shows; ``None`` if it does not.

    Asks neither Salesforce nor the replay store: it is what cannot be reached that one wants to know this of.
    """
    drain: Any = operator
    try:
        topic = Topic.parse(drain.topic, drain.api)
        catalog = open_landing(drain.landing_url, drain.landing_conn_id)
        streams = catalog.streams_of(topic.api, topic.name, drain.subscription)
        return _stored_until(catalog, *streams) if len(streams) == 1 else None
    except Exception as error:  # whatever it is, it is not why the task fails
        log.debug("How far events are stored cannot be told:", exc_info=error)
        return None


def _stored_until(catalog: LandingCatalog, stream: Stream) -> Stored | None:
    newest = catalog.newest_live(stream)
    if newest is None:
        return None
    for manifest in islice(catalog.chain(stream, newest.window.window_id), _WINDOWS_LOOKED_AT):
        covered, stored = manifest.window.covered_until, manifest.window.last_event_time
        # A publisher may date an event far ahead; it was published before the drain ended.
        stored = None if stored is None else min(stored, manifest.finished_at)
        if covered is not None and (stored is None or covered >= stored):
            return Stored(covered, "proven", newest.retention)
        if stored is not None:
            return Stored(stored, "estimated", newest.retention)
    return None


BY: dict[Certainty, str] = {"proven": "", "estimated": ", by the time of the last one", "unknown": ""}
"""What an estimate of the time up to which events are stored rests on."""


def time_left(
    operator: BaseOperator, stored: Stored | None, now: datetime, error: SalesforceStreamError
) -> tuple[str, Certainty]:
    """Return how long the events that a drain did not read can still be had, and the certainty of that."""
    recorded = None if stored is None else stored.retention
    defined = recorded or retention_by_kind(str(operator.topic))  # type: ignore[attr-defined]
    kept = defined or SHORT
    rule = f"Salesforce keeps an event for {_hours(kept)}{'' if defined else ' at least'}."
    if isinstance(error, PositionAgedOutError):
        return (
            f"Unknown: an event that was not delivered, if there is one, is lost once it is as old. {rule}",
            "unknown",
        )
    if stored is None:
        return f"Unknown, as nothing shows up to when events are stored. {rule}", "unknown"
    certainty: Certainty = stored.certainty if defined else "estimated"
    until, how = stored.until + kept, f"{certainty}{BY[stored.certainty]}"
    if until <= now:
        lost = "are being lost" if defined else "may be lost"
        return f"Nothing ({how}): events from {minute(stored.until)} on were not read, and {lost}. {rule}", certainty
    left = f"{_hours(until - now)}, until {minute(until)} ({how})"
    return f"{left}: events until {minute(stored.until)} are stored. {rule}", certainty


def _hours(time: timedelta) -> str:
    hours = time.total_seconds() / 3600
    return f"{hours:.0f} hours" if hours >= 2 else f"{time.total_seconds() / 60:.0f} minutes"


def minute(time: datetime) -> str:
    """Return a time in UTC, to the minute."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
