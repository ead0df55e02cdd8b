"""The time → replay ID index that Salesforce does not offer, from recorded windows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow


@dataclass(frozen=True)
class KnownPosition:
    """A replay ID that was named at ``given_at``, or a little earlier: at some time during the drain of its window.

    No event after it was published before ``published_from``, where that is known.
    """

    replay_id: bytes
    given_at: datetime
    published_from: datetime | None


def nearest_position(
    time: datetime, ordered: Sequence[ReplayWindow], gaps: Collection[Gap], horizon: datetime
) -> KnownPosition | None:
    """Return the last known replay ID before ``time`` that should still be readable, ``None`` if none is known.

    It is the ``through`` of the window with the greatest ``contact_at`` up to ``time``: what was published later comes
    after it. Of several, of the one whose replay ID was given last. A replay ID can be read while its event is
    retained, so it must have been given after ``horizon``: at the window's last event, or when an empty response named
    it. An empty window that only repeats the replay ID before it gives no new age to it. A replay
    ID that a gap names was refused; neither it nor an earlier one is returned.

    Reading from the earliest event is right wherever this returns ``None``, and never reads much more.

    :param ordered: windows in stream order, which decides between equals.
    """
    given = given_at(ordered)
    best: tuple[datetime, datetime, int] | None = None
    position: KnownPosition | None = None
    for place, window in enumerate(ordered):
        if window.through is None or window.contact_at is None or window.contact_at > time:
            continue
        at = given.get(window.through)
        if at is None or at <= horizon or any(_refused(window.through, at, gap) for gap in gaps):
            continue
        if best is None or (window.contact_at, at, place) > best:
            known = [each for each in (window.counts_from, window.covered_until) if each is not None]
            best = window.contact_at, at, place
            position = KnownPosition(window.through, at, max(known, default=None))
    return position


def given_at(windows: Sequence[ReplayWindow]) -> dict[bytes, datetime]:
    """Return when Salesforce gave each replay ID at which a window ends, or a time before, as far as that is known."""
    given: dict[bytes, datetime] = {}
    for window in windows:
        if window.through is None:
            continue
        if window.event_count:
            known = [time for time in (window.last_event_time, window.contact_at) if time is not None]
            time = min(known, default=None)
        else:
            time = window.contact_at if window.through != window.after else None
        if time is not None:
            given[window.through] = max(time, given.get(window.through, time))
    return given


def given_at_latest(windows: Iterable[ReplayWindow], replay_id: bytes) -> datetime | None:
    """Return a time before which Salesforce gave ``replay_id``, ``None`` if none is known.

    Event times do not tell it: publishers set them.
    """
    return min((each.contact_at for each in windows if each.through == replay_id and each.contact_at), default=None)


def _refused(replay_id: bytes, at: datetime, gap: Gap) -> bool:
    return replay_id == gap.after or (gap.since is not None and at <= gap.since)
