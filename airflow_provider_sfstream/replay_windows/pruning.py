"""Pruning: the removal of landed windows that are no longer needed, oldest first.

Guarantees. A window that must stay also protects all windows landed after it: the remaining windows of a stream are its
newest ones, without a hole. A window is first announced as pruned, then removed from the replay store, then loses its
manifest, then its files: no reader ever finds a manifest whose files are missing. After a kill at any line, the next
run completes the announced removals. Positions, gaps, schemas and the records of intervals stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.pruned import PrunedWindows, read_pruned, remove_windows, write_pruned
from airflow_provider_sfstream.replay_windows.landed_stream import CLOCKS_DIFFER, LandedStream
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream
from airflow_provider_sfstream.salesforce.topics import check_age

log = logging.getLogger(__name__)

AT_ONCE = 500
"""Number of windows that are announced before they are removed."""


class OldWindow(NamedTuple):
    """A landed window, the end of its drain, and the size of its files."""

    window: ReplayWindow
    finished_at: datetime
    bytes: int


@dataclass(frozen=True)
class PruneOutcome:
    """The windows that were removed, or would be, oldest first; the number of old ones that stay, and the first reason.

    ``finished``: number of windows that an earlier run had announced, and this one removed.
    """

    removed: tuple[OldWindow, ...]
    kept: int
    kept_because: str | None
    finished: int


@dataclass(frozen=True)
class _Limit:
    """Time limit: windows that were finished at this time or later stay."""

    time: datetime
    reason: str

    def or_earlier(self, time: datetime, reason: str) -> _Limit:
        return _Limit(time, reason) if time < self.time else self


def prune_stream(
    landed: LandedStream,
    older_than: timedelta,
    *,
    keep_last: int = 1,
    needed: Mapping[str, str] = MappingProxyType({}),
    still_needed: Callable[[Sequence[ReplayWindow]], Mapping[str, str]] = lambda windows: {},
    dry_run: bool = False,
    pruned_by: str,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> PruneOutcome:
    """Remove old windows, unless they or an earlier window are still needed.

    :param older_than: minimum time since a removable window was finished.
    :param keep_last: number of the newest live windows that stay at any age; the last one is that of the position.
    :param needed: IDs of live windows that are needed with all later ones, and the name of the consumer.
    :param still_needed: returns those of the old windows that are still needed, with the name of the consumer.
    :param pruned_by: name of the pruning run, for readers that miss a window.
    :raises ConfigurationError: if the position, or a consumer, is on a window that is not in this landing.
    """
    check_age(older_than)
    announced = read_pruned(landed.catalog.landing, landed.stream)
    finished = 0
    if announced is not None and announced.removing and not dry_run:
        log.info("%s: removing %d windows that an earlier run had announced.", landed.stream, len(announced.removing))
        finished = len(announced.removing)
        _remove(announced, landed)
    limit = _limit(landed, now() - older_than, keep_last, needed)
    old = _old_windows(landed, now() - older_than)
    reasons = still_needed([each.window for each in old if each.finished_at < limit.time])
    for each in old:
        if each.window.window_id in reasons:
            limit = limit.or_earlier(each.finished_at, reasons[each.window.window_id])
    unneeded = [each for each in old if each.finished_at < limit.time]
    removable, hole_reason = _without_holes(unneeded, landed)
    kept_count = len(old) - len(removable)
    if not dry_run:
        _announce_and_remove(removable, landed, pruned_by, now)
    return PruneOutcome(tuple(removable), kept_count, (hole_reason or limit.reason) if kept_count else None, finished)


def _limit(landed: LandedStream, cutoff: datetime, keep_last: int, needed: Mapping[str, str]) -> _Limit:
    stream, catalog = landed.stream, landed.catalog
    limit = _Limit(cutoff, "they are not old enough")
    recorded = landed.last_recorded()
    position = landed.position()
    landed.require_not_before(position, recorded)
    if landed.newest_unknown(position) is not None:
        raise ConfigurationError(
            f"{stream}: the replay store has no record of this stream, but the landing {catalog.landing.url} has "
            "windows of it. Nothing was removed. Set the replay_store of the drain."
        )
    if position.window_id is not None:
        head = _landed_window(stream, position.window_id, "the position", catalog)
        for manifest in islice(catalog.chain(stream, head.window.window_id), keep_last):
            reason = f"window {manifest.window.window_id} is among the last {keep_last}"
            limit = limit.or_earlier(manifest.finished_at, reason)
    for window_id, consumer in needed.items():
        manifest = _landed_window(stream, window_id, consumer, catalog)
        limit = limit.or_earlier(manifest.finished_at, f"{consumer} is on window {window_id}")
    return limit


def _landed_window(stream: Stream, window_id: str, consumer: str, catalog: LandingCatalog) -> Manifest:
    manifest = catalog.read_manifest(stream, window_id)
    if manifest is None:
        raise ConfigurationError(
            f"{stream}: {consumer} is on window {window_id}, which is missing from the landing {catalog.landing.url}. "
            "Nothing was removed. Check landing_url, and the other arguments that name a folder or a store."
        )
    return manifest


def _old_windows(landed: LandedStream, cutoff: datetime) -> list[OldWindow]:
    windows = (
        OldWindow(manifest.window, manifest.finished_at, sum(file.bytes for file in manifest.files))
        for manifest in _manifests(landed.stream, landed.catalog, cutoff)
        if manifest.finished_at < cutoff
    )
    return sorted(windows, key=lambda old: old.finished_at)


def _manifests(stream: Stream, catalog: LandingCatalog, until: datetime) -> Iterator[Manifest]:
    day, last_day = catalog.first_day(stream), until.astimezone(UTC).date()
    while day is not None and day <= last_day:
        yield from catalog.windows_between(stream, day, day)
        day += timedelta(days=1)


def _without_holes(old: list[OldWindow], landed: LandedStream) -> tuple[list[OldWindow], str | None]:
    """Return the windows before which none stays, and the reason if some were omitted."""
    removable = {each.window.window_id: each for each in old}
    reason = None
    while True:
        windows = [each.window for each in removable.values()]
        blocked = [window for window in windows if _is_predecessor_kept(window, removable, landed)]
        if not blocked:
            return list(removable.values()), reason
        reason = reason or f"window {blocked[0].previous_window_id}, before {blocked[0].window_id}, is not removed"
        for window in blocked:
            del removable[window.window_id]


def _is_predecessor_kept(window: ReplayWindow, removable: Mapping[str, OldWindow], landed: LandedStream) -> bool:
    predecessor = window.previous_window_id
    if window.kind == "backfill" or predecessor is None or predecessor in removable:
        return False
    return landed.catalog.read_manifest(landed.stream, predecessor) is not None


def _announce_and_remove(
    windows: Iterable[OldWindow], landed: LandedStream, pruned_by: str, now: Callable[[], datetime]
) -> None:
    stream, landing, remaining = landed.stream, landed.catalog.landing, iter(windows)
    while batch := list(islice(remaining, AT_ONCE)):
        earlier, pruned_at = read_pruned(landing, stream), now()
        finished_before = batch[-1].finished_at + datetime.resolution
        live = (old for old in batch if old.window.kind == "live" and old.window.event_count)
        last_times = [min(old.window.contact_at or old.finished_at + CLOCKS_DIFFER, pruned_at) for old in live]
        if earlier is not None and earlier.published_until is not None:
            last_times.append(earlier.published_until)
        announced = PrunedWindows(
            stream=stream,
            finished_before=finished_before if earlier is None else max(finished_before, earlier.finished_before),
            pruned_at=pruned_at,
            pruned_by=pruned_by,
            windows=len(batch) + (0 if earlier is None else earlier.windows),
            removing=tuple(old.window.window_id for old in batch),
            published_until=max(last_times, default=None),
        )
        write_pruned(landing, announced)
        _remove(announced, landed)
        log.info("%s: removed %d windows, %s to %s.", stream, len(batch), announced.removing[0], announced.removing[-1])


def _remove(announced: PrunedWindows, landed: LandedStream) -> None:
    """Remove the announced windows. A repeated call after a kill at any line completes the removal."""
    landed.store.forget_windows(announced.stream, announced.removing)
    remove_windows(landed.catalog.landing, announced.stream, announced.removing)
    write_pruned(landed.catalog.landing, announced.finished())
