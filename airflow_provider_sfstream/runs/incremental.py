"""The incremental run: everything after the recorded position, as one replay window, exactly once.

Guarantee, for a run that is killed at any line and tried again: the committed windows end up as in an
undisturbed run. The order of writes is data files, manifest, position. A try that finds

- a window of its run in the replay store returns it (killed after the position moved, or cleared later);
- a manifest of its run at the unmoved position adopts it (killed between manifest and position);
- anything less starts over, beside the unlisted files of the dead try, which are removed at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from airflow_provider_sfstream.drain.limits import DrainLimits
from airflow_provider_sfstream.exceptions import LandingError, PositionConflictError, ReplayIdLostError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.protocol.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.protocol.manifest import Manifest
from airflow_provider_sfstream.protocol.streams import RunIdentity, window_id_for
from airflow_provider_sfstream.protocol.topics import retention
from airflow_provider_sfstream.reading.recovery import OnInvalidReplay
from airflow_provider_sfstream.reading.source import EventSource, StartFrom
from airflow_provider_sfstream.runs.known_places import known_places
from airflow_provider_sfstream.runs.landed_stream import LandedStream
from airflow_provider_sfstream.runs.landing import NewWindow, land_window
from airflow_provider_sfstream.runs.lost_positions import accepted_policy, aged_out_in_silence
from airflow_provider_sfstream.stores.base import Position, ReplayStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WindowRequest:
    """What one run is to drain.

    ``start_from`` is where a stream without a recorded position begins. With ``advance=False`` the window is
    landed and the position left to :func:`commit_window`. ``again`` is for a
    run that has recorded a window already and drains on. ``parallel_streams``: subscriptions side by side, where replay
    IDs are known to begin them at.
    """

    run: RunIdentity
    limits: DrainLimits
    start_from: StartFrom | bytes = StartFrom.EARLIEST
    on_invalid_replay: OnInvalidReplay = "fail"
    advance: bool = True
    again: bool = False
    parallel_streams: int = 1


@dataclass(frozen=True)
class WindowOutcome:
    """A landed window. ``drained`` is false when an earlier try's window was returned; ``committed`` says
    whether the replay store's position covers it."""

    manifest: Manifest
    drained: bool
    committed: bool


def drain_window(
    landed: LandedStream,
    request: WindowRequest,
    *,
    source: EventSource,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> WindowOutcome:
    """Return the window of this run, draining it unless an earlier try did.

    :raises PositionConflictError: another run moved the position meanwhile; this run's files are never read.
    :raises ReplayStoreLostError: the store knows nothing of the stream, whose windows are in the landing.
    :raises ReplayIdLostError: the position can no longer be read and ``on_invalid_replay`` is ``"fail"``.
    :raises SalesforceStreamError: anything else of the tree; the position was not moved.
    """
    run, catalog = request.run, landed.catalog
    recorded = None if request.again else landed.recorded_window(run)
    if recorded is not None:
        log.info("Run %s already recorded window %s; returning it.", run.run_id, recorded.window_id)
        return WindowOutcome(catalog.read_manifest_url(recorded.manifest_url), drained=False, committed=True)

    position = landed.known_position(run)
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


def tidy(catalog: LandingCatalog, manifest: Manifest) -> None:
    """Remove what dead tries left beside the window, if that can be done: it is safe, and no reason to fail."""
    try:
        catalog.remove_unlisted(manifest)
    except LandingError as error:
        log.warning("%s", error)


def commit_window(manifest: Manifest, *, store: ReplayStore, catalog: LandingCatalog) -> Position:
    """Move the position over a window that was drained with ``advance=False``. Doing it again changes nothing.

    :raises PositionConflictError: the position is not, or no longer, the one that the window was drained from.
    :raises LandingError: a file of the window is missing; the position was not moved.
    """
    stream, window = manifest.stream, manifest.window
    current = store.read(stream)
    if any(recorded.window_id == window.window_id for recorded in store.windows_of_run(stream, window.run)):
        log.info("Window %s is already recorded; the position of %s stays.", window.window_id, stream)
        return current
    # The id says which replay ID and fence the window was drained from. Neither would do alone: a position can be set
    # back, and fences come again in a store that came back from a backup.
    if window_id_for(window.run, "live", current.replay_id, current.fence) != window.window_id:
        raise PositionConflictError(_not_its_position(manifest, current))
    catalog.verify(manifest)
    return store.advance(stream, current, window)


def _not_its_position(manifest: Manifest, current: Position) -> str:
    window = manifest.window
    since = "" if current.updated_at is None else f", since {current.updated_at.isoformat()}"
    by = "" if current.updated_by is None else f", by {current.updated_by}"
    return (
        f"{manifest.stream}: window {window.window_id} of {window.run} was drained from another position, with fence "
        f"{manifest.fence}, than the one that is recorded ({current}{since}{by}): somebody moved it meanwhile, or the "
        "replay store came back from a backup. The window was not recorded and the position was not moved, because "
        "events between the two could be skipped; none is lost. After a backup was restored, run "
        "RestoreReplayPositionOperator. Clear the drain of that run, so that it drains from the position as it is then."
    )


def _land(
    landed: LandedStream,
    request: WindowRequest,
    position: Position,
    window_id: str,
    source: EventSource,
    now: Callable[[], datetime],
) -> Manifest:
    """Land a window; over a position that can no longer be read, if nothing is lost, or that loss was accepted."""
    stream, catalog = landed.stream, landed.catalog
    kept, policy = retention(stream.topic), request.on_invalid_replay
    start = position.replay_id if position.replay_id is not None else request.start_from
    limits = _confirming(request.limits, position, now(), kept)
    previous = landed.manifest(position.window_id)
    was_quiet = not source.confirms_positions and aged_out_in_silence(landed, previous, now())
    new = NewWindow(
        stream=stream,
        run=request.run,
        window_id=window_id,
        kind="live",
        start=start,
        limits=limits,
        on_invalid_replay="fail" if was_quiet else policy,
        previous=previous,
        previous_window_id=position.window_id,
        fence=position.fence,
        places=known_places(
            landed, start, None if previous is None else previous.window, streams=request.parallel_streams, now=now()
        ),
        parallel_streams=request.parallel_streams,
    )
    try:
        manifest = land_window(new, source=source, catalog=catalog, now=now)
    except ReplayIdLostError:
        if was_quiet and previous is not None:
            log.info(
                "%s: the last event is too old for its replay ID to be read. Nothing is lost: the stream was seen "
                "quiet less than its retention ago, so that all that came since is read from the earliest event on.",
                stream,
            )
            begins_at = previous.window.covered_until
            new = replace(new, start=StartFrom.EARLIEST, begins_at=begins_at, on_invalid_replay=policy)
        elif policy == "fail" and (accepted := accepted_policy(landed, position)) is not None:
            new = replace(new, on_invalid_replay=accepted)
        else:
            raise
        return land_window(new, source=source, catalog=catalog, now=now)
    nothing_came = manifest.window.through == position.replay_id and not manifest.window.event_count
    if limits.confirm_timeout and nothing_came and not was_quiet:
        log.warning(
            "%s: nothing came, and Salesforce did not say before the drain ended (%s) that this is the end of the "
            "stream. The position can be read for %.0f hours only. Give the first drain of a day max_seconds of at "
            "least %.0f.",
            stream,
            manifest.stop_reason,
            kept.total_seconds() / 3600,
            limits.confirm_timeout,
        )
    return manifest


def _confirming(limits: DrainLimits, position: Position, now: datetime, kept: timedelta) -> DrainLimits:
    """Return limits that let a quiet stream confirm its position, if that is due: a third of the retention after it
    was confirmed last, or with the first drain of a day (UTC) where it never was.

    A position that is neither moved nor confirmed can no longer be read after 72 hours, though nothing was published.
    """
    recorded = position.updated_at
    if position.replay_id is None or recorded is None:
        return limits
    if position.confirmed_at is None:
        is_due = recorded.astimezone(UTC).date() < now.astimezone(UTC).date()
    else:
        is_due = now - position.confirmed_at >= kept / 3
    return replace(limits, confirm_timeout=max(CONFIRM_TIMEOUT, limits.confirm_timeout)) if is_due else limits
