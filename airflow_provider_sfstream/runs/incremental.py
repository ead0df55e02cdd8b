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
from datetime import UTC, datetime

from airflow_provider_sfstream.drain.limits import DrainLimits
from airflow_provider_sfstream.exceptions import LandingError, PositionConflictError, ReplayIdLostError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.protocol.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.protocol.manifest import Manifest
from airflow_provider_sfstream.protocol.streams import ReplayWindow, RunIdentity, Stream, window_id_for
from airflow_provider_sfstream.protocol.topics import retention
from airflow_provider_sfstream.reading.recovery import OnInvalidReplay
from airflow_provider_sfstream.reading.source import EventSource, StartFrom
from airflow_provider_sfstream.runs.landing import NewWindow, land_window
from airflow_provider_sfstream.runs.lost_stores import known_position
from airflow_provider_sfstream.runs.silence import aged_out_in_silence
from airflow_provider_sfstream.stores.base import Position, ReplayStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WindowRequest:
    """What one run is to drain.

    ``start_from`` is where a stream without a recorded position begins. With ``advance=False`` the window is
    landed and the position left to :func:`commit_window`. ``again`` is for a
    run that has recorded a window already and drains on.
    """

    stream: Stream
    run: RunIdentity
    limits: DrainLimits
    start_from: StartFrom | bytes = StartFrom.EARLIEST
    on_invalid_replay: OnInvalidReplay = "fail"
    advance: bool = True
    again: bool = False


@dataclass(frozen=True)
class WindowOutcome:
    """A landed window. ``drained`` is false when an earlier try's window was returned; ``committed`` says
    whether the replay store's position covers it."""

    manifest: Manifest
    drained: bool
    committed: bool


def drain_window(
    request: WindowRequest,
    *,
    source: EventSource,
    store: ReplayStore,
    catalog: LandingCatalog,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> WindowOutcome:
    """Return the window of this run, draining it unless an earlier try did.

    :raises PositionConflictError: another run moved the position meanwhile; this run's files are never read.
    :raises ReplayStoreLostError: the store knows nothing of the stream, whose windows are in the landing.
    :raises ReplayIdLostError: the position can no longer be read and ``on_invalid_replay`` is ``"fail"``.
    :raises SalesforceStreamError: anything else of the tree; the position was not moved.
    """
    stream, run = request.stream, request.run
    recorded = None if request.again else recorded_window(stream, run, store)
    if recorded is not None:
        log.info("Run %s already recorded window %s; returning it.", run.run_id, recorded.window_id)
        return WindowOutcome(catalog.read_manifest_url(recorded.manifest_url), drained=False, committed=True)

    position = known_position(stream, run, store=store, catalog=catalog)
    window_id, manifest = _finished(stream, run, position, catalog)
    drained = manifest is None
    if manifest is None:
        manifest = _land(request, position, window_id, source, catalog, now)
    else:
        log.info("Adopting window %s, which an earlier try finished but did not record.", window_id)
        catalog.verify(manifest)
    if request.advance:
        store.advance(stream, position, manifest.window)
    tidy(catalog, manifest)
    return WindowOutcome(manifest, drained=drained, committed=request.advance)


def tidy(catalog: LandingCatalog, manifest: Manifest) -> None:
    """Remove what dead tries left beside the window, if that can be done: it is safe, and no reason to fail."""
    try:
        catalog.remove_unlisted(manifest)
    except LandingError as error:
        log.warning("%s", error)


def already_drained(
    stream: Stream, run: RunIdentity, position: Position, *, store: ReplayStore, catalog: LandingCatalog
) -> bool:
    """Return whether an earlier try of ``run`` made its window, so that :func:`drain_window` returns it without reading
    an event: it is recorded, or finished from ``position`` and not recorded yet. Changes nothing.

    :raises SalesforceStreamError: if the replay store or the landing cannot be read.
    """
    return recorded_window(stream, run, store) is not None or _finished(stream, run, position, catalog)[1] is not None


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


def recorded_window(stream: Stream, run: RunIdentity, store: ReplayStore) -> ReplayWindow | None:
    """Return the live window that the store holds for ``run``, of any try; ``None`` if it made none."""
    recorded = [window for window in store.windows_of_run(stream, run) if window.kind == "live"]
    return recorded[-1] if recorded else None


def _finished(
    stream: Stream, run: RunIdentity, position: Position, catalog: LandingCatalog
) -> tuple[str, Manifest | None]:
    """Return the id of the window that ``run`` makes from ``position``, and its manifest if a try finished it."""
    window_id = window_id_for(run, "live", position.replay_id, position.fence)
    return window_id, catalog.read_manifest(stream, window_id)


def _land(
    request: WindowRequest,
    position: Position,
    window_id: str,
    source: EventSource,
    catalog: LandingCatalog,
    now: Callable[[], datetime],
) -> Manifest:
    stream = request.stream
    limits = _confirming(request, position, now())
    previous = catalog.read_manifest(stream, position.window_id) if position.window_id else None
    new = NewWindow(
        stream=stream,
        run=request.run,
        window_id=window_id,
        kind="live",
        start=position.replay_id if position.replay_id is not None else request.start_from,
        limits=limits,
        on_invalid_replay=request.on_invalid_replay,
        previous=previous,
        previous_window_id=position.window_id,
        fence=position.fence,
    )
    if not source.confirms_positions and aged_out_in_silence(stream, previous, catalog, now()):
        return _land_after_silence(new, source, catalog, now)
    manifest = land_window(new, source=source, catalog=catalog, now=now)
    if limits.confirm_timeout and manifest.window.through == position.replay_id and not manifest.window.event_count:
        log.warning(
            "%s: nothing came, and Salesforce did not say before the drain ended (%s) that this is the end of the "
            "stream. The position can be read for %.0f hours only. Give the first drain of a day max_seconds of at "
            "least %.0f.",
            stream,
            manifest.stop_reason,
            retention(stream.topic).total_seconds() / 3600,
            limits.confirm_timeout,
        )
    return manifest


def _land_after_silence(
    new: NewWindow, source: EventSource, catalog: LandingCatalog, now: Callable[[], datetime]
) -> Manifest:
    """Land what came after a position that may have aged out, though nothing after it has."""
    try:
        return land_window(replace(new, on_invalid_replay="fail"), source=source, catalog=catalog, now=now)
    except ReplayIdLostError:
        log.info(
            "%s: the last event is too old for its replay ID to be read. Nothing is lost: the stream was seen quiet "
            "less than its retention ago, so that all that came since is read from the earliest event on.",
            new.stream,
        )
    begins_at = None if new.previous is None else new.previous.window.covered_until
    earliest = replace(new, start=StartFrom.EARLIEST, begins_at=begins_at)
    return land_window(earliest, source=source, catalog=catalog, now=now)


def _confirming(request: WindowRequest, position: Position, now: datetime) -> DrainLimits:
    """Return limits that let a quiet stream confirm its position, if that is due: a third of the retention after it
    was confirmed last, or with the first drain of a day (UTC) where it never was.

    A position that is neither moved nor confirmed can no longer be read after 72 hours, though nothing was published.
    """
    recorded, limits = position.updated_at, request.limits
    if position.replay_id is None or recorded is None:
        return limits
    if position.confirmed_at is None:
        is_due = recorded.astimezone(UTC).date() < now.astimezone(UTC).date()
    else:
        is_due = now - position.confirmed_at >= retention(request.stream.topic) / 3
    return replace(limits, confirm_timeout=max(CONFIRM_TIMEOUT, limits.confirm_timeout)) if is_due else limits
