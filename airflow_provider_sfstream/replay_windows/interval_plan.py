"""Plan of an interval: the landed windows and the drains that provide its events. Pure, without any I/O.

All times are Salesforce's; see ``ReplayWindow``.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_windows.positions import (
    KnownPosition,
    backfill_chain,
    is_drained_before,
    nearest_position,
)
from airflow_provider_sfstream.salesforce.streams import (
    Gap,
    ReplayWindow,
    Span,
    clip,
    covers,
    span_between,
    span_of,
    subtract,
    union,
)

_TICK = datetime.resolution
_FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class BusDrain:
    """Span of the interval to drain: the events after ``after``, the replay ID of ``position`` (``None``: all)."""

    span: Span
    after: bytes | None
    position: KnownPosition | None = field(default=None, compare=False)

    @property
    def reads_from(self) -> datetime:
        """Return a time from which on each published event will be delivered."""
        is_continued = self.position is not None and self.position.continued_id is not None
        return self.position.contact_at if self.position is not None and is_continued else self.span.start


@dataclass(frozen=True)
class IntervalPlan:
    """Sources of the events of an interval, in order of time.

    ``landed`` are the recorded windows to read, ``drains`` the spans to read from Salesforce, ``missing`` the spans
    that are lost, and ``unconfirmed`` the spans that the live windows should hold, without confirmation by the server.
    Together they cover the interval. All spans are in UTC.
    """

    landed: tuple[ReplayWindow, ...]
    drains: tuple[BusDrain, ...]
    missing: tuple[Span, ...]
    unconfirmed: tuple[Span, ...]

    def without_aged_out(self, drained: Sequence[ReplayWindow]) -> IntervalPlan:
        """Return the plan with those spans added to ``missing`` that aged out before their drain reached them."""
        before = [
            span_between(part.span.start, min(window.covered_from or part.span.start, part.span.end))
            for part, window in zip(self.drains, drained, strict=True)
        ]
        return replace(self, missing=tuple(union([*self.missing, *(span for span in before if span is not None)])))


def plan_interval(
    interval: Span,
    *,
    windows: Sequence[ReplayWindow],
    gaps: Sequence[Gap],
    horizon: datetime,
    live: bool,
    breaks: Sequence[Span] = (),
) -> IntervalPlan:
    """Return the sources of the events that count in ``interval``, for any order of ``windows`` and ``gaps``.

    Guarantee: every time in the interval is in exactly one of: the span of a recorded window, a drain, a missing span,
    an unconfirmed one. A window covers ``[covered_from, covered_until)`` and no more, and a backfill window no part of
    a later break (:func:`coverage`). The rest is, if ``live``, unconfirmed where the chain of live windows has it or
    will have it. It is missing if it is before ``horizon``, or in the span ``[since, detected_at)`` of a gap (an
    unknown ``since`` has no lower limit); otherwise it is drained. A hole is drained however small it is.

    ``landed`` are the windows with an event that may count in the interval. It includes all live windows of this kind;
    it omits a backfill window if others cover all that it could add. Live windows are in the order of their chain, with
    backfill windows between them by time.

    A drain begins at the nearest position that should still be readable, see
    :func:`~airflow_provider_sfstream.replay_windows.positions.nearest_position`; otherwise at the earliest event. It
    precedes the span, or is the end of a backfill window, usually of a sibling run, which ``landed`` then includes.

    :param windows: the recorded windows that may cover a part of the interval, hold an event that counts in it, or name
        a position before it. Other windows do not change the result.
    :param horizon: events published before it can no longer be read: now minus the retention.
    :param live: whether the run continues with the live windows, so that it drains no span that they will cover.
    :param breaks: spans in which the stream may have lost events, see :meth:`LandedStream.breaks`.
    """
    interval = Span(interval.start.astimezone(UTC), interval.end.astimezone(UTC))
    ordered = stream_order(windows)
    all_gaps = {*gaps, *(window.gap for window in ordered if window.gap is not None)}

    uncovered = subtract([interval], coverage(ordered, breaks))
    live_span = span_between(_live_coverage_start(ordered), _FOREVER) if live else None
    unconfirmed = [] if live_span is None else clip(uncovered, live_span)
    needed_spans = subtract(uncovered, unconfirmed)
    readable = subtract(needed_spans, _unreadable(interval, all_gaps, ordered, horizon))
    return IntervalPlan(
        landed=tuple(_windows_to_read(ordered, interval, breaks)),
        drains=tuple(
            _drain(part, nearest_position(part.start, ordered, all_gaps, horizon, breaks)) for part in readable
        ),
        missing=tuple(subtract(needed_spans, readable)),
        unconfirmed=tuple(unconfirmed),
    )


def _drain(part: Span, position: KnownPosition | None) -> BusDrain:
    return BusDrain(part, None if position is None else position.replay_id, position)


def least_events(drains: Iterable[BusDrain], windows: Iterable[ReplayWindow]) -> int:
    """Return the minimum number of events that Salesforce will deliver for ``drains``, according to the landing.

    A drain reads to the end of the stream, and so reads the events of later live windows again. ``windows`` are the
    stream's windows from the first of the spans on.
    """
    live = {window.window_id: window for window in windows if window.kind == "live"}

    def begins_after(window: ReplayWindow, time: datetime) -> bool:
        previous = live.get(window.previous_window_id or "")
        begins = [window.covered_from, window.counts_from, None if previous is None else previous.contact_at]
        return any(begin is not None and begin >= time for begin in begins)

    return sum(
        window.event_count for drain in drains for window in live.values() if begins_after(window, drain.reads_from)
    )


def _live_coverage_start(ordered: Sequence[ReplayWindow]) -> datetime | None:
    """Return the time from which on the live windows have, or will have, all published events."""
    live = [window for window in ordered if window.kind == "live"]
    first = None
    for window in reversed(live):  # in the order of their chain: the next window names the previous one
        if first is not None and (first.gap is not None or first.previous_window_id != window.window_id):
            break
        first = window
    return None if first is None else first.covered_from or first.covered_until


def coverage(windows: Iterable[ReplayWindow], breaks: Sequence[Span]) -> list[Span]:
    """Return the spans of time that ``windows`` cover, merged.

    A backfill window that was drained before the end of a break covers no part of the break: it may have begun at the
    earliest event of a stream that had lost events, which was not detected yet. So does one that continues it. A
    backfill window covers nothing if one that it continues is missing.
    """
    by_id = {window.window_id: window for window in windows}
    return union(span for window in by_id.values() for span in _coverage_of(window, by_id, breaks))


def _coverage_of(window: ReplayWindow, by_id: Mapping[str, ReplayWindow], breaks: Sequence[Span]) -> list[Span]:
    span = span_of(window)
    chain = backfill_chain(window, by_id)
    if span is None or (window.kind == "backfill" and not chain):
        return []
    return subtract([span], (break_ for break_ in breaks if any(is_drained_before(each, break_.end) for each in chain)))


def confirmed_until(interval: Span, missing: Iterable[Span], covered: Sequence[Span]) -> datetime | None:
    """Return the moment up to which ``covered`` includes the interval except ``missing``, ``None`` if it does not."""
    required = subtract([interval], missing)
    if not required or subtract(required, covered):
        return None
    last = required[-1]
    return next(span.end for span in covered if span.start <= last.start and last.end <= span.end)


def with_proven_coverage(window: ReplayWindow, latest: datetime, pruned_until: datetime | None) -> ReplayWindow:
    """Return ``window`` without coverage that it cannot have.

    This is the end of a span after ``latest``: the clock that recorded it was fast. A live window may also cover a time
    only together with those before it; if some were pruned, their events were published until ``pruned_until``.
    """
    if window.covered_until is not None and window.covered_until > latest:
        window = replace(window, covered_until=None, contact_at=None)
    if window.kind == "live" and window.covered_from is not None and pruned_until is not None:
        window = replace(window, covered_from=max(window.covered_from, pruned_until))
    return window


def _unreadable(interval: Span, gaps: Iterable[Gap], ordered: Iterable[ReplayWindow], horizon: datetime) -> list[Span]:
    """Return the spans of ``interval`` that can no longer be read. A gap lasts until a window continues after it.

    An uncertain gap does not count as lost.
    """
    begins = {window.gap: window.covered_from for window in ordered if window.gap is not None}
    lost = ((gap.since or interval.start, begins.get(gap) or gap.detected_at) for gap in gaps if not gap.uncertain)
    pairs = ((interval.start, horizon), *lost)
    return union(span for start, end in pairs if (span := span_between(start, end)) is not None)


def _windows_to_read(ordered: Sequence[ReplayWindow], interval: Span, breaks: Sequence[Span]) -> list[ReplayWindow]:
    """Return the windows that may hold events of ``interval``, without redundant backfill windows.

    The coverage of a backfill window counts only with the windows that it continues: they have its first events.
    """
    by_id = {window.window_id: window for window in ordered}
    chain_ids = {id_: {each.window_id for each in backfill_chain(window, by_id)} for id_, window in by_id.items()}
    useful_spans = {
        window.window_id: span for window in ordered if (span := _useful_span(window, interval)) is not None
    }
    optional = [window for window in ordered if window.kind == "backfill" and window.window_id in useful_spans]
    optional.sort(key=lambda window: (useful_spans[window.window_id].start, -_length(useful_spans[window.window_id])))
    redundant_ids = {window.window_id for window in optional}
    required = [window for window in ordered if redundant_ids.isdisjoint(chain_ids[window.window_id])]
    covered = union(span for window in required for span in _coverage_of(window, by_id, breaks))
    for window in optional:
        if not covers(covered, useful_spans[window.window_id]):
            redundant_ids -= {window.window_id, *chain_ids[window.window_id]}
            covered = union([*covered, *_coverage_of(window, by_id, breaks)])
    return [window for window in ordered if window.window_id in useful_spans and window.window_id not in redundant_ids]


def _useful_span(window: ReplayWindow, interval: Span) -> Span | None:
    """Return the part of the interval in which the window's events may count; ``None`` if there is none."""
    if window.event_count == 0:
        return None
    last = window.contact_at or interval.end
    last = last if window.counts_from is None else max(window.counts_from, last)
    span = span_between(window.counts_from or interval.start, last + _TICK)
    return next(iter(clip([] if span is None else [span], interval)), None)


def may_count_in(interval: Span, manifest: Manifest) -> bool:
    """Return whether an event of a window may count in ``interval``, according to its manifest."""
    window = manifest.window
    begin, end = interval.start, window.contact_at or _FOREVER
    if manifest.untimed_events == 0 and window.first_event_time is not None and window.last_event_time is not None:
        begin, end = min(window.first_event_time, end), min(window.last_event_time, end)
    if window.counts_from is not None:
        begin, end = max(begin, window.counts_from), max(end, window.counts_from)
    return window.event_count > 0 and begin < interval.end and end >= interval.start


def _length(span: Span) -> timedelta:
    return span.end - span.start


def stream_order(windows: Iterable[ReplayWindow]) -> list[ReplayWindow]:
    """Return each of ``windows`` once: live windows in the order of their chain, backfill windows between by time.

    The order of ``windows`` does not matter. Parts of a chain without a connecting window are in order of time.
    """
    by_time = sorted({window.window_id: window for window in windows}.values(), key=_time)
    live = _chains([window for window in by_time if window.kind == "live"])
    return list(heapq.merge(live, [window for window in by_time if window.kind == "backfill"], key=_time))


def _chains(by_time: list[ReplayWindow]) -> list[ReplayWindow]:
    """Return live windows in an order in which each follows its previous window, if that is among them."""
    ids = {window.window_id for window in by_time}
    following: dict[str, list[ReplayWindow]] = defaultdict(list)
    heads = []
    for window in by_time:
        if window.previous_window_id in ids:
            following[window.previous_window_id].append(window)
        else:
            heads.append(window)
    ordered: dict[str, ReplayWindow] = {}
    for head in [*heads, *by_time]:  # all windows again: links in a circle have no head
        stack = [head]
        while stack and (window := stack.pop()).window_id not in ordered:
            ordered[window.window_id] = window
            stack.extend(reversed(following[window.window_id]))
    return list(ordered.values())


def _time(window: ReplayWindow) -> tuple[datetime, str]:
    return window.covered_from or window.first_event_time or window.run.run_after, window.window_id
