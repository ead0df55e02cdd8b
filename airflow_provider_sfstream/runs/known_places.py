"""Replay IDs of a topic that are known, and seem to lie after a position: there other subscriptions can begin.

Salesforce has no call that gives any, and nothing can be computed from one. What is known has been landed: by another
subscription to the topic, or by the same stream, before its position was set back or in a backfill. What is found here
costs time where it is wrong, and nothing else: see :mod:`airflow_provider_sfstream.drain.side_by_side`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.protocol.streams import ReplayWindow, Stream
from airflow_provider_sfstream.reading.cursor import UNPINNED
from airflow_provider_sfstream.reading.source import StartFrom
from airflow_provider_sfstream.runs.landed_stream import LandedStream
from airflow_provider_sfstream.runs.positions import given_at
from airflow_provider_sfstream.runs.stream_order import stream_order

log = logging.getLogger(__name__)

LEAST_EVENTS = 10_000
"""Events between two places. Fewer come sooner than another subscription is opened."""
PLACES_FOR_EACH_STREAM = 8
"""So that all have something to read until the end, and little waits on disk."""


def known_places(
    landed: LandedStream,
    start: bytes | StartFrom,
    since: ReplayWindow | datetime | None,
    *,
    streams: int,
    now: datetime,
) -> tuple[bytes, ...]:
    """Return replay IDs of landed events that seem to lie after ``start``, in their order; none for one stream.

    They are of one stream: of those that are landed beside ``landed`` and recorded in its store, the one that has the
    most events after ``start``. What cannot be read of them is left out.

    :param since: the window that ended at ``start``, or a time up to which ``start`` is known to lie.
    :param streams: how many subscriptions there will be.
    """
    if streams == 1 or start in UNPINNED:
        return ()
    if isinstance(since, ReplayWindow):
        since = None if since.through is None else given_at([since]).get(since.through, since.contact_at)
    since = since or now - landed.retention
    try:
        beside = landed.catalog.streams(landed.stream)
        chains = [_after(landed, stream, start, since, now) for stream in beside]
        best = max(chains, key=_events, default=[])
        return tuple(_places(landed.catalog, best, streams * PLACES_FOR_EACH_STREAM))
    except SalesforceStreamError as error:
        log.info("%s: no replay IDs are known to read on from side by side: %s", landed.stream, error)
        return ()


@dataclass(frozen=True)
class _Rows:
    """The events of a window from one of its rows on."""

    window: ReplayWindow
    first: int

    def __len__(self) -> int:
        return self.window.event_count - self.first


def _after(
    landed: LandedStream, stream: Stream, start: bytes | StartFrom, since: datetime, now: datetime
) -> list[_Rows]:
    """Return which events of ``stream`` seem to come after ``start``: what its chain says, or else event times."""
    windows = stream_order(landed.store.windows_overlapping(stream, since, now))
    ends = [window.through for window in windows]
    if start in ends:
        found = [_Rows(window, 0) for window in windows[len(ends) - ends[::-1].index(start) :]]
    else:
        found = [_Rows(window, _rows_before(since, window)) for window in windows]
    live = [rows for rows in found if rows.window.kind == "live" and len(rows)]
    return live or sorted(found, key=len)[-1:]


def _rows_before(since: datetime, window: ReplayWindow) -> int:
    """Return about how many events of ``window`` happened before ``since``, as if it had them evenly."""
    first, last = window.first_event_time, window.last_event_time
    if first is None or last is None or since <= first:
        return 0
    return window.event_count if last <= since else ceil(window.event_count * ((since - first) / (last - first)))


def _places(catalog: LandingCatalog, found: Sequence[_Rows], most: int) -> Iterator[bytes]:
    """Yield replay IDs of events that are about as many events apart."""
    step = max(LEAST_EVENTS, -(-_events(found) // (most + 1)))
    next_one = step
    for rows in found:
        wanted = range(rows.first + next_one, rows.window.event_count, step)
        next_one += step * len(wanted) - len(rows)
        if wanted:
            yield from catalog.replay_ids_at(catalog.read_manifest_url(rows.window.manifest_url), wanted)


def _events(found: Sequence[_Rows]) -> int:
    return sum(map(len, found))
