"""Restoration of the replay store from the landing: records the windows of a stream's manifests again.

A store that was lost, or that was restored from a backup older than the landing, is moved to the end of the landing:
the next drain continues there. The manifests are the source of truth; no file is changed, Salesforce is not called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_stores.base import Position, ReplayStore
from airflow_provider_sfstream.replay_windows.recorded_positions import RecordedPositions
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream

_REASON = "made anew from the landing: window {} does not follow the one recorded before it"


@dataclass(frozen=True)
class RestoreResult:
    """Result of a restoration: recorded live windows that the store lacked, and backfill windows of the landing."""

    before: Position
    after: Position
    live_windows: int
    backfill_windows: int


def restore_from_landing(
    landed: RecordedPositions, *, now: datetime, updated_by: str, last_window_id: str | None = None
) -> RestoreResult:
    """Record every window of the landing that follows the store's position, and move the position to their end.

    A store without a record of the stream receives all of them. A repeated call after a kill at any line continues. No
    drain may run meanwhile: one of the two would fail with a conflict.

    :param now: the present, with a time zone: the landing is read up to tomorrow.
    :param updated_by: name of the caller, for the audit records of positions that had been set by hand.
    :param last_window_id: the window to end with; without it, the last one of the landing. If several begin at one
        position, the last recorded position in the landing decides.
    :raises ConfigurationError: if the landing does not show which windows count. Nothing was recorded.
    :raises LandingError: if the storage does not list the last recorded window yet. Nothing was recorded.
    :raises PositionConflictError: if the position moved meanwhile.
    """
    stream, store = landed.stream, landed.store
    before = store.read(stream)
    manifests = _manifests(stream, landed.catalog, now)
    live = [manifest for manifest in manifests if manifest.window.kind == "live"]
    last_recorded = landed.last_recorded() if last_window_id is None else None
    last_recorded_id = None if last_recorded is None else last_recorded.window_id
    if last_recorded_id is not None and all(manifest.window.window_id != last_recorded_id for manifest in live):
        _check_missing(last_recorded_id, stream, landed.catalog)
    certain = (before.window_id, last_recorded_id, last_window_id)
    ordered = _up_to(in_order(live, *certain), last_window_id, stream)
    missing = _windows_after(before, ordered, _cause(store, stream, before), stream)
    position = before
    for manifest in missing:
        position = _record(stream, manifest.window, position, store, updated_by)
    last = missing[-1].window if missing else None
    if last is not None and last.through not in (None, position.replay_id):
        # The store already had some of them recorded, and did not move the position.
        position = store.reset(stream, last.through, reason=_REASON.format(last.window_id), updated_by=updated_by)
    backfills = [manifest.window for manifest in manifests if manifest.window.kind == "backfill"]
    for window in backfills:
        store.record_backfill(stream, window)
    if position.fence > 0:
        landed.write_last_recorded(position)
    return RestoreResult(before, position, len(missing), len(backfills))


def in_order(live: Sequence[Manifest], *certain: str | None) -> list[Manifest]:
    """Return the live windows that were recorded, in the order in which they were recorded.

    Windows are chains, each window naming the one before it. A position that was set by hand, or a store that was
    restored from a backup, begins another chain or branch. Windows were drained from one position if they name the same
    previous window and the same fence. Of these, the ones that another window follows count. If none is followed, one
    of them counts, and the landing does not show which. Pure.

    :param certain: IDs of windows that were recorded, which decide between those that none follows; the last one is the
        one to end with, which makes others irrelevant.
    :raises ConfigurationError: if the choice remains open.
    """
    ids = {manifest.window.window_id for manifest in live}
    following: dict[str | None, dict[int, list[Manifest]]] = {}
    for manifest in live:
        name = manifest.window.previous_window_id
        following.setdefault(name if name in ids else None, {}).setdefault(manifest.fence, []).append(manifest)

    def recorded(siblings: list[Manifest]) -> list[Manifest]:
        certain_siblings = [sibling for sibling in siblings if sibling.window.window_id in certain]
        followed = [sibling for sibling in siblings if sibling.window.window_id in following]
        if followed or certain_siblings:
            return followed + [sibling for sibling in certain_siblings if sibling not in followed]
        if len(siblings) > 1 and not (certain and certain[-1]):
            listed = ", ".join(f"{sibling.window.window_id} ({sibling.window.run})" for sibling in siblings)
            raise ConfigurationError(
                f"{live[0].stream}: windows {listed} begin at one position, and the landing does not show which of "
                "them was recorded. Set last_window_id to the ID of the window whose task succeeded. "
                "This restoration recorded nothing."
            )
        return siblings if len(siblings) == 1 else []

    def after(window_id: str | None) -> list[Manifest]:
        """Return the windows that were recorded directly after a window, the newest first."""
        windows = [manifest for siblings in following.get(window_id, {}).values() for manifest in recorded(siblings)]
        return sorted(windows, key=lambda manifest: manifest.finished_at, reverse=True)

    ordered, stack = [], after(None)
    while stack:
        ordered.append(stack.pop())
        stack += after(ordered[-1].window.window_id)
    return ordered


def _manifests(stream: Stream, catalog: LandingCatalog, now: datetime) -> list[Manifest]:
    first_day = catalog.first_day(stream)
    manifests = [] if first_day is None else catalog.windows_between(stream, first_day, (now + timedelta(1)).date())
    if not manifests:
        raise ConfigurationError(
            f"{stream}: the landing {catalog.landing.url} has no window of this stream. Nothing was recorded. Check "
            "landing_url, topic, subscription, api, and that the connection uses the org that was drained."
        )
    return manifests


def _check_missing(window_id: str, stream: Stream, catalog: LandingCatalog) -> None:
    """Check that a window that the listing lacks does not exist: others may be missing in the listing too."""
    if catalog.read_manifest(stream, window_id) is not None:
        raise LandingError(
            f"{stream}: the storage does not list window {window_id}, which exists: its listing is outdated, and may "
            "lack later windows too. Nothing was recorded. Run the restoration again."
        )


def _up_to(ordered: list[Manifest], last_window_id: str | None, stream: Stream) -> list[Manifest]:
    if last_window_id is None:
        return ordered
    ids = [manifest.window.window_id for manifest in ordered]
    if last_window_id not in ids:
        raise ConfigurationError(
            f"{stream}: the landing has no live window {last_window_id}, or it does not follow a recorded window. "
            "Nothing was recorded."
        )
    return ordered[: ids.index(last_window_id) + 1]


def _cause(store: ReplayStore, stream: Stream, position: Position) -> str | None:
    """Return the reason of the last reset, if the position is not the end of a window."""
    resets = store.resets(stream) if position.window_id is None else []
    return resets[-1].reason if resets else None


def _windows_after(position: Position, ordered: list[Manifest], cause: str | None, stream: Stream) -> list[Manifest]:
    """Return the windows that follow ``position``, which was set with the reason ``cause``."""
    if position.window_id is None and position.replay_id is None:
        return ordered
    for number, manifest in enumerate(ordered):
        window = manifest.window
        if window.window_id == position.window_id:
            return ordered[number + 1 :]
        interrupted = cause == _REASON.format(window.window_id)
        if interrupted or (position.window_id is not None and window.previous_window_id == position.window_id):
            return ordered[number:]
    description = "was set by hand" if position.window_id is None else f"is on window {position.window_id}"
    raise ConfigurationError(
        f"{stream}: the position ({position}) {description}, and the chain of landed windows does not include it. "
        "Nothing was recorded. To restore the position from the landing, first reset it to none "
        "(ResetReplayPositionOperator with replay_id=None)."
    )


def _record(stream: Stream, window: ReplayWindow, position: Position, store: ReplayStore, updated_by: str) -> Position:
    if window.previous_window_id != position.window_id:
        if position.window_id is not None:
            reason = _REASON.format(window.window_id)
            position = store.reset(stream, window.after, reason=reason, updated_by=updated_by)
        window = replace(window, previous_window_id=position.window_id)
    return store.advance(stream, position, window)
