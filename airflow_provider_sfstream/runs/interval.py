"""The interval run: the events of a span of time, from landed windows where they are, from Salesforce where not.

Guarantees. Every landed event counts in one interval, however wrong its event time is, and a run gives what counts in
its own. What a live run landed itself, it gives whole: late events too. An interval is complete when the server said
so, for a moment past its end; only then is the answer recorded, and given again however often the run is tried, cleared
or reprocessed. Until then whoever asks looks again. A backfill never moves the live position. What can no longer be had
is named, and accepted only with ``on_expired="partial"``, which records it as a gap.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.drain.limits import DrainLimits
from airflow_provider_sfstream.drain.seen_end import SeenEnd
from airflow_provider_sfstream.exceptions import ReplayIdLostError
from airflow_provider_sfstream.landing.intervals import IntervalRecord, RecordedWindow, read_interval, write_interval
from airflow_provider_sfstream.landing.pruned import read_pruned
from airflow_provider_sfstream.protocol.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.protocol.manifest import Manifest
from airflow_provider_sfstream.protocol.streams import Gap, ReplayWindow, RunIdentity, Span, window_id_for
from airflow_provider_sfstream.protocol.topics import retention
from airflow_provider_sfstream.reading.recovery import OnInvalidReplay
from airflow_provider_sfstream.reading.source import EventSource, StartFrom
from airflow_provider_sfstream.runs.incremental import WindowRequest, drain_window, tidy
from airflow_provider_sfstream.runs.interval_plan import (
    BusDrain,
    IntervalPlan,
    least_events,
    may_count_in,
    plan_interval,
)
from airflow_provider_sfstream.runs.known_places import known_places
from airflow_provider_sfstream.runs.landed_stream import LandedStream
from airflow_provider_sfstream.runs.landing import NewWindow, land_window
from airflow_provider_sfstream.runs.spans import span_between, span_of, subtract, union
from airflow_provider_sfstream.runs.stream_order import stream_order

log = logging.getLogger(__name__)

OnExpired = Literal["fail", "partial"]
OpenSource = Callable[[], AbstractContextManager[EventSource]]
Admit = Callable[[int], None]
"""Called with how many events drains beside the live one will be given at least; raises to keep them from beginning."""

_AROUND = timedelta(days=1)
"""How far beside the interval windows are looked for: positions to begin from, and links between live windows."""


@dataclass(frozen=True)
class IntervalRequest:
    """What one run is to give.

    A ``backfill`` leaves the position alone; any other run drains to the end of the stream first and moves it. An
    interval is read whole: of ``limits`` only ``idle_timeout`` counts, and ``wait_for_confirmation``: to wait up to 300
    seconds for the server to say that this is the end; or it was seen elsewhere already (``end_seen``). With
    ``reuse=False`` nothing that was recorded or landed before answers for the interval: it is drained anew, as long as
    Salesforce has it.
    """

    run: RunIdentity
    interval: Span
    backfill: bool
    limits: DrainLimits
    start_from: StartFrom | bytes = StartFrom.EARLIEST
    on_invalid_replay: OnInvalidReplay = "fail"
    on_expired: OnExpired = "fail"
    reuse: bool = True
    end_seen: SeenEnd | None = None
    parallel_streams: int = 1

    @property
    def drain_limits(self) -> DrainLimits:
        """How each of its drains ends."""
        waits = self.limits.wait_for_confirmation
        return DrainLimits(
            idle_timeout=self.limits.idle_timeout,
            confirm_timeout=CONFIRM_TIMEOUT if waits else 0.0,
            wait_for_confirmation=waits,
            to_the_end=True,
        )


@dataclass(frozen=True)
class IntervalWindow:
    """A window to read, and whether it was ``landed`` before this run or drained from the ``bus`` for it."""

    manifest: Manifest
    origin: Literal["landed", "bus"]


@dataclass(frozen=True)
class IntervalOutcome:
    """The windows that hold the events that count in ``interval``, among others: filter by the time they count at.

    ``confirmed_at`` is a moment past the interval's end for which the server said that these are all; ``None`` if it
    has not said so yet: then what comes later for the interval is given by the run that lands it. ``missing`` is what
    is lost of it. ``drained`` is false when an earlier try's answer was returned.
    """

    interval: Span
    windows: tuple[IntervalWindow, ...]
    missing: tuple[Span, ...]
    confirmed_at: datetime | None
    drained: bool


def drain_interval(
    landed: LandedStream,
    request: IntervalRequest,
    *,
    open_source: OpenSource,
    admit: Admit | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], None] = time.sleep,
) -> IntervalOutcome:
    """Return the windows of this run's interval, draining what is not landed yet.

    :param open_source: gives a client; called only if something has to be drained.
    :param admit: called before a part of the interval is drained beside the live windows. What it raises ends the run.
    :raises ReplayIdLostError: part of the interval can no longer be read, and ``on_expired`` is ``"fail"``; or the live
        position cannot, and ``on_invalid_replay`` is ``"fail"``. Nothing was recorded.
    :raises ReplayStoreLostError: the store knows nothing of the stream, whose windows are in the landing.
    :raises SalesforceStreamError: anything else of the tree.
    """
    stream, catalog = landed.stream, landed.catalog
    record = read_interval(catalog, stream, request.run, request.interval) if request.reuse else None
    drained = record is None
    if record is None:
        record = _Gathering(landed, request, open_source, admit, now, sleep).record()
        if record.confirmed_at is not None:
            record = write_interval(catalog, record, replace=not request.reuse)
    else:
        log.info("Run %s already gave windows for %s; returning them.", request.run.run_id, request.interval)
    for span in record.missing:  # by the time of the record, so that another try records the same gap
        landed.store.record_gap(stream, _gap(span, record.created_at))
    windows = tuple(
        IntervalWindow(catalog.read_manifest_url(window.manifest_url), window.origin) for window in record.windows
    )
    return IntervalOutcome(request.interval, windows, record.missing, record.confirmed_at, drained)


@dataclass
class _Gathering:
    """Finds and drains what gives the interval of one request."""

    landed: LandedStream
    request: IntervalRequest
    open_source: OpenSource
    admit: Admit | None
    now: Callable[[], datetime]
    sleep: Callable[[float], None]

    def __post_init__(self) -> None:
        self.stream, self.catalog, self.store = self.landed.stream, self.landed.catalog, self.landed.store

    def record(self) -> IntervalRecord:
        """Return the record of what gives the interval, not yet written."""
        request = self.request
        # A drain shows the end of the stream for the moment at which it began. Clocks may differ by a little.
        ahead = (request.interval.end - self.now()).total_seconds()
        if ahead > 0:
            self.sleep(ahead)
        if request.backfill:
            self.landed.known_position(request.run)
        else:
            self._drain_live()
        windows = self._windows()
        plan = self._accepted(self._plan(windows))
        drained = [manifest.window for manifest in self._drain_from_bus(plan)]
        plan = self._accepted(_without_what_aged_out(plan, drained))
        landed = (*self.store.windows_of_run(self.stream, request.run), *plan.landed)
        given = [window for window in stream_order((*landed, *drained)) if self._may_count(window)]
        return IntervalRecord(
            stream=self.stream,
            run=request.run,
            interval=request.interval,
            windows=tuple(
                # By the run, not by this try: what an earlier try drained is from the bus all the same.
                RecordedWindow(each.window_id, each.manifest_url, self._origin(each))
                for each in given
            ),
            missing=plan.missing,
            confirmed_at=self._confirmed_at(plan, [*windows, *drained]),
            created_at=self.now(),
            provider_version=__version__,
        )

    def _may_count(self, window: ReplayWindow) -> bool:
        """Return whether the run gives an event of ``window``. What it landed itself, it gives whole."""
        if window.kind == "live" and self._origin(window) == "bus":
            return window.event_count > 0
        return may_count_in(self.request.interval, self.catalog.read_manifest_url(window.manifest_url))

    def _origin(self, window: ReplayWindow) -> Literal["landed", "bus"]:
        return "bus" if window.run.key == self.request.run.key else "landed"

    def _drain_live(self) -> None:
        """Move the position to the end of the stream, unless that was confirmed past the interval's end already."""
        request, position = self.request, self.landed.position()
        if request.reuse and position.confirmed_at is not None and position.confirmed_at >= request.interval.end:
            return
        live = WindowRequest(
            run=request.run,
            limits=request.drain_limits,
            start_from=request.start_from,
            on_invalid_replay=request.on_invalid_replay,
            again=True,
            parallel_streams=request.parallel_streams,
        )
        seen = request.end_seen
        if seen is not None and position.replay_id == seen.after:
            live = replace(live, limits=request.limits, parallel_streams=1)  # there is nothing to read
            drain_window(self.landed, live, source=seen, now=seen.now)
            return
        with self.open_source() as source:
            drain_window(self.landed, live, source=source, now=self.now)

    def _windows(self) -> list[ReplayWindow]:
        stream, interval = self.stream, self.request.interval
        windows = self.store.windows_overlapping(stream, interval.start - _AROUND, interval.end + _AROUND)
        before = self.store.window_before(stream, interval.start)
        return list({window.window_id: window for window in (*([before] if before else []), *windows)}.values())

    def _plan(self, windows: list[ReplayWindow]) -> IntervalPlan:
        request = self.request
        plan = plan_interval(
            request.interval,
            windows=windows,
            # Only a lost position says that the bus has a hole; what a backfill found to be expired is just old.
            gaps=[gap for gap in self.store.gaps(self.stream) if gap.after is not None],
            horizon=self.now() - retention(self.stream.topic),
            live=not request.backfill,
        )
        if request.reuse:
            return plan
        anew = plan_interval(
            request.interval, windows=[], gaps=[], horizon=self.now() - retention(self.stream.topic), live=False
        )
        return replace(plan, drains=anew.drains, unconfirmed=())

    def _accepted(self, plan: IntervalPlan) -> IntervalPlan:
        """Return ``plan``, if what is missing of it is accepted."""
        if plan.missing and self.request.on_expired == "fail":
            raise ReplayIdLostError(self._lost(plan))
        return plan

    def _drain_from_bus(self, plan: IntervalPlan) -> Iterator[Manifest]:
        if not plan.drains:
            return
        if self.admit is not None:
            begin = min(part.span.start for part in plan.drains)
            self.admit(least_events(plan.drains, self.store.windows_overlapping(self.stream, begin, self.now())))
        with self.open_source() as source:
            for part in plan.drains:
                manifest = self._backfill_window(part, source)
                self.store.record_backfill(self.stream, manifest.window)
                tidy(self.catalog, manifest)
                yield manifest

    def _backfill_window(self, part: BusDrain, source: EventSource) -> Manifest:
        """Land everything after ``part.after``: an event that counts in the part may stand anywhere behind that."""
        request = self.request
        # Several parts of an interval can begin after one position: the time makes their windows differ.
        place = part.span.start if request.reuse else self.now()
        window_id = window_id_for(request.run, "backfill", part.after, int(place.timestamp() * 1_000))
        manifest = self.landed.manifest(window_id)
        if manifest is not None:
            log.info("Adopting backfill window %s, which an earlier try finished.", window_id)
            self.catalog.verify(manifest)
            return manifest
        log.info("Draining %s of %s from the bus, as a backfill window.", part.span, self.stream)
        start = StartFrom.EARLIEST if part.after is None else part.after
        new = NewWindow(
            stream=self.stream,
            run=request.run,
            window_id=window_id,
            kind="backfill",
            start=start,
            limits=request.drain_limits,
            on_invalid_replay="fail",
            begins_at=None if part.after is None else part.span.start,
            places=known_places(self.landed, start, part.span.start, streams=request.parallel_streams, now=self.now()),
            parallel_streams=request.parallel_streams,
        )
        try:
            return land_window(new, source=source, catalog=self.catalog, now=self.now)
        except ReplayIdLostError as error:
            if part.after is None:
                raise
            # Not a loss: all of the part is young enough to be read from the earliest event on.
            log.warning("%s: reading %s from the earliest event on instead: %s", self.stream, part.span, error)
            return self._backfill_window(replace(part, after=None), source)

    def _confirmed_at(self, plan: IntervalPlan, windows: list[ReplayWindow]) -> datetime | None:
        """Return the moment for which the interval's events were confirmed to be all, ``None`` if they were not."""
        spans = [span for window in windows if (span := span_of(window)) is not None]
        wanted = subtract([self.request.interval], plan.missing)
        if subtract(wanted, spans):
            return None
        last = wanted[-1] if wanted else None
        if last is None:
            return self.now()
        return next(span.end for span in union(spans) if span.start <= last.start and last.end <= span.end)

    def _lost(self, plan: IntervalPlan) -> str:
        stream = self.stream
        hours = retention(stream.topic).total_seconds() / 3600
        pruned = read_pruned(self.catalog.landing, stream)
        landed = "was never landed" if pruned is None else f"is not landed ({pruned})"
        return (
            f"{stream}: of the interval {self.request.interval}, {', '.join(map(str, plan.missing))} {landed} and "
            f"can no longer be read: Salesforce keeps its events for {hours:.0f} hours, or the stream was reset. "
            'Nothing is recorded for this run. To take what there is, set on_expired="partial"; that records the gap.'
        )


def _without_what_aged_out(plan: IntervalPlan, drained: Sequence[ReplayWindow]) -> IntervalPlan:
    """Return ``plan`` with that missing too which Salesforce forgot before the drain of its part reached it."""
    before = [
        span_between(part.span.start, min(window.covered_from or part.span.start, part.span.end))
        for part, window in zip(plan.drains, drained, strict=True)
    ]
    return replace(plan, missing=tuple(union([*plan.missing, *(span for span in before if span is not None)])))


def _gap(span: Span, detected_at: datetime) -> Gap:
    reason = f"{span} is not landed and could no longer be read, on_expired='partial'"
    return Gap(after=None, resumed_at=None, since=span.start, detected_at=detected_at, reason=reason)
