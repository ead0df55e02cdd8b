"""Span of time that a drained window covers, and the time from which its events count. Pure.

Event times are no evidence for either, because publishers set them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_sfstream.salesforce.streams import ReplayWindow
from airflow_provider_sfstream.streams.drain.result import DrainResult
from airflow_provider_sfstream.streams.source import StartFrom


@dataclass(frozen=True)
class Drained:
    """A drain that has ended.

    :param start: where it began.
    :param retention: how long Salesforce retains the events of the topic.
    :param begins_at: a time that ``start`` is known to precede, if it was chosen for that.
    :param published_from: a time before which no event after ``start`` was published, where that is known.
    :param unbroken_since: the newest gap or reset of the stream: the earliest retained event may have been published
        after it.
    """

    start: bytes | StartFrom
    result: DrainResult
    retention: timedelta
    begins_at: datetime | None = None
    published_from: datetime | None = None
    unbroken_since: datetime | None = None

    @property
    def retained_from(self) -> datetime | None:
        """The time from which on Salesforce retained all events when it last answered, but for a broken stream."""
        contact_at = self.result.contact_at
        return None if contact_at is None else contact_at - self.retention


def covered_span(drained: Drained, previous: ReplayWindow | None) -> tuple[datetime | None, datetime | None]:
    """Return ``covered_from`` and ``covered_until`` of the window that was drained; see :class:`ReplayWindow`.

    The span ends at the moment for which the end of the stream was confirmed; where it was not, where the span of the
    window before ended. It begins there too. From the earliest event it begins as far back as Salesforce retains
    events; after a gap, where that was detected; from the latest event, where its replay ID was received. For a replay
    ID of unknown origin it is not known.

    :param previous: the window that ended where this one begins, if that is known. Its times are ignored if they are
        ahead of Salesforce's clock.
    """
    until, contact_at = drained.result.confirmed_at, drained.result.contact_at
    before = None if previous is None or drained.result.gap is not None else previous.covered_until
    if before is not None and (contact_at is None or before <= contact_at):
        until = before if until is None else max(until, before)
    return _begin(drained, previous), until


def counts_from(drained: Drained, previous: ReplayWindow | None) -> datetime | None:
    """Return the time before which no event of the window counts, ``None`` if it is not known.

    No event of the window was published before the end of what the windows before it covered.

    :param previous: the window that ended where this one begins, if that is known. Its times are ignored if they are
        ahead of Salesforce's clock.
    """
    if drained.published_from is not None:
        return drained.published_from
    if previous is not None:
        contact_at = drained.result.contact_at
        known = [time for time in (previous.counts_from, previous.covered_until) if time is not None]
        return max((time for time in known if contact_at is None or time <= contact_at), default=None)
    # From the earliest event on it is not known: Salesforce may retain events for longer than it promises.
    return drained.result.began_at if drained.start is StartFrom.LATEST else None


def _begin(drained: Drained, previous: ReplayWindow | None) -> datetime | None:
    if drained.result.pinned_at is not None:
        return drained.result.pinned_at
    if drained.result.gap is not None:
        return drained.result.gap.detected_at
    if drained.begins_at is not None:
        return drained.begins_at
    if drained.start is StartFrom.EARLIEST:
        # An event that ages out before the request arrives is not read; by the last answer the request has arrived.
        known = [time for time in (drained.retained_from, drained.unbroken_since) if time is not None]
        return None if drained.retained_from is None else max(known)
    if previous is None:
        return None
    # A start at the latest event may be later than the moment for which its end was confirmed.
    return max((time for time in (previous.covered_from, previous.covered_until) if time is not None), default=None)
