"""A position that can no longer be read: when nothing is lost all the same, and accepting that something is.

On the Streaming API a silence names no replay ID, so the position of a quiet stream stays at its last event until
Salesforce forgets it. It is then refused like any other that cannot be read. But where the window before saw the whole
stream less than its retention ago, whatever was published since is still there, from the earliest event on.

A loss is accepted by an act of its own that the next drain of the stream goes by. What is accepted is recorded as a gap
after the position that can no longer be read. It holds for that position only: a loss at any other one stops a drain as
before.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Literal, cast

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.pruned import read_pruned
from airflow_provider_sfstream.protocol.manifest import Manifest
from airflow_provider_sfstream.protocol.streams import Gap
from airflow_provider_sfstream.protocol.topics import retention
from airflow_provider_sfstream.reading.source import EventSource
from airflow_provider_sfstream.runs.landed_stream import LandedStream
from airflow_provider_sfstream.stores.base import Position
from airflow_provider_sfstream.watch.conditions import WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.watch.look import look

GoOnFrom = Literal["earliest", "latest"]

_ACCEPTED = re.compile(r"accepted by .*, to go on from (earliest|latest): ", re.DOTALL)
_MARGIN = timedelta(hours=1)
"""For clocks that differ, and for what Salesforce may remove a little late or early."""


def aged_out_in_silence(landed: LandedStream, previous: Manifest | None, now: datetime) -> bool:
    """Return whether the position at the end of ``previous`` has aged out, and nothing that came after it has.

    True only if its last event is older than Salesforce keeps events of the topic, and the stream was seen to have
    nothing after it at a time from which on everything is still kept.

    :param previous: the window that ended at the position.
    :raises LandingError: if an earlier manifest cannot be read.
    """
    kept = retention(landed.stream.topic)
    kept_since = now - kept
    if previous is None or previous.window.covered_until is None:
        return False
    if previous.window.covered_until < kept_since + _MARGIN:
        return False
    last = _last_event_time(landed, previous, kept)
    return last is not None and last < kept_since + _MARGIN


def _last_event_time(landed: LandedStream, manifest: Manifest | None, kept: timedelta) -> datetime | None:
    """Return a time before which the last event up to the end of ``manifest`` had come. Its own time may be wrong."""
    while manifest is not None:
        window = manifest.window
        if window.event_count:
            return window.contact_at
        if window.after is None:  # found aged out by this window already: it began at the earliest event, and saw none
            return manifest.started_at - kept
        earlier = window.previous_window_id
        if earlier is None:
            return None
        manifest = landed.manifest(earlier)
    # Everything in a pruned window happened before it was finished, which was longer ago than any retention.
    pruned = read_pruned(landed.catalog.landing, landed.stream)
    return None if pruned is None else pruned.finished_before


def accept_loss(
    landed: LandedStream, source: EventSource, *, go_on_from: GoOnFrom, reason: str, accepted_by: str, now: datetime
) -> Gap:
    """Record that what cannot be read after the position is lost, if Salesforce shows that it cannot be read.

    The position stays. Accepting the loss at one position again changes nothing and returns what was recorded.

    :param go_on_from: ``"earliest"``: with the oldest event that Salesforce still has; ``"latest"``: with new ones.
    :raises ConfigurationError: there is no position, it can still be read, or no reason is given. Nothing was recorded.
    :raises SalesforceStreamError: it could not be found out. Nothing was recorded.
    """
    stream, position = landed.stream, landed.position()
    if not reason.strip():
        raise ConfigurationError(f"{stream}: the reason is empty. Say why the loss is accepted; nothing was recorded.")
    if position.replay_id is None:
        raise ConfigurationError(f"{stream}: no position is recorded, so none can be lost. Nothing was recorded.")
    before = _accepted_at(landed, position)
    if before is not None:
        return before
    found = look(source, stream.topic, position.replay_id, WakeUpConditions())
    if found is None or found.reason is not WakeUpReason.REPLAY_LOST:
        raise ConfigurationError(
            f"{stream}: Salesforce still reads the position {position.replay_id.hex()}, so nothing is lost. Nothing "
            "was recorded. Clear the drain that failed."
        )
    last = landed.manifest(position.window_id)
    since = position.confirmed_at if last is None else last.window.last_event_time or last.window.covered_until
    text = f"accepted by {accepted_by}, to go on from {go_on_from}: {reason}"
    gap = Gap(after=position.replay_id, resumed_at=None, since=since, detected_at=now, reason=text)
    landed.store.record_gap(stream, gap)
    return gap


def accepted_policy(landed: LandedStream, position: Position) -> GoOnFrom | None:
    """Return where to go on from when ``position`` cannot be read, if somebody accepted that; else ``None``."""
    gap = _accepted_at(landed, position)
    match = None if gap is None else _ACCEPTED.match(gap.reason)
    return None if match is None else cast("GoOnFrom", match[1])


def _accepted_at(landed: LandedStream, position: Position) -> Gap | None:
    at_position = (gap for gap in landed.store.gaps(landed.stream) if gap.after == position.replay_id)
    return next((gap for gap in at_position if _ACCEPTED.match(gap.reason)), None)
