"""Which span of time a drained window answers for: no more than the server showed. Pure.

Event times have no part in it: a publisher can get them wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_provider_sfstream.drain.drain import DrainResult
from airflow_provider_sfstream.protocol.streams import ReplayWindow, Stream
from airflow_provider_sfstream.protocol.topics import retention
from airflow_provider_sfstream.reading.source import StartFrom


@dataclass(frozen=True)
class Drained:
    """What is known of a drain that has ended: how it began, when, and what it was shown.

    ``begins_at`` is a time before which its start is known to lie, if it was chosen for that.
    """

    stream: Stream
    start: bytes | StartFrom
    result: DrainResult
    started_at: datetime
    begins_at: datetime | None = None


def covered_span(drained: Drained, previous: ReplayWindow | None) -> tuple[datetime | None, datetime | None]:
    """Return ``covered_from`` and ``covered_until`` of the window that was drained; see :class:`ReplayWindow`.

    It ends at the moment for which the server said that this is the end of the stream; where it did not, where the
    window before ended. It begins there too; from the earliest event on, as far back as Salesforce keeps events, or
    after a gap where that was found; from the latest event on, where its replay ID was seen. Where a replay ID from
    elsewhere lies, nobody knows.

    :param previous: the window that ended where this one begins, if that is known.
    """
    until = drained.result.confirmed_at
    if previous is not None and previous.covered_until is not None and drained.result.gap is None:
        until = previous.covered_until if until is None else max(until, previous.covered_until)
    return _begin(drained, previous), until


def _begin(drained: Drained, previous: ReplayWindow | None) -> datetime | None:
    if drained.result.pinned_at is not None:
        return drained.result.pinned_at
    if drained.result.gap is not None:
        return drained.result.gap.detected_at
    if drained.begins_at is not None:
        return drained.begins_at
    if drained.start is StartFrom.EARLIEST:
        # What ages out before the request arrives is not read; by the last answer it has arrived.
        return (drained.result.contact_at or drained.started_at) - retention(drained.stream.topic)
    if previous is None:
        return None
    # A start at the latest event may be later than the moment for which its end was confirmed.
    return max((time for time in (previous.covered_from, previous.covered_until) if time is not None), default=None)
