"""Search for recorded windows in a landing: live ones along their links, backfill windows by day, both by an index."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from airflow_provider_sfstream.exceptions import LandingError, ManifestError, SalesforceStreamError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.chain_index import ChainIndex, Search
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.storage import list_folder, storage_errors
from airflow_provider_sfstream.landing.window_bounds import Bounds, end_before, overlaps
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream, window_id_for

log = logging.getLogger(__name__)

CLOCK_SKEW = timedelta(hours=1)
"""Longest time that Salesforce's clock, which sets event times, may be ahead of the one that sets ``finished_at``."""

_DRAIN_LIMIT = 20
"""Maximum number of windows that a drain reads to complete the backfill index; beyond it the first search does."""


@dataclass(frozen=True)
class Head:
    """Newest window of a chain: the position is on it (``left_at`` is ``None``), or was on it before a reset."""

    window_id: str
    left_at: datetime | None


@dataclass(frozen=True)
class _Ending:
    end: datetime
    window: ReplayWindow


class LandedWindows:
    """Windows of one stream that its replay store counts as recorded.

    Guarantee: every result is read from manifests. A missing, broken or outdated index costs only reads.

    :param heads: the newest first; the live windows that their links lead to are recorded.
    :param now: the present, as an aware time.
    :param index: the index of the chains; a store passes its own, which has documents in memory.
    """

    def __init__(
        self,
        catalog: LandingCatalog,
        stream: Stream,
        heads: Sequence[Head],
        now: datetime,
        index: ChainIndex | None = None,
    ) -> None:
        self._catalog = catalog
        self._stream = stream
        self._heads = heads
        self._now = now
        self._index = ChainIndex(catalog) if index is None else index
        self._read_ids: set[str] = set()  # live windows whose manifests were read

    def live_of_run(self, run: RunIdentity) -> list[ReplayWindow]:
        """Return the live windows of all tries of ``run``, oldest first."""
        # No run starts before it is due, unless it was triggered with a date in the future.
        back_to = run.run_after if run.run_after <= self._now else None
        return [window for window in self._live(_OfRun(run, back_to), back_to) if window.run.key == run.key]

    def of_run(self, run: RunIdentity) -> list[ReplayWindow]:
        """Return the windows of all tries of ``run``."""
        backfills = (landed.window for landed in self._landed_by(run) if landed.window.kind == "backfill")
        return [*self.live_of_run(run), *backfills]

    def _landed_by(self, run: RunIdentity) -> list[Manifest]:
        """Return the finished windows of all tries of a run, recorded or not, by ID. Lists the folder of one day."""
        landing, stream = self._catalog.landing, self._stream
        stamp = window_id_for(run, "live", None).partition("-")[0]  # shared by all windows of runs due at this time
        folder = landing.day_folder(stream, run.run_after.astimezone(UTC).date())
        with storage_errors(f"The windows of {stream} could not be listed"):
            ids = sorted(list_folder(landing.filesystem, folder))
        manifests = (self._catalog.read_manifest(stream, id_) for id_ in ids if id_.partition("-")[0] == stamp)
        return [manifest for manifest in manifests if manifest is not None and manifest.window.run.key == run.key]

    def overlapping(self, start: datetime, end: datetime) -> list[ReplayWindow]:
        """Return the windows whose times overlap ``[start, end)``, by the store's contract."""
        live = self._live(_Overlapping(start, end), start)
        backfills = {window.window_id: window for window in self._unindexed_backfills()}
        indexed = self._catalog.backfills.meeting(self._stream, start, end)
        backfills |= {window.window_id: window for window in self._backfills(indexed)}
        ordered = [backfills[window_id] for window_id in sorted(backfills)]
        return [window for window in (*live, *ordered) if overlaps(window, start, end)]

    def before(self, time: datetime) -> ReplayWindow | None:
        """Return the window that ends last before ``time``, by the store's contract."""
        live = self._live_before(time)
        last = self._backfill_before(time, live) or live
        return None if last is None else last.window

    def begin_index(self) -> None:
        """Complete the index of backfill windows while the landing has few windows, so that no search has to do it.

        Failures are only logged.
        """
        try:
            has_few_windows = (
                len(list(islice(self._catalog.window_ids(self._stream), _DRAIN_LIMIT + 1))) <= _DRAIN_LIMIT
            )
            if has_few_windows:
                self._unindexed_backfills()
        except SalesforceStreamError as error:
            log.info("The index of the backfill windows of %s was not completed: %s", self._stream, error)

    def _live(self, search: Search, back_to: datetime | None) -> list[ReplayWindow]:
        """Return the live windows that ``search`` wants, oldest first. No chain that ended long before ``back_to``."""
        windows_by_id: dict[str, ReplayWindow] = {}
        for head in self._heads:
            if head.left_at is None or back_to is None or head.left_at + CLOCK_SKEW >= back_to:
                windows = self._index.windows(self._stream, head.window_id, search, self._read_ids)
                windows_by_id |= {manifest.window.window_id: manifest.window for manifest in windows}
        return list(reversed(windows_by_id.values()))

    # Live windows are searched in the order that the contract prefers for equal ends, so that only a later end
    # replaces the best one. Backfill windows with equal ends are ordered by their IDs.

    def _live_before(self, time: datetime) -> _Ending | None:
        best: _Ending | None = None
        search = _EndingBefore(time)
        for head in self._heads:
            if best is not None and head.left_at is not None and head.left_at + CLOCK_SKEW < best.end:
                continue
            for manifest in self._index.windows(self._stream, head.window_id, search, self._read_ids):
                end = end_before(manifest.window, time)
                if end is not None and (best is None or end > best.end):
                    best, search.after = _Ending(end, manifest.window), end
        return best

    def _backfill_before(self, time: datetime, live: _Ending | None) -> _Ending | None:
        """Return the backfill window that ends last before ``time``, ``None`` if none ends after ``live``."""
        best: _Ending | None = None
        for window in self._unindexed_backfills():
            best = _later_ending(best, window, time)
        for day, entries in self._catalog.backfills.ending_before(self._stream, time):
            after = max((ending.end for ending in (best, live) if ending is not None), default=None)
            if day is not None and after is not None and day < after.astimezone(UTC).date():
                break
            for entry in sorted(entries, key=lambda entry: (entry.end or time, entry.window_id), reverse=True):
                after = max((ending.end for ending in (best, live) if ending is not None), default=None)
                if entry.may_end_before(time, after):
                    for window in self._backfills([entry.window_id]):
                        best = _later_ending(best, window, time)
        return best if best is not None and (live is None or best.end > live.end) else None

    def _backfills(self, window_ids: Iterable[str]) -> Iterator[ReplayWindow]:
        """Yield the backfill windows among ``window_ids`` that exist."""
        for window_id in window_ids:
            manifest = self._catalog.read_manifest(self._stream, window_id)
            if manifest is not None and manifest.window.kind == "backfill":
                yield manifest.window

    def _unindexed_backfills(self) -> list[ReplayWindow]:
        """Complete the index and return the backfill windows that had no entry; an empty list once it is complete."""
        index = self._catalog.backfills
        if index.is_complete(self._stream):
            return []
        backfills, is_complete = self._manifests_without_index()
        try:
            for manifest in backfills:
                index.add(manifest)
            if is_complete:
                index.mark_complete(self._stream)
        except LandingError as error:
            log.info("%s", error)
        return [manifest.window for manifest in backfills]

    def _manifests_without_index(self) -> tuple[list[Manifest], bool]:
        """Read each manifest once; return those of backfill windows, and whether all of them could be read."""
        backfills, is_complete = [], True
        for head in self._heads:
            with suppress(ManifestError):  # the loop below reads the broken manifest again, and logs it
                list(self._index.windows(self._stream, head.window_id, Search(), self._read_ids))
        for window_id in self._catalog.window_ids(self._stream):
            if window_id in self._read_ids:
                continue
            try:
                manifest = self._catalog.read_manifest(self._stream, window_id)
            except ManifestError as error:
                log.warning("If this is a backfill window, searches do not find it: %s", error)
                is_complete = False
                continue
            if manifest is not None and manifest.window.kind == "backfill":
                backfills.append(manifest)
        return backfills, is_complete


@dataclass(frozen=True)
class _Overlapping(Search):
    """Search for the windows whose times overlap ``[start, end)``."""

    start: datetime
    end: datetime

    def wants(self, bounds: Bounds) -> bool:
        return bounds.meet(self.start, self.end)

    def is_past(self, bounds: Bounds) -> bool:
        return bounds.finished + CLOCK_SKEW < self.start


@dataclass(frozen=True)
class _OfRun(Search):
    """Search for the windows of a run, none of which was finished before ``back_to``."""

    run: RunIdentity
    back_to: datetime | None

    def wants(self, bounds: Bounds) -> bool:
        return bounds.due[0] <= self.run.run_after <= bounds.due[1]

    def is_past(self, bounds: Bounds) -> bool:
        return self.back_to is not None and bounds.finished + CLOCK_SKEW < self.back_to


@dataclass
class _EndingBefore(Search):
    """Search for the windows that end before ``time``, and after ``after`` if that is set."""

    time: datetime
    after: datetime | None = None

    def wants(self, bounds: Bounds) -> bool:
        if bounds.ends is None or bounds.ends[0] > self.time:
            return False
        return self.after is None or bounds.ends[1] > self.after

    def is_past(self, bounds: Bounds) -> bool:
        return self.after is not None and bounds.finished + CLOCK_SKEW < self.after


def _later_ending(best: _Ending | None, window: ReplayWindow, time: datetime) -> _Ending | None:
    """Return the one of two backfill windows that ends later before ``time``."""
    end = end_before(window, time)
    if end is None or (best is not None and (best.end, best.window.window_id) >= (end, window.window_id)):
        return best
    return _Ending(end, window)
