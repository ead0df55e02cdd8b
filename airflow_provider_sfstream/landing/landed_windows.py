"""Finds recorded windows in a landing: live ones along their links, backfill windows in the folders of days."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from airflow_provider_sfstream.landing.catalog import CLOCK_SKEW
from airflow_provider_sfstream.protocol.manifest import Manifest
from airflow_provider_sfstream.protocol.streams import ReplayWindow, RunIdentity, Stream

BACKFILL_REACH = timedelta(days=4)
"""How far after the time that its run was due a backfill window can reach. An interval ends before its run is due, and
is drained while Salesforce still has it, 72 hours at most; the window then reaches the present at most. One day more is
for grace, clocks and time zones."""


class WindowCatalog(Protocol):
    """What the store asks of a landing: :class:`~airflow_provider_sfstream.landing.catalog.LandingCatalog` does it."""

    def read_manifest(self, stream: Stream, window_id: str) -> Manifest | None: ...

    def chain(self, stream: Stream, head_window_id: str, back_to: datetime | None = None) -> Iterator[Manifest]: ...

    def windows_between(
        self, stream: Stream, start_day: date, end_day: date, *, without: Iterable[str] = ()
    ) -> list[Manifest]: ...

    def first_day(self, stream: Stream) -> date | None: ...


@dataclass(frozen=True)
class Head:
    """The newest window of a chain: where the position stands (``left_at`` is ``None``), or stood before a reset."""

    window_id: str
    left_at: datetime | None


@dataclass(frozen=True)
class _Ending:
    end: datetime
    window: ReplayWindow


class LandedWindows:
    """The windows of one stream that its replay store counts as recorded.

    :param heads: the newest first; live windows that the links reach from them are recorded.
    :param now: the present, as an aware time.
    """

    def __init__(self, catalog: WindowCatalog, stream: Stream, heads: Sequence[Head], now: datetime) -> None:
        self._catalog = catalog
        self._stream = stream
        self._heads = heads
        self._now = now

    def live(self, back_to: datetime | None) -> list[ReplayWindow]:
        """Return the live windows, oldest first; none that were finished long before ``back_to``."""
        found: dict[str, ReplayWindow] = {}
        for head in self._heads:
            if head.left_at is None or back_to is None or head.left_at + CLOCK_SKEW >= back_to:
                chain = self._catalog.chain(self._stream, head.window_id, back_to)
                found |= {manifest.window.window_id: manifest.window for manifest in chain}
        return list(reversed(found.values()))

    def live_of_run(self, run: RunIdentity) -> list[ReplayWindow]:
        """Return the live windows that any try of ``run`` made, in the order of :meth:`live`."""
        # Nothing runs before it is due, unless it was triggered with a date in the future.
        back_to = run.run_after if run.run_after <= self._now else None
        return [window for window in self.live(back_to) if window.run.key == run.key]

    def of_run(self, run: RunIdentity) -> list[ReplayWindow]:
        """Return the windows that any try of ``run`` made."""
        day = _utc_day(run.run_after)
        live = self.live_of_run(run)
        return [*live, *(window for window in self._backfills(day, day, live) if window.run.key == run.key)]

    def overlapping(self, start: datetime, end: datetime) -> list[ReplayWindow]:
        """Return the windows that have to do with ``[start, end)``, as the store's contract says."""
        live = self.live(start)
        # A backfill run is due when its interval ends or later, and up to now when somebody asks for an old interval.
        backfills = self._backfills(_utc_day(start - BACKFILL_REACH), self._last_day(end), live)
        return [window for window in (*live, *backfills) if overlaps(window, start, end)]

    def before(self, time: datetime) -> ReplayWindow | None:
        """Return the window that ends last before ``time``, as the store's contract says."""
        read: list[ReplayWindow] = []
        live = self._live_before(time, read)
        last = self._backfill_before(time, live, read) or live
        return None if last is None else last.window

    # Windows are looked at in the order that the contract prefers where ends are equal, so a later end alone counts.

    def _live_before(self, time: datetime, read: list[ReplayWindow]) -> _Ending | None:
        """Walk the chains until no older window can end later than the best; add what was read to ``read``."""
        best: _Ending | None = None
        for head in self._heads:
            if best is not None and head.left_at is not None and head.left_at + CLOCK_SKEW < best.end:
                continue
            for manifest in self._catalog.chain(self._stream, head.window_id):
                read.append(manifest.window)
                if best is not None and manifest.finished_at + CLOCK_SKEW < best.end:
                    break
                ending = _ending_before(manifest.window, time)
                if ending is not None and (best is None or ending.end > best.end):
                    best = ending
        return best

    def _backfill_before(self, time: datetime, live: _Ending | None, read: list[ReplayWindow]) -> _Ending | None:
        """Return the backfill window that ends last before ``time``, ``None`` if none ends after ``live``."""
        first_day = self._catalog.first_day(self._stream)
        best, day = live, self._last_day(time)
        while first_day is not None and day >= first_day:
            if best is not None and day < _utc_day(best.end - BACKFILL_REACH):
                break
            for window in reversed(self._backfills(day, day, read)):
                ending = _ending_before(window, time)
                if ending is not None and (best is None or ending.end > best.end):
                    best = ending
            day -= timedelta(days=1)
        return None if best is live else best

    def _backfills(self, first_day: date, last_day: date, live: Iterable[ReplayWindow]) -> list[ReplayWindow]:
        """Return the backfill windows of runs due on those days, by id. ``live`` are known not to be ones."""
        known = {window.window_id for window in live}
        manifests = self._catalog.windows_between(self._stream, first_day, last_day, without=known)
        windows = [manifest.window for manifest in manifests if manifest.window.kind == "backfill"]
        return sorted(windows, key=lambda window: window.window_id)

    def _last_day(self, end: datetime) -> date:
        return _utc_day(max(end, self._now) + timedelta(days=1))


def overlaps(window: ReplayWindow, start: datetime, end: datetime) -> bool:
    """Return whether the window answers for a part of ``[start, end)``, or holds an event that may count in it."""
    covered_from, covered_until = window.covered_from, window.covered_until
    if covered_from is not None and covered_until is not None and max(covered_from, start) < min(covered_until, end):
        return True
    if window.event_count == 0:
        return False
    if window.contact_at is not None:
        return window.contact_at >= start and (window.covered_from is None or window.covered_from < end)
    first, last = window.first_event_time, window.last_event_time
    return first is not None and last is not None and first < end and last >= start


def _ending_before(window: ReplayWindow, time: datetime) -> _Ending | None:
    """Return where the window ends, ``None`` if it does not end before ``time`` or has no replay ID to go on from."""
    if window.through is None:
        return None
    if window.contact_at is not None:
        return _Ending(window.contact_at, window) if window.contact_at <= time else None
    last = window.last_event_time
    return _Ending(last, window) if last is not None and last < time else None


def _utc_day(time: datetime) -> date:
    return time.astimezone(UTC).date()
