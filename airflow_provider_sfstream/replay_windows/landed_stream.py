"""A stream with its landing and its replay store, and the comparison of the two.

Guarantee: a stream with landed windows is never started from the beginning, unless the user resets it. A store without
a record of it was lost, or is another one: from ``"latest"`` a drain would skip the events since the last landed
window, from ``"earliest"`` the events that have aged out since; a backfill would report landed hours as lost.

A store has a record of a stream after its first live window, mark, or reset by hand. This includes a reset to no
position, with which a user decides to start from the beginning. Landed backfill windows are no sign of a loss, because
a stream may be backfilled before its first live run.

The opposite is a landing without the window of the recorded position: an unmounted volume, a deleted folder, or another
URL. A drain would create the folder again and succeed, although all earlier windows are missing. A position that a user
sets by hand has no window, so a reset to the same replay ID accepts an empty landing.

A store that was restored from a backup has a record of the stream, but not of its last windows: a drain would land
their events a second time. The last recorded position in the landing detects it (:mod:`.recorded_positions`).

The very first window of a stream, landed and never recorded, looks like a loss. A retry of its run adopts it. Any other
run stops, and a restore adopts it then: nothing is lost, for any ``start_from``. The store is read a second time, so
that a first run that is slower than a parallel one does not stop any run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import LandingLostError, ReplayStoreLostError
from airflow_provider_sfstream.replay_windows.recorded_positions import RecordedPosition, RecordedPositions
from airflow_provider_sfstream.salesforce.streams import (
    Gap,
    ReplayWindow,
    RunIdentity,
    Span,
    span_between,
    window_id_for,
)
from airflow_provider_sfstream.salesforce.topics import SHORT_RETENTION, retention_by_kind

if TYPE_CHECKING:
    from airflow_provider_sfstream.landing.manifest import Manifest
    from airflow_provider_sfstream.replay_stores.base import Position

log = logging.getLogger(__name__)

CLOCKS_DIFFER = timedelta(minutes=1)
"""Longest time that a correct worker's clock may be behind Salesforce's."""


@dataclass(frozen=True)
class LandedStream(RecordedPositions):
    """A stream, its landing, and the store of its position.

    Every method raises :class:`SalesforceStreamError` if the replay store or the landing cannot be read.
    """

    look_up_retention: Callable[[], timedelta | None] | None = None
    """Callable that reads the retention from the definition of the events; returns ``None`` if it is unavailable."""

    @cached_property
    def known_retention(self) -> timedelta | None:
        """Return the retention of the events by Salesforce, by their kind or definition; ``None`` if it is not known.

        The definition is read once for a stream: the manifests record the result.
        """
        by_kind = retention_by_kind(self.stream.topic)
        if by_kind is not None or self.look_up_retention is None:
            return by_kind
        newest = self.manifest(self.position().window_id)
        return newest.retention if newest is not None and newest.retention is not None else self.look_up_retention()

    @property
    def retention(self) -> timedelta:
        """Return the minimum time that Salesforce retains the events of the stream: 24 hours if it is not known."""
        return self.known_retention or SHORT_RETENTION

    def breaks(self) -> list[Span]:
        """Return the spans of time in which the stream lost events, or may have: its gaps, and the time before a reset.

        Uncertain gaps are excluded: they belong to the Streaming API, which has no coverage that a gap could void.

        Coverage of a backfill window in one of these spans counts only if the window was drained after it: until the
        gap was detected, it was unknown that the earliest retained event was not the earliest of the retention. A reset
        by hand may have had the same cause, so it counts for the whole retention before it.
        """
        gaps = [gap for gap in self.store.gaps(self.stream) if gap.after is not None and not gap.uncertain]
        spans = [span_between(gap.since or gap.detected_at - self.retention, gap.detected_at) for gap in gaps]
        resets = self.store.resets(self.stream)
        spans += [span_between(reset.reset_at - self.retention, reset.reset_at) for reset in resets]
        return [span for span in spans if span is not None]

    def unbroken_since(self) -> datetime | None:
        """Return the end of the newest gap or reset, ``None`` if there was none."""
        return max((span.end for span in self.breaks()), default=None)

    def is_void(self, interval: Span, confirmed_at: datetime | None, now: datetime) -> bool:
        """Return whether the evidence of ``confirmed_at`` for the recorded result of ``interval`` is void: it is
        missing, ahead of the clock, or older than a break."""
        stream = self.stream
        if stream.api == "streaming" or confirmed_at is None:
            return True
        if confirmed_at > now + CLOCKS_DIFFER:
            log.warning("%s: the recorded result for %s has a time in the future and is ignored.", stream, interval)
            return True
        breaks = [span for span in self.breaks() if span.start < interval.end and interval.start < span.end]
        if any(confirmed_at < span.end for span in breaks):
            log.info("%s: the result for %s was recorded before a gap or reset and is ignored.", stream, interval)
            return True
        return False

    def record_missing(self, interval: Span, missing: Sequence[Span], detected_at: datetime) -> None:
        """Record the missing spans of ``interval`` as gaps, each once: the spans grow while events age out."""
        recorded_reasons = [gap.reason for gap in self.store.gaps(self.stream)] if missing else []
        for span in missing:
            reason = (
                f"events of {interval} are not landed and could no longer be read, on_expired='partial', from "
                f"{span.start.isoformat()} on"
            )
            if not any(recorded.startswith(reason) for recorded in recorded_reasons):
                reason += f", when first detected until {span.end.isoformat()}"
                gap = Gap(after=None, resumed_at=None, since=span.start, detected_at=detected_at, reason=reason)
                self.store.record_gap(self.stream, gap)

    def position(self) -> Position:
        return self.store.read(self.stream)

    def manifest(self, window_id: str | None) -> Manifest | None:
        """Return the manifest of a window, ``None`` if it has none. Each is read once: a manifest is written once."""
        if window_id and window_id not in self._manifests:
            manifest = self.catalog.read_manifest(self.stream, window_id)
            if manifest is None:
                return None
            self._manifests[window_id] = manifest
        return self._manifests[window_id] if window_id else None

    def with_continued(self, windows: Iterable[ReplayWindow]) -> list[ReplayWindow]:
        """Return ``windows``, each once, with the windows that the backfill windows among them continue."""
        found = {window.window_id: window for window in windows}
        for window in [*found.values()]:
            while window.kind == "backfill" and window.previous_window_id not in found:
                manifest = self.manifest(window.previous_window_id)
                if manifest is None:
                    break
                window = manifest.window
                found[window.window_id] = window
        return list(found.values())

    @cached_property
    def _manifests(self) -> dict[str, Manifest]:
        return {}

    def known_position(self, run: RunIdentity) -> Position:
        """Return the position from which ``run`` continues; an empty one only if the landing has no window either.

        :raises ReplayStoreLostError: the landing has windows of the stream, and the store has no record of it; or the
            store's position precedes the last recorded window.
        :raises LandingLostError: the landing lacks the window of the recorded position.
        """
        recorded = self.last_recorded()  # before the position is read, because the position is written first
        position = self._landed_position()
        self.require_not_before(position, recorded)
        newest = self.newest_unknown(position)
        if newest is None:
            return position
        position = self.position()
        # True if the run landed its window before any position was recorded, and that window has no predecessor.
        if position.fence > 0 or (newest.fence == 0 and self.finished(run, position)[1] is not None):
            return position
        raise ReplayStoreLostError(
            f"{self.stream}: the replay store has no record of this stream, but the landing {self.catalog.landing.url} "
            f"has windows of it, the newest {newest.window.window_id} of {newest.window.run}. The store was lost, or "
            "is another one than before (replay_store, replay_store_conn_id), or the stream's first window was not "
            "recorded in it. Nothing was read from Salesforce and nothing was moved. To continue where the landing "
            'ends, run RestoreReplayPositionOperator. For a first window with advance="manual" that is not committed '
            "yet, run CommitReplayPositionOperator instead. To start again at start_from, run "
            "ResetReplayPositionOperator with replay_id=None."
        )

    def _landed_position(self) -> Position:
        """Return the recorded position, whose window is in the landing or which has none."""
        position = self.position()
        while position.window_id is not None and self.manifest(position.window_id) is None:
            current = self.position()
            # Another run may have advanced the position and pruned this window after it was read.
            if current.window_id == position.window_id:
                replay_id = current.replay_id and current.replay_id.hex()
                raise LandingLostError(
                    f"{self.stream}: the landing {self.catalog.landing.url} does not contain window "
                    f"{position.window_id} of the recorded position. Its volume is not mounted, its files were deleted,"
                    " or landing_url has changed. No event was read from Salesforce and the position was not moved. "
                    "Mount or restore the landing, or correct landing_url, and clear the task. To continue with an "
                    f"empty landing, run ResetReplayPositionOperator with the same position, replay_id={replay_id!r}: "
                    "earlier windows are then missing."
                )
            position = current
        return position

    def require_not_before(self, position: Position, recorded: RecordedPosition | None) -> None:
        """Refuse a store whose ``position``, read after ``recorded``, was moved back before that."""
        if recorded is None or position.fence == 0 or not self.is_before(position, recorded):
            return
        location = "set by hand" if position.window_id is None else f"window {position.window_id}"
        raise ReplayStoreLostError(
            f"{self.stream}: the replay store's position ({position}, {location}) does not contain window "
            f"{recorded.window_id} (fence {recorded.fence}), which was recorded at {recorded.recorded_at.isoformat()}. "
            "The store was restored from a backup, or is another one than before (replay_store, replay_store_conn_id). "
            "Nothing was read from Salesforce and nothing was moved. To continue where the landing ends, run "
            "RestoreReplayPositionOperator. To drain again from an earlier position on purpose, run "
            "ResetReplayPositionOperator."
        )

    def newest_unknown(self, position: Position) -> Manifest | None:
        """Return the newest live window in the landing of a stream without a record in the store, read as ``position``.

        ``None`` if the store has a record of the stream, without reading the landing, or if there is no window.
        """
        return None if position.fence > 0 else self.catalog.newest_live(self.stream)

    def recorded_window(self, run: RunIdentity) -> ReplayWindow | None:
        """Return the live window that the store holds for ``run``, of any try; ``None`` if there is none."""
        recorded = [window for window in self.store.windows_of_run(self.stream, run) if window.kind == "live"]
        return recorded[-1] if recorded else None

    def finished(self, run: RunIdentity, position: Position) -> tuple[str, Manifest | None]:
        """Return the ID of the window that ``run`` lands from ``position``, and its manifest if a try finished it."""
        window_id = window_id_for(run, "live", position.replay_id, position.fence)
        return window_id, self.manifest(window_id)

    def already_drained(self, run: RunIdentity, position: Position) -> bool:
        """Return whether an earlier try of ``run`` landed its window: then a drain returns it and reads no event."""
        return self.recorded_window(run) is not None or self.finished(run, position)[1] is not None
