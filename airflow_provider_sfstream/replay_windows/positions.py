"""Known positions of a stream: an index from time to replay ID, built from recorded windows, which Salesforce does not
offer; and the evidence that Salesforce still reads a recorded position.

A drain from the earliest event cannot detect that a reset removed the events before it. The stream was not reset if a
recorded position that is younger than the retention can be read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from airflow_provider_sfstream.exceptions import ReplayIdLostError, SalesforceStreamError
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, Span
from airflow_provider_sfstream.streams.source import EventSource, Responses

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class KnownPosition:
    """A replay ID that Salesforce named at ``named_at``, or a little earlier: during the drain of its window.

    Its window ended at ``contact_at``. No event after it was published before ``published_from``, if known.
    ``continued_id`` names the backfill window that has the events before it, if those count too.
    """

    replay_id: bytes
    named_at: datetime
    contact_at: datetime
    published_from: datetime | None
    continued_id: str | None


def nearest_position(
    time: datetime,
    ordered: Sequence[ReplayWindow],
    gaps: Collection[Gap],
    horizon: datetime,
    breaks: Sequence[Span] = (),
) -> KnownPosition | None:
    """Return the last known replay ID, up to which windows have all events published from ``time`` on, and which should
    still be readable; ``None`` if none is known.

    It is the ``through`` of the window with the greatest ``contact_at`` up to ``time``: events published later follow
    it. Or it is that of a later backfill window to continue: one that covers times from ``time`` or earlier on. One
    without evidence for its start must have begun at the earliest event, or continue such a window. No break ended
    after it, nor after a window that it continues.

    Of several windows, the one whose replay ID was named last. A replay ID can be read while its event is retained,
    so it must have been named after ``horizon``: at the window's last event, or when an empty response named it. An
    empty window that only repeats the replay ID before it does not renew its age. A replay ID that a gap names was
    refused; neither it nor an earlier one is returned.

    If the result is ``None``, reading from the earliest event is correct, and never reads much more.

    :param ordered: windows in stream order, which decides between equal candidates.
    """
    times, by_id = named_at(ordered), {window.window_id: window for window in ordered}
    unbroken_since = max((span.end for span in breaks), default=None)
    best: tuple[datetime, datetime, int] | None = None
    position: KnownPosition | None = None
    for place, window in enumerate(ordered):
        if window.through is None or window.contact_at is None:
            continue
        is_continued = window.contact_at > time
        if is_continued and not _may_be_continued(backfill_chain(window, by_id), time, unbroken_since):
            continue
        time_named = times.get(window.through)
        if time_named is None or time_named <= horizon:
            continue
        if any(_is_refused(window.through, time_named, gap) for gap in gaps):
            continue
        if best is None or (window.contact_at, time_named, place) > best:
            begins = [begin for begin in (window.counts_from, window.covered_until) if begin is not None]
            best = window.contact_at, time_named, place
            position = KnownPosition(
                replay_id=window.through,
                named_at=time_named,
                contact_at=window.contact_at,
                published_from=max(begins, default=None),
                continued_id=window.window_id if is_continued else None,
            )
    return position


def backfill_chain(window: ReplayWindow, by_id: Mapping[str, ReplayWindow]) -> list[ReplayWindow]:
    """Return a backfill window and those that it continues, newest first; an empty list for a live window, or if one of
    them is missing: their events can no longer be read."""
    chain: dict[str, ReplayWindow] = {}
    while window.kind == "backfill" and window.window_id not in chain:
        chain[window.window_id] = window
        if window.previous_window_id is None:
            return list(chain.values())
        window = by_id.get(window.previous_window_id, window)
    return []


def is_drained_before(window: ReplayWindow, time: datetime) -> bool:
    return window.contact_at is None or window.contact_at < time


def _may_be_continued(chain: Sequence[ReplayWindow], time: datetime, unbroken_since: datetime | None) -> bool:
    """Return whether a chain of backfill windows has all events from ``time`` on that precede its end."""
    if not chain or (unbroken_since is not None and any(is_drained_before(each, unbroken_since) for each in chain)):
        return False
    begin = chain[0].covered_from
    return chain[-1].after is None if begin is None else begin <= time


def named_at(windows: Sequence[ReplayWindow]) -> dict[bytes, datetime]:
    """Return the time when Salesforce named each replay ID at which a window ends, or an earlier one, if known."""
    times: dict[bytes, datetime] = {}
    for window in windows:
        if window.through is None:
            continue
        if window.event_count:
            bounds = [time for time in (window.last_event_time, window.contact_at) if time is not None]
            time = min(bounds, default=None)
        else:
            time = window.contact_at if window.through != window.after else None
        if time is not None:
            times[window.through] = max(time, times.get(window.through, time))
    return times


def named_at_latest(windows: Iterable[ReplayWindow], replay_id: bytes) -> datetime | None:
    """Return an upper bound of the time when Salesforce named ``replay_id``, ``None`` if none is known.

    Event times are no evidence for it: publishers set them.
    """
    contacts = (window.contact_at for window in windows if window.through == replay_id)
    return min((time for time in contacts if time is not None), default=None)


def _is_refused(replay_id: bytes, time_named: datetime, gap: Gap) -> bool:
    return replay_id == gap.after or (gap.since is not None and time_named <= gap.since)


class ReadablePosition:
    """An ordinary subscription at a recorded position, for one event, parallel to the drain.

    A missing response is no evidence. A context manager, which opens the subscription and ends it.

    :param replay_id: the recorded position.
    :param may_have_aged_out: true if its age is not known: then its refusal is no evidence of a reset.
    :raises ReplayIdLostError: when it is opened, or later: Salesforce refuses the position, which cannot have aged out.
    """

    def __init__(self, source: EventSource, topic: str, replay_id: bytes, *, may_have_aged_out: bool) -> None:
        self._topic = topic
        self._may_have_aged_out = may_have_aged_out
        self._responses: Responses = source.subscribe(topic, replay_id, limit=1, idle_timeout=_POLL_SECONDS)
        self._is_read: bool | None = None

    def __enter__(self) -> Self:
        self._poll()  # opened now, so that it is answered during the drain
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._responses.close()

    def is_read(self, seconds: float) -> bool:
        """Return whether Salesforce reads the position: whether a response arrives within ``seconds``.

        :raises ReplayIdLostError: Salesforce refuses it, and it cannot have aged out.
        """
        elapsed = 0.0
        while self._is_read is None and elapsed < seconds:
            self._poll()
            elapsed += _POLL_SECONDS
        return bool(self._is_read)

    def _poll(self) -> None:
        """Read one response. A fault, or an end without a response, is no evidence."""
        try:
            self._is_read = None if next(self._responses) is None else True
        except (SalesforceStreamError, StopIteration) as error:
            if isinstance(error, ReplayIdLostError) and not self._may_have_aged_out:
                raise
            log.info("%s: could not determine whether the recorded position can be read: %s", self._topic, error)
            self._is_read = False
