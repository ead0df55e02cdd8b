"""A replay ID that aged out because nothing was published: when that is known, nothing is lost.

On the Streaming API a silence names no replay ID, so the position of a quiet stream stays at its last event until
Salesforce forgets it. It is then refused like any other that cannot be read. But where the window before saw the whole
stream less than its retention ago, whatever was published since is still there, from the earliest event on.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow_provider_sfstream.landing.pruned import read_pruned
from airflow_provider_sfstream.protocol.manifest import Manifest
from airflow_provider_sfstream.protocol.topics import retention
from airflow_provider_sfstream.runs.landed_stream import LandedStream

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
