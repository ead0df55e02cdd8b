"""Interval run: the events of a span of time, from landed windows where possible, otherwise from Salesforce.

Guarantees. Every landed event counts in one interval, even if its event time is wrong, and a run returns the events of
its own interval. A live run also returns late events of the windows that it landed itself: those that Salesforce
delivered after the run of their interval had ended. An interval is complete when there is evidence that everything
published before its end was read. Only then is the result recorded and returned to later tries. A backfill never moves
the live position. Spans that can no longer be read fail the run, or are gaps with ``on_expired="partial"``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.exceptions import IntervalNotEndedError, ReplayIdLostError
from airflow_provider_sfstream.landing.intervals import (
    IntervalRecord,
    Origin,
    RecordedWindow,
    read_interval,
    write_interval,
)
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.pruned import read_pruned
from airflow_provider_sfstream.replay_windows.backfill import Backfill
from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome, WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.interval_plan import (
    IntervalPlan,
    confirmed_until,
    coverage,
    least_events,
    may_count_in,
    plan_interval,
    stream_order,
    with_proven_coverage,
)
from airflow_provider_sfstream.replay_windows.landed_stream import CLOCKS_DIFFER, LandedStream
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Span
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd
from airflow_provider_sfstream.streams.source import EventSource

log = logging.getLogger(__name__)

OnExpired = Literal["fail", "partial"]
OpenSource = Callable[[], AbstractContextManager[EventSource]]
Admit = Callable[[int], None]
"""Callable that receives the minimum number of events of all separate drains; raises to refuse them."""

_MEASURED_WITHIN = timedelta(seconds=2)
"""Usual difference between Salesforce's time and its lower bound, at most: the ``Date`` header has whole seconds."""
_SEARCH_MARGIN = timedelta(days=1)
"""Span around the interval in which to search windows: for start positions, and links between live windows."""


@dataclass(frozen=True, kw_only=True)
class IntervalRequest(WindowRequest):
    """Request of one run for an interval.

    A ``backfill`` does not move the position; any other run first drains to the end of the stream and moves it. An
    interval is read completely: of ``limits`` only ``idle_timeout`` counts, and ``wait_for_confirmation``: wait up to
    300 seconds for evidence of the end of the stream, unless a trigger has it already (``confirmed_end``). With
    ``reuse=False`` the interval is drained again, as far as Salesforce retains it.
    """

    interval: Span
    backfill: bool
    on_expired: OnExpired = "fail"
    reuse: bool = True
    confirmed_end: ConfirmedEnd | None = None

    @property
    def drain_limits(self) -> DrainLimits:
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
    origin: Origin


@dataclass(frozen=True)
class IntervalOutcome:
    """Windows that hold the events that count in ``interval``, among others: filter by the time they count at.

    ``confirmed_at`` is a moment past the interval's end, with evidence that no other event was published before it in
    the interval; ``None`` without evidence. ``missing`` are the lost spans. ``drained`` is false if the result is that
    of an earlier try. ``own`` are all windows that the run landed, also those without an event of the interval.
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
    """Return the windows of this run's interval; drain the parts that are not landed yet.

    :param open_source: returns a client; called only if a drain is necessary.
    :param admit: called before a part of the interval is drained separately. Its error ends the run.
    :raises ReplayIdLostError: part of the interval can no longer be read, and ``on_expired`` is ``"fail"``; or the live
        position cannot, and ``on_invalid_replay`` is ``"fail"``. Nothing was recorded.
    :raises ReplayStoreLostError: the store has no record of the stream, but the landing has windows of it.
    """
    catalog = landed.catalog

    def is_void(recorded: IntervalRecord) -> bool:
        return not request.reuse or landed.is_void(recorded.interval, recorded.confirmed_at, now())

    record = read_interval(catalog, landed.stream, request.run, request.interval) if request.reuse else None
    drained = record is None or is_void(record)
    if record is None or drained:
        record = _IntervalSearch(landed, request, open_source, admit, now, sleep).record()
        if record.confirmed_at is not None:
            record = write_interval(catalog, record, replaces=is_void)
    else:
        log.info("Run %s already returned windows for %s; returning them again.", request.run.run_id, request.interval)
    landed.record_missing(record.interval, record.missing, record.created_at)
    windows = tuple(
        IntervalWindow(catalog.read_manifest_url(window.manifest_url), window.origin) for window in record.windows
    )
    own = landed.store.windows_of_run(landed.stream, request.run)
    manifests = tuple(catalog.read_manifest_url(window.manifest_url) for window in own)
    return IntervalOutcome(request.interval, windows, record.missing, record.confirmed_at, drained, manifests)


@dataclass
class _IntervalSearch:
    """Search and drains for the windows of one request's interval."""

    landed: LandedStream
    request: IntervalRequest
    open_source: OpenSource
    admit: Admit | None
    now: Callable[[], datetime]
    sleep: Callable[[float], None]

    def __post_init__(self) -> None:
        self.stream, self.catalog, self.store = self.landed.stream, self.landed.catalog, self.landed.store

    def record(self) -> IntervalRecord:
        """Return the record of the interval's windows, not yet written."""
        request = self.request
        # A drain confirms the end of the stream for a lower bound of its start.
        seconds_to_end = (request.interval.end + _MEASURED_WITHIN - self.now()).total_seconds()
        if seconds_to_end > 0:
            self.sleep(seconds_to_end)
        if request.backfill:
            self.landed.known_position(request.run)
        else:
            self._drain_live()
        windows = self._windows()
        plan = self._plan(windows, self.now())
        if plan.missing:  # the worker's clock alone is not enough evidence for a loss
            plan = self._require_accepted(self._plan(windows, self._server_now()))
        drained = [manifest.window for manifest in self._drain_from_bus(plan)]
        plan = self._require_accepted(plan.without_aged_out(drained))
        landed = (*self.store.windows_of_run(self.stream, request.run), *plan.landed)
        windows_to_read = [window for window in stream_order((*landed, *drained)) if self._may_count(window)]
        return IntervalRecord(
            stream=self.stream,
            run=request.run,
            interval=request.interval,
            windows=tuple(
                # By the run, not by this try: a window that an earlier try drained is also from the bus.
                RecordedWindow(window.window_id, window.manifest_url, self._origin(window))
                for window in windows_to_read
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

    def _origin(self, window: ReplayWindow) -> Origin:
        return "bus" if window.run.key == self.request.run.key else "landed"

    def _drain_live(self) -> None:
        """Move the position to the end of the stream, unless its end is already confirmed past the interval's end."""
        request, position, now = self.request, self.landed.position(), self.now()
        confirmed_at = position.confirmed_at
        if request.reuse and confirmed_at is not None and request.interval.end <= confirmed_at <= now + CLOCKS_DIFFER:
            return
        live = replace(request, limits=request.drain_limits, again=True)
        confirmed_end = request.confirmed_end
        if confirmed_end is not None and position.replay_id == confirmed_end.after:
            live = replace(live, limits=request.limits)  # there is nothing to read
            self._check_clock(drain_window(self.landed, live, source=confirmed_end, now=self.now))
            return
        with self.open_source() as source:
            self._check_clock(drain_window(self.landed, live, source=source, now=self.now))

    def _check_clock(self, outcome: WindowOutcome) -> None:
        """Refuse to return an interval that has not ended by Salesforce's clock.

        The next run would not return the events that are published in the rest of it.
        """
        contact_at, interval = outcome.manifest.window.contact_at, self.request.interval
        if contact_at is not None and contact_at < interval.end:
            raise IntervalNotEndedError(
                f"{self.stream}: the interval {interval} has not ended: Salesforce's clock shows "
                f"{contact_at.isoformat()} at most, and this worker's {self.now().isoformat()}. The clock of the "
                "worker or of the scheduler is wrong; set it by NTP. All events that were read are landed and "
                "recorded, and none is lost. The next try continues."
            )

    def _windows(self) -> list[ReplayWindow]:
        stream, interval = self.stream, self.request.interval
        windows = self.store.windows_overlapping(stream, interval.start - _SEARCH_MARGIN, interval.end + _SEARCH_MARGIN)
        before = self.store.window_before(stream, interval.start)
        found = self.landed.with_continued((*([before] if before else []), *windows))
        pruned = read_pruned(self.catalog.landing, stream)  # after the windows, because it is written before a removal
        published_until = None if pruned is None else pruned.published_until
        return [with_proven_coverage(window, self.now() + CLOCKS_DIFFER, published_until) for window in found]

    def _server_now(self) -> datetime:
        """Return a lower bound of Salesforce's time now; the worker's time if it cannot be measured."""
        with self.open_source() as source:
            measured = source.server_time(time.monotonic)
        return self.now() if measured is None else measured.earliest(time.monotonic())

    def _plan(self, windows: list[ReplayWindow], now: datetime) -> IntervalPlan:
        request, horizon = self.request, now - self.landed.retention
        plan = plan_interval(
            request.interval,
            windows=windows,
            # Only a lost position is evidence of a hole; a span that a backfill found to be expired is only old.
            gaps=[gap for gap in self.store.gaps(self.stream) if gap.after is not None],
            horizon=horizon,
            live=not request.backfill,
            breaks=self.landed.breaks(),
        )
        if request.reuse:
            return plan
        full_plan = plan_interval(request.interval, windows=[], gaps=[], horizon=horizon, live=False)
        return replace(plan, drains=full_plan.drains, unconfirmed=())

    def _require_accepted(self, plan: IntervalPlan) -> IntervalPlan:
        if plan.missing and self.request.on_expired == "fail":
            raise ReplayIdLostError(self._lost_message(plan))
        return plan

    def _drain_from_bus(self, plan: IntervalPlan) -> Iterator[Manifest]:
        if not plan.drains:
            return
        if self.admit is not None:
            begin = min(part.span.start for part in plan.drains)
            self.admit(least_events(plan.drains, self.store.windows_overlapping(self.stream, begin, self.now())))
        request = self.request
        backfill = Backfill(self.landed, request.run, request.drain_limits, request.reuse, self._windows, self.now)
        with self.open_source() as source:
            for part in plan.drains:
                yield backfill.window(part, source)

    def _confirmed_at(self, plan: IntervalPlan, windows: list[ReplayWindow]) -> datetime | None:
        if self.stream.api == "streaming":  # also not if an earlier version recorded coverage
            return None
        return confirmed_until(self.request.interval, plan.missing, coverage(windows, self.landed.breaks()))

    def _lost_message(self, plan: IntervalPlan) -> str:
        hours = self.landed.retention.total_seconds() / 3600
        pruned = read_pruned(self.catalog.landing, self.stream)
        cause = "was never landed" if pruned is None else f"is not landed ({pruned})"
        return (
            f"{self.stream}: of the interval {self.request.interval}, {', '.join(map(str, plan.missing))} {cause} and "
            f"can no longer be read: Salesforce retains its events for {hours:.0f} hours, or the stream was reset. "
            'Nothing is recorded for this run. To read the other events, set on_expired="partial": it records the gap.'
        )
