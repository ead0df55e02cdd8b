"""The interval run: the events of a stretch of time, from landed windows where they are, from Salesforce where not.

Guarantees. A run returns the same windows however often it is tried, cleared or reprocessed: what it returned first is
recorded in the landing, and a later try reads that and nothing else. A backfill never moves the live position. What is
returned covers the interval, as far as the windows' own stretches of time say; what can no longer be had is named,
and accepted only with ``on_expired="partial"``, which records it as a gap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.drain.limits import DrainLimits
from airflow_provider_sfstream.drain.recovery import OnInvalidReplay
from airflow_provider_sfstream.drain.source import EventSource, StartFrom
from airflow_provider_sfstream.exceptions import ReplayIdLostError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.intervals import IntervalRecord, RecordedWindow, read_interval, write_interval
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.pruned import read_pruned
from airflow_provider_sfstream.protocol.streams import Gap, RunIdentity, Span, Stream, window_id_for
from airflow_provider_sfstream.protocol.topics import retention
from airflow_provider_sfstream.stores.base import ReplayStore
from airflow_provider_sfstream.windows.incremental import WindowRequest, drain_window, tidy
from airflow_provider_sfstream.windows.interval_plan import BusDrain, IntervalPlan, plan_interval
from airflow_provider_sfstream.windows.landing import NewWindow, land_window
from airflow_provider_sfstream.windows.spans import clip, stretch_of, subtract
from airflow_provider_sfstream.windows.stream_order import stream_order

log = logging.getLogger(__name__)

OnExpired = Literal["fail", "partial"]
OpenSource = Callable[[], AbstractContextManager[EventSource]]

_AROUND = timedelta(days=1)
"""How far beside the interval windows are looked for: events out of order, and positions to begin from."""


@dataclass(frozen=True)
class IntervalRequest:
    """What one run is to give.

    ``grace`` is how far past the interval's end events are still read, for those that come out of event-time order. A
    ``backfill`` leaves the position alone; any other run drains up to the interval's end first and moves it.
    Of ``limits`` only ``idle_timeout`` counts: an interval is read whole, and what bounds it is its end.
    """

    stream: Stream
    run: RunIdentity
    interval: Span
    grace: timedelta
    backfill: bool
    limits: DrainLimits
    start_from: StartFrom | bytes = StartFrom.EARLIEST
    on_invalid_replay: OnInvalidReplay = "fail"
    on_expired: OnExpired = "fail"

    @property
    def end(self) -> datetime:
        """The first event time that is not read any more."""
        return self.interval.end + self.grace


@dataclass(frozen=True)
class IntervalWindow:
    """A window to read, and whether it was ``landed`` before this run or drained from the ``bus`` for it."""

    manifest: Manifest
    origin: Literal["landed", "bus"]


@dataclass(frozen=True)
class IntervalOutcome:
    """The windows that hold the events of ``interval``, among others: filter by event time.

    ``missing`` is what is lost of it. ``drained`` is false when an earlier try's windows were returned.
    """

    interval: Span
    windows: tuple[IntervalWindow, ...]
    missing: tuple[Span, ...]
    drained: bool


def drain_interval(
    request: IntervalRequest,
    *,
    open_source: OpenSource,
    store: ReplayStore,
    catalog: LandingCatalog,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> IntervalOutcome:
    """Return the windows of this run's interval, draining what is not landed yet.

    :param open_source: gives a client; called only if something has to be drained.
    :raises ReplayIdLostError: part of the interval can no longer be read, and ``on_expired`` is ``"fail"``; or the live
        position cannot, and ``on_invalid_replay`` is ``"fail"``. Nothing was recorded.
    :raises SalesforceStreamError: anything else of the tree.
    """
    record = read_interval(catalog, request.stream, request.run, request.interval)
    drained = record is None
    if record is None:
        record = write_interval(catalog, _gather(request, open_source, store, catalog, now))
    else:
        log.info("Run %s already gave windows for %s; returning them.", request.run.run_id, request.interval)
    for span in record.missing:  # by the time of the record, so that another try records the same gap
        store.record_gap(request.stream, _gap(span, record.created_at))
    windows = tuple(
        IntervalWindow(catalog.read_manifest_url(window.manifest_url), window.origin) for window in record.windows
    )
    return IntervalOutcome(request.interval, windows, record.missing, drained)


def _gather(
    request: IntervalRequest,
    open_source: OpenSource,
    store: ReplayStore,
    catalog: LandingCatalog,
    now: Callable[[], datetime],
) -> IntervalRecord:
    """Find and drain what gives the interval, and return the record of it, not yet written."""
    if not request.backfill:
        _drain_live(request, open_source, store, catalog, now)
    plan = _plan(request, store, now)
    if plan.missing and request.on_expired == "fail":
        raise ReplayIdLostError(_lost(request, plan.missing, catalog))
    drained = list(_drain_from_bus(request, plan, open_source, store, catalog, now))
    missing = _missing(request, plan, drained)
    if missing and request.on_expired == "fail":
        raise ReplayIdLostError(_lost(request, missing, catalog))
    windows = stream_order((*plan.landed, *(each.window for each in drained if each.window.event_count)))
    return IntervalRecord(
        stream=request.stream,
        run=request.run,
        interval=request.interval,
        windows=tuple(
            # By the run, not by this try: what an earlier try drained is from the bus all the same.
            RecordedWindow(each.window_id, each.manifest_url, "bus" if each.run.key == request.run.key else "landed")
            for each in windows
        ),
        missing=missing,
        created_at=now(),
        provider_version=__version__,
    )


def _drain_live(
    request: IntervalRequest,
    open_source: OpenSource,
    store: ReplayStore,
    catalog: LandingCatalog,
    now: Callable[[], datetime],
) -> None:
    """Move the position to the interval's end, unless it is there already."""
    stream = request.stream
    position = store.read(stream)
    head = catalog.read_manifest(stream, position.window_id) if position.window_id else None
    if head is not None and head.window.covered_until is not None and head.window.covered_until >= request.end:
        return
    end = request.interval.end
    limits = DrainLimits(
        idle_timeout=request.limits.idle_timeout, until=end, grace=request.grace, stay_until=request.end
    )
    live = WindowRequest(
        stream=stream,
        run=request.run,
        limits=limits,
        start_from=request.start_from,
        on_invalid_replay=request.on_invalid_replay,
    )
    with open_source() as source:
        drain_window(live, source=source, store=store, catalog=catalog, now=now)


def _plan(request: IntervalRequest, store: ReplayStore, now: Callable[[], datetime]) -> IntervalPlan:
    stream, interval = request.stream, request.interval
    windows = store.windows_overlapping(stream, interval.start - _AROUND, request.end + _AROUND)
    before = store.window_before(stream, interval.start)
    known = {window.window_id: window for window in (*([before] if before else []), *windows)}
    return plan_interval(
        interval,
        grace=request.grace,
        windows=list(known.values()),
        # Only a lost position says that the bus has a hole; what a backfill found to be expired is just old.
        gaps=[gap for gap in store.gaps(stream) if gap.after is not None],
        horizon=now() - retention(stream.topic),
    )


def _drain_from_bus(
    request: IntervalRequest,
    plan: IntervalPlan,
    open_source: OpenSource,
    store: ReplayStore,
    catalog: LandingCatalog,
    now: Callable[[], datetime],
) -> Iterator[Manifest]:
    if not plan.drains:
        return
    with open_source() as source:
        for part in plan.drains:
            manifest = _backfill_window(request, part, source, catalog, now)
            store.record_backfill(request.stream, manifest.window)
            tidy(catalog, manifest)
            yield manifest


def _backfill_window(
    request: IntervalRequest,
    part: BusDrain,
    source: EventSource,
    catalog: LandingCatalog,
    now: Callable[[], datetime],
) -> Manifest:
    stream, run = request.stream, request.run
    # Several parts of an interval can begin after one position: the time makes their windows differ.
    window_id = window_id_for(run, "backfill", part.after, int(part.span.start.timestamp() * 1_000))
    manifest = catalog.read_manifest(stream, window_id)
    if manifest is not None:
        log.info("Adopting backfill window %s, which an earlier try finished.", window_id)
        catalog.verify(manifest)
        return manifest
    log.info("Draining %s of %s from the bus, as a backfill window.", part.span, stream)
    # Events that come late are kept too, on both sides as far as they may be late.
    since = max(request.interval.start, part.span.start - request.grace)
    end = min(request.end, part.span.end + request.grace)
    new = NewWindow(
        stream=stream,
        run=run,
        window_id=window_id,
        kind="backfill",
        start=StartFrom.EARLIEST if part.after is None else part.after,
        limits=DrainLimits(idle_timeout=request.limits.idle_timeout, since=since, until=end, stay_until=end),
        on_invalid_replay="fail",
        begins_at=part.span.start,
    )
    try:
        return land_window(new, source=source, catalog=catalog, now=now)
    except ReplayIdLostError as error:
        if part.after is None:
            raise
        # Not a loss: all of the part is young enough to be read from the earliest event on.
        log.warning("%s: reading %s from the earliest event on instead: %s", stream, part.span, error)
        return land_window(replace(new, start=StartFrom.EARLIEST), source=source, catalog=catalog, now=now)


def _missing(request: IntervalRequest, plan: IntervalPlan, drained: Sequence[Manifest]) -> tuple[Span, ...]:
    """Return what neither the landing nor the bus gave of the interval."""
    covered = [span for manifest in drained if (span := stretch_of(manifest.window)) is not None]
    left = subtract(clip((part.span for part in plan.drains), request.interval), covered)
    return tuple(sorted((*plan.missing, *left)))


def _lost(request: IntervalRequest, missing: Sequence[Span], catalog: LandingCatalog) -> str:
    hours = retention(request.stream.topic).total_seconds() / 3600
    pruned = read_pruned(catalog.landing, request.stream)
    landed = "was never landed" if pruned is None else f"is not landed ({pruned})"
    return (
        f"{request.stream}: of the interval {request.interval}, {', '.join(map(str, missing))} {landed} and "
        f"can no longer be read: Salesforce keeps its events for {hours:.0f} hours, or the stream was reset. "
        'Nothing is recorded for this run. To take what there is, set on_expired="partial"; that records the gap.'
    )


def _gap(span: Span, detected_at: datetime) -> Gap:
    reason = f"{span} is not landed and could no longer be read, on_expired='partial'"
    return Gap(after=None, resumed_at=None, since=span.start, detected_at=detected_at, reason=reason)
