"""Incremental run: all events after the recorded position, as one replay window, exactly once.

Guarantee, for a run that is killed at any line and tried again: the committed windows end up as in an
undisturbed run. The order of writes is data files, manifest, position, ``recorded.json``. A try that finds

- a window of its run in the replay store returns it (killed after the position moved, or cleared later);
- a manifest of its run at the unmoved position adopts it (killed between manifest and position);
- neither of them starts again, and removes the unlisted files of the dead try at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from airflow_provider_sfstream.exceptions import (
    LandingError,
    PositionConflictError,
    ReplayIdLostError,
    ReplayStoreError,
)
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_stores.base import Position, ReplayStore
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.landing import NewWindow, land_window
from airflow_provider_sfstream.replay_windows.lost_positions import without_position
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.salesforce.streams import RunIdentity, window_id_for
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd
from airflow_provider_sfstream.streams.recovery import OnInvalidReplay
from airflow_provider_sfstream.streams.source import EventSource, StartFrom

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WindowRequest:
    """Request of one run for a drain.

    ``start_from`` is the start of a stream without a recorded position. With ``advance=False`` the window is landed,
    and :func:`commit_window` moves the position. ``again`` is for a run that has already recorded a window and
    continues to drain. ``accept_quiet_aging``: continue from the earliest event where a position of the Streaming API
    aged out on a quiet stream, and record an uncertain gap.
    """

    run: RunIdentity
    limits: DrainLimits
    start_from: StartFrom | bytes = StartFrom.EARLIEST
    on_invalid_replay: OnInvalidReplay = "fail"
    accept_quiet_aging: bool = False
    advance: bool = True
    again: bool = False


@dataclass(frozen=True)
class WindowOutcome:
    """A landed window. ``drained`` is false if an earlier try landed it; ``committed`` is true if the replay store's
    position covers it."""

    manifest: Manifest
    drained: bool
    committed: bool


def drain_window(
    landed: LandedStream,
    request: WindowRequest,
    *,
    source: EventSource | ConfirmedEnd,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> WindowOutcome:
    """Return the window of this run; drain it unless an earlier try did.

    :raises PositionConflictError: another run moved the position meanwhile; this run's files are never read.
    :raises ReplayStoreLostError: the store lacks windows that were recorded; nothing was read from Salesforce.
    :raises ReplayIdLostError: the position can no longer be read and ``on_invalid_replay`` is ``"fail"``.
    """
    run, catalog = request.run, landed.catalog
    before = landed.position()
    recorded = None if request.again else landed.recorded_window(run)
    if recorded is None:
        position = landed.known_position(run)
        if request.again:
            _refuse_if_retried(landed, run)
        elif position.fence != before.fence:
            # This try was stopped between the two reads. Its retry may have recorded the run's window since.
            recorded = landed.recorded_window(run)
    if recorded is not None:
        log.info("Run %s already recorded window %s; returning it.", run.run_id, recorded.window_id)
        return WindowOutcome(catalog.read_manifest_url(recorded.manifest_url), drained=False, committed=True)

    window_id, manifest = landed.finished(run, position)
    drained = manifest is None
    if manifest is None:
        manifest = _land(landed, request, position, window_id, source, now)
    else:
        log.info("Adopting window %s, which an earlier try finished but did not record.", window_id)
        catalog.verify(manifest)
    if request.advance:
        landed.advance(position, manifest.window)
    tidy(catalog, manifest)
    return WindowOutcome(manifest, drained=drained, committed=request.advance)


def _refuse_if_retried(landed: LandedStream, run: RunIdentity) -> None:
    """Stop a try that still runs although a later try of its run has recorded a window.

    Call it after the position was read.
    """
    recorded = landed.recorded_window(run)
    if recorded is not None and recorded.run.try_number > run.try_number:
        raise PositionConflictError(
            f"{landed.stream}: {run} is still running, but {recorded.run} has recorded window {recorded.window_id}. "
            "This try read nothing from Salesforce and moved nothing. No event is lost; the later try has the result."
        )


def tidy(catalog: LandingCatalog, manifest: Manifest) -> None:
    """Remove the remains of dead tries from the window's folder. Log failures: they must not fail the run."""
    try:
        catalog.remove_unlisted(manifest)
    except LandingError as error:
        log.warning("%s", error)


def commit_window(manifest: Manifest, *, store: ReplayStore, catalog: LandingCatalog) -> Position:
    """Move the position over a window that was drained with ``advance=False``. A repeated call has no effect.

    :raises PositionConflictError: the position is not, or no longer, the one that the window was drained from.
    :raises ReplayStoreLostError: the store lacks windows that were recorded; the position was not moved.
    :raises LandingError: a file of the window is missing; the position was not moved.
    """
    stream, window = manifest.stream, manifest.window
    landed = LandedStream(stream, catalog, store)
    recorded_last = landed.last_recorded()
    current = store.read(stream)
    if landed.is_recorded(window):
        log.info("Window %s is already recorded; the position of %s is not moved.", window.window_id, stream)
        return current
    # The ID depends on the replay ID and the fence that the window was drained from. Neither is enough alone: a
    # position can be set back, and a store that was restored from a backup repeats its fences.
    if window_id_for(window.run, "live", current.replay_id, current.fence) != window.window_id:
        raise PositionConflictError(_wrong_position_message(manifest, current))
    landed.require_not_before(current, recorded_last)
    catalog.verify(manifest)
    return landed.advance(current, window)


def _wrong_position_message(manifest: Manifest, current: Position) -> str:
    window = manifest.window
    since = "" if current.updated_at is None else f", since {current.updated_at.isoformat()}"
    by = "" if current.updated_by is None else f", by {current.updated_by}"
    return (
        f"{manifest.stream}: window {window.window_id} of {window.run} was drained from a position with fence "
        f"{manifest.fence}, but another one is recorded ({current}{since}{by}): the position was moved meanwhile, or "
        "the replay store was restored from a backup. The window was not recorded and the position was not moved, "
        "because events between the two could be skipped; none is lost. After a backup was restored, run "
        "RestoreReplayPositionOperator. Then clear the drain of that run, so that it drains from the recorded position."
    )


def _land(
    landed: LandedStream,
    request: WindowRequest,
    position: Position,
    window_id: str,
    source: EventSource | ConfirmedEnd,
    now: Callable[[], datetime],
) -> Manifest:
    """Land a window; if its position can no longer be read, continue after it only if the loss was accepted."""
    stream, catalog = landed.stream, landed.catalog
    retention = landed.retention
    after = position.replay_id if position.replay_id is not None else request.start_from
    confirms = not isinstance(source, ConfirmedEnd) and source.confirms_positions
    limits = _with_confirmation(request.limits, position, now(), retention) if confirms else request.limits
    previous = landed.manifest(position.window_id)
    unbroken_since, is_broken = _newest_break(landed) if after is StartFrom.EARLIEST else (None, False)
    new = NewWindow(
        stream=stream,
        run=request.run,
        window_id=window_id,
        kind="live",
        after=after,
        limits=limits,
        # Where a position can age out on a quiet stream, its age decides before the policy does.
        on_invalid_replay=request.on_invalid_replay if confirms else "fail",
        retention=retention,
        known_retention=landed.known_retention,
        unbroken_since=unbroken_since,
        is_broken=is_broken,
        previous=previous,
        previous_window_id=position.window_id,
        fence=position.fence,
    )
    try:
        manifest = land_window(new, source=source, catalog=catalog, now=now)
    except ReplayIdLostError as error:
        if isinstance(source, ConfirmedEnd):
            raise
        policy, accept_quiet_aging = request.on_invalid_replay, request.accept_quiet_aging
        new = without_position(new, landed, source, error, policy=policy, accept_quiet_aging=accept_quiet_aging)
        return land_window(new, source=source, catalog=catalog, now=now)
    is_empty = manifest.window.through == position.replay_id and not manifest.window.event_count
    if limits.confirm_timeout and is_empty:
        log.warning(
            "%s: no event was received, and Salesforce sent no newer position before the drain ended (%s). The "
            "position can be read for %.0f hours only. Set max_seconds of the first drain of a day to %.0f or more.",
            stream,
            manifest.stop_reason,
            retention.total_seconds() / 3600,
            limits.confirm_timeout,
        )
    return manifest


def _newest_break(landed: LandedStream) -> tuple[datetime | None, bool]:
    """Return the end of the newest gap or reset, and whether the stream counts as broken until its first answer.

    It does if its gaps cannot be read: Airflow before 3.3 does not report whether the Variable of a new stream exists.
    """
    try:
        return landed.unbroken_since(), False
    except ReplayStoreError:
        log.info("%s: gaps cannot be read, so the window covers no time before Salesforce's answer.", landed.stream)
        return None, True


def _with_confirmation(limits: DrainLimits, position: Position, now: datetime, retention: timedelta) -> DrainLimits:
    """Return limits that let a quiet stream confirm its position, if that is due: a third of the retention after the
    last confirmation; without one, in the first drain of each third of the retention (a day in UTC for 72 hours).

    A position that is neither moved nor confirmed can no longer be read after the retention.
    """
    updated_at, third = position.updated_at, retention.total_seconds() / 3
    if position.replay_id is None or updated_at is None:
        return limits
    if position.confirmed_at is None:
        is_due = updated_at.timestamp() // third < now.timestamp() // third
    else:
        is_due = (now - position.confirmed_at).total_seconds() >= third
    return replace(limits, confirm_timeout=max(CONFIRM_TIMEOUT, limits.confirm_timeout)) if is_due else limits
