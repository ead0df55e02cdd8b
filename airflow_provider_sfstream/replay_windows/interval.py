"""The interval run: the events of a span of time, from landed windows where they are, from Salesforce where not.

Guarantees. Every landed event counts in one interval, however wrong its event time is, and a run returns the events of
its own interval. A live run also returns late events of the windows that it landed itself: those that Salesforce
delivered after the run of their interval had ended. An interval is complete when there is evidence that everything
published before its end was read; only then is the result recorded, and returned again however often the run is tried,
cleared or reprocessed. Until then each run looks again. A backfill never moves the live position. What can no longer be
read is named, and accepted only with ``on_expired="partial"``, which records it as a gap.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.exceptions import IntervalNotEndedError, ReplayIdLostError
from airflow_provider_sfstream.landing.intervals import IntervalRecord, RecordedWindow, read_interval, write_interval
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.pruned import read_pruned
from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome, WindowRequest, drain_window, tidy
from airflow_provider_sfstream.replay_windows.interval_plan import (
    BusDrain,
    IntervalPlan,
    coverage,
    least_events,
    may_count_in,
    plan_interval,
    stream_order,
)
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.landing import NewWindow, land_window
from airflow_provider_sfstream.replay_windows.positions import given_at, given_at_latest
from airflow_provider_sfstream.replay_windows.readable_position import ReadablePosition
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.salesforce.streams import (
    Gap,
    ReplayWindow,
    RunIdentity,
    Span,
    span_between,
    subtract,
    union,
    window_id_for,
)
from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.drain.result import SeenEnd
from airflow_provider_sfstream.streams.recovery import OnInvalidReplay
from airflow_provider_sfstream.streams.source import EventSource, StartFrom

log = logging.getLogger(__name__)

OnExpired = Literal["fail", "partial"]
OpenSource = Callable[[], AbstractContextManager[EventSource]]
Admit = Callable[[int], None]
"""Called with how many events drains beside the live one will be given at least; raises to keep them from beginning."""

_CLOCKS_DIFFER = timedelta(minutes=1)
"""By which a right worker's clock may be behind Salesforce's."""
_MEASURED_WITHIN = timedelta(seconds=2)
"""By which the lower bound of Salesforce's time is usually below it: the ``Date`` header has whole seconds."""
_AGES_OUT_WITHIN = timedelta(hours=1)
"""By which a replay ID must be younger than the retention, for its refusal to show that the stream was reset."""
_AROUND = timedelta(days=1)
"""How far beside the interval windows are looked for: positions to begin from, and links between live windows."""


@dataclass(frozen=True)
class IntervalRequest:
    """What one run is to give.

    A ``backfill`` leaves the position alone; any other run drains to the end of the stream first and moves it. An
    interval is read whole: of ``limits`` only ``idle_timeout`` counts, and ``wait_for_confirmation``: to wait up to 300
    seconds for evidence of the end of the stream; or a trigger has it already (``end_seen``). With
    ``reuse=False`` nothing that was recorded or landed before answers for the interval: it is drained anew, as long as
    Salesforce has it.
    """

    run: RunIdentity
    interval: Span
    backfill: bool
    limits: DrainLimits
    start_from: StartFrom | bytes = StartFrom.EARLIEST
    on_invalid_replay: OnInvalidReplay = "fail"
    accept_quiet_aging: bool = False
    on_expired: OnExpired = "fail"
    reuse: bool = True
    end_seen: SeenEnd | None = None

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

    ``confirmed_at`` is a moment past the interval's end, with evidence that no other event was published before it in
    the interval; ``None`` without: an event that Salesforce delivers later for the interval is returned by the run that
    lands it. ``missing`` is what is lost of it. ``drained`` is false when an earlier try's result was returned. ``own``
    are all windows that tries of the run landed, also those without an event of the interval.
    """

    interval: Span
    windows: tuple[IntervalWindow, ...]
    missing: tuple[Span, ...]
    confirmed_at: datetime | None
    drained: bool
    own: tuple[Manifest, ...] = ()


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
    catalog = landed.catalog
    record = _recorded(landed, request, now()) if request.reuse else None
    drained = record is None
    if record is None:
        record = _Gathering(landed, request, open_source, admit, now, sleep).record()
        if record.confirmed_at is not None:
            record = write_interval(catalog, record, replaces=partial(_replaces, landed, request, now()))
    else:
        log.info("Run %s already gave windows for %s; returning them.", request.run.run_id, request.interval)
    _record_gaps(landed, record)
    windows = tuple(
        IntervalWindow(catalog.read_manifest_url(window.manifest_url), window.origin) for window in record.windows
    )
    own = landed.store.windows_of_run(landed.stream, request.run)
    manifests = tuple(catalog.read_manifest_url(window.manifest_url) for window in own)
    return IntervalOutcome(request.interval, windows, record.missing, record.confirmed_at, drained, manifests)


def _recorded(landed: LandedStream, request: IntervalRequest, now: datetime) -> IntervalRecord | None:
    """Return the recorded result of the run, ``None`` if there is none that can be relied on."""
    record = read_interval(landed.catalog, landed.stream, request.run, request.interval)
    return None if record is None or _is_void(landed, record, now) else record


def _replaces(landed: LandedStream, request: IntervalRequest, now: datetime, earlier: IntervalRecord) -> bool:
    return not request.reuse or _is_void(landed, earlier, now)


def _is_void(landed: LandedStream, record: IntervalRecord, now: datetime) -> bool:
    """Return whether the evidence of ``record`` does not count: it is ahead of the clock, or older than a break."""
    stream, interval, confirmed_at = landed.stream, record.interval, record.confirmed_at
    if stream.api == "streaming":  # recorded by a version that took an empty poll for the end
        return True
    if confirmed_at is not None and confirmed_at > now + _CLOCKS_DIFFER:
        log.warning("%s: the recorded result for %s is ahead of the present and does not count.", stream, interval)
        return True
    broken = [each for each in landed.breaks() if each.start < interval.end and interval.start < each.end]
    if confirmed_at is not None and any(confirmed_at < each.end for each in broken):
        log.info("%s: the result for %s was recorded before a gap or reset and does not count.", stream, interval)
        return True
    return False


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
        # A drain confirms the end of the stream for a lower bound of the moment at which it began.
        ahead = (request.interval.end + _MEASURED_WITHIN - self.now()).total_seconds()
        if ahead > 0:
            self.sleep(ahead)
        if request.backfill:
            self.landed.known_position(request.run)
        else:
            self._drain_live()
        windows = self._windows()
        plan = self._plan(windows, self.now())
        if plan.missing:  # which the worker's clock alone cannot decide
            plan = self._accepted(self._plan(windows, self._server_now()))
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
        """Return whether the run returns an event of ``window``: of the interval, or a late one of its own window."""
        manifest = self.catalog.read_manifest_url(window.manifest_url)
        is_own = window.kind == "live" and self._origin(window) == "bus"
        if is_own and window.event_count > 0 and manifest.late_before is not None:
            return True
        return may_count_in(self.request.interval, manifest)

    def _origin(self, window: ReplayWindow) -> Literal["landed", "bus"]:
        return "bus" if window.run.key == self.request.run.key else "landed"

    def _drain_live(self) -> None:
        """Move the position to the end of the stream, unless that was confirmed past the interval's end already."""
        request, position, now = self.request, self.landed.position(), self.now()
        confirmed_at = position.confirmed_at
        if request.reuse and confirmed_at is not None and request.interval.end <= confirmed_at <= now + _CLOCKS_DIFFER:
            return
        live = WindowRequest(
            run=request.run,
            limits=request.drain_limits,
            start_from=request.start_from,
            on_invalid_replay=request.on_invalid_replay,
            accept_quiet_aging=request.accept_quiet_aging,
            again=True,
        )
        seen = request.end_seen
        if seen is not None and position.replay_id == seen.after:
            live = replace(live, limits=request.limits)  # there is nothing to read
            self._check_clock(drain_window(self.landed, live, source=seen, now=self.now))
            return
        with self.open_source() as source:
            self._check_clock(drain_window(self.landed, live, source=source, now=self.now))

    def _check_clock(self, outcome: WindowOutcome) -> None:
        """Refuse to return an interval that has not ended by Salesforce's clock.

        The next run would not return what is published in the rest of it.
        """
        contact_at, interval = outcome.manifest.window.contact_at, self.request.interval
        if contact_at is not None and contact_at < interval.end:
            raise IntervalNotEndedError(
                f"{self.stream}: the interval {interval} has not ended: Salesforce's clock shows "
                f"{contact_at.isoformat()} at most, and this worker's {self.now().isoformat()}. The clock of the "
                "worker or of the scheduler is wrong; set it by NTP. What was read is landed and recorded, and nothing "
                "is lost. The next try continues."
            )

    def _windows(self) -> list[ReplayWindow]:
        stream, interval = self.stream, self.request.interval
        windows = self.store.windows_overlapping(stream, interval.start - _AROUND, interval.end + _AROUND)
        before = self.store.window_before(stream, interval.start)
        found = {window.window_id: window for window in (*([before] if before else []), *windows)}
        return [_without_the_future(window, self.now()) for window in found.values()]

    def _server_now(self) -> datetime:
        """Return a lower bound of Salesforce's time now; the worker's time if it cannot be measured."""
        with self.open_source() as source:
            measured = source.server_time(time.monotonic)
        return self.now() if measured is None else measured.earliest(time.monotonic())

    def _plan(self, windows: list[ReplayWindow], now: datetime) -> IntervalPlan:
        request = self.request
        plan = plan_interval(
            request.interval,
            windows=windows,
            # Only a lost position is evidence of a hole; what a backfill found to be expired is just old.
            gaps=[gap for gap in self.store.gaps(self.stream) if gap.after is not None],
            horizon=now - self.landed.retention,
            live=not request.backfill,
            breaks=self.landed.breaks(),
        )
        if request.reuse:
            return plan
        anew = plan_interval(request.interval, windows=[], gaps=[], horizon=now - self.landed.retention, live=False)
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

    def _backfill_window(self, part: BusDrain, source: EventSource, *, is_broken: bool = False) -> Manifest:
        """Land everything after ``part.after``: an event that counts in the part may stand anywhere behind that.

        :param is_broken: whether the stream was found to have lost events: then the window covers nothing of the part.
        """
        request = self.request
        window_id = self._backfill_window_id(part, part.span.start if request.reuse else self.now())
        manifest = self.landed.manifest(window_id)
        if manifest is not None and self._is_recorded(manifest.window):
            # Recorded, and the plan drains the part all the same: nothing confirmed it. It is read again.
            window_id, manifest = self._backfill_window_id(part, self.now()), None
        if manifest is not None:
            log.info("Adopting backfill window %s, which an earlier try finished.", window_id)
            self.catalog.verify(manifest)
            return manifest
        log.info("Draining %s of %s from the bus, as a backfill window.", part.span, self.stream)
        new = NewWindow(
            stream=self.stream,
            run=request.run,
            window_id=window_id,
            kind="backfill",
            start=StartFrom.EARLIEST if part.after is None else part.after,
            limits=request.drain_limits,
            on_invalid_replay="fail",
            retention=self.landed.retention,
            known_retention=self.landed.known_retention,
            begins_at=None if part.after is None else part.span.start,
            published_from=part.published_from,
            unbroken_since=self.landed.unbroken_since(),
            is_broken=is_broken,
        )
        has_proof = part.after is None and source.confirms_positions and not is_broken
        proof = self._readable_position(source) if has_proof else None
        try:
            if proof is None:
                return land_window(new, source=source, catalog=self.catalog, now=self.now)
            with proof as readable:
                return land_window(replace(new, readable=readable), source=source, catalog=self.catalog, now=self.now)
        except ReplayIdLostError as error:
            if part.after is None and proof is None:
                raise
            if part.after is not None and not self._is_young(part.given_at):
                log.info("%s: reading %s from the earliest event on instead: %s", self.stream, part.span, error)
                return self._backfill_window(BusDrain(part.span, None), source)
            # The replay ID is younger than the retention, so it did not age out: the stream was reset.
            log.warning(
                "%s: a replay ID that Salesforce should still retain was refused, so events of %s may be lost. Reading "
                "from the earliest event on. %s",
                self.stream,
                part.span,
                error,
            )
            return self._backfill_window(BusDrain(part.span, None), source, is_broken=True)

    def _readable_position(self, source: EventSource) -> ReadablePosition | None:
        """Return the recorded position as evidence, ``None`` if there is none or it is so old that it may age out."""
        position = self.landed.position()
        if position.replay_id is None:
            return None
        head = self.landed.manifest(position.window_id)
        windows = [*self._windows(), *([] if head is None else [head.window])]
        latest = given_at_latest(windows, position.replay_id)
        kept_since = self.now() - (self.landed.known_retention or LONG_RETENTION)
        if latest is not None and latest < kept_since + _AGES_OUT_WITHIN:
            return None
        is_young = self._is_young(given_at(windows).get(position.replay_id))
        return ReadablePosition(source, self.stream.topic, position.replay_id, may_have_aged_out=not is_young)

    def _is_young(self, given: datetime | None) -> bool:
        return given is not None and given >= self.now() - self.landed.retention + _AGES_OUT_WITHIN

    def _backfill_window_id(self, part: BusDrain, place: datetime) -> str:
        # Several parts of an interval can begin after one position: the time makes their windows differ.
        return window_id_for(self.request.run, "backfill", part.after, int(place.timestamp() * 1_000))

    def _is_recorded(self, window: ReplayWindow) -> bool:
        recorded = self.store.windows_of_run(self.stream, self.request.run)
        return any(each.window_id == window.window_id for each in recorded)

    def _confirmed_at(self, plan: IntervalPlan, windows: list[ReplayWindow]) -> datetime | None:
        """Return the moment for which the interval's events were confirmed to be all, ``None`` if they were not."""
        if self.stream.api == "streaming":  # nor by windows for which an earlier version claimed coverage
            return None
        spans = coverage(windows, self.landed.breaks())
        wanted = subtract([self.request.interval], plan.missing)
        if subtract(wanted, spans):
            return None
        if not wanted:
            return None
        last = wanted[-1]
        return next(span.end for span in spans if span.start <= last.start and last.end <= span.end)

    def _lost(self, plan: IntervalPlan) -> str:
        stream = self.stream
        hours = self.landed.retention.total_seconds() / 3600
        pruned = read_pruned(self.catalog.landing, stream)
        landed = "was never landed" if pruned is None else f"is not landed ({pruned})"
        return (
            f"{stream}: of the interval {self.request.interval}, {', '.join(map(str, plan.missing))} {landed} and "
            f"can no longer be read: Salesforce retains its events for {hours:.0f} hours, or the stream was reset. "
            'Nothing is recorded for this run. To take what there is, set on_expired="partial"; that records the gap.'
        )


def _without_the_future(window: ReplayWindow, now: datetime) -> ReplayWindow:
    """Return ``window`` without a covered span that ends ahead of the clock: a clock was fast when it was recorded."""
    is_ahead = window.covered_until is not None and window.covered_until > now + _CLOCKS_DIFFER
    return replace(window, covered_until=None) if is_ahead else window


def _without_what_aged_out(plan: IntervalPlan, drained: Sequence[ReplayWindow]) -> IntervalPlan:
    """Return ``plan`` with that missing too which Salesforce forgot before the drain of its part reached it."""
    before = [
        span_between(part.span.start, min(window.covered_from or part.span.start, part.span.end))
        for part, window in zip(plan.drains, drained, strict=True)
    ]
    return replace(plan, missing=tuple(union([*plan.missing, *(span for span in before if span is not None)])))


def _record_gaps(landed: LandedStream, record: IntervalRecord) -> None:
    """Record what is missing of an interval as gaps, each span once, however often the run is repeated."""
    known = {gap.reason for gap in landed.store.gaps(landed.stream)} if record.missing else set()
    for span in record.missing:
        reason = f"{span} is not landed and could no longer be read, on_expired='partial'"
        if reason not in known:
            gap = Gap(after=None, resumed_at=None, since=span.start, detected_at=record.created_at, reason=reason)
            landed.store.record_gap(landed.stream, gap)
