"""Which landed windows, and which drains, give the events of an interval: pure, without any I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.protocol.streams import Gap, ReplayWindow, Span
from airflow_provider_sfstream.windows.positions import nearest_position
from airflow_provider_sfstream.windows.spans import clip, covers, span_between, stretch_of, subtract, union
from airflow_provider_sfstream.windows.stream_order import stream_order

_TICK = datetime.resolution


@dataclass(frozen=True)
class BusDrain:
    """A stretch of the interval that has to be drained: the events after ``after`` (``None``: from the earliest).

    Events of the interval that came late can be before the first event that happened in ``span``: what is drained has
    to be kept from the plan's ``grace`` before ``span`` on. Its window answers for ``span`` nevertheless.
    """

    span: Span
    after: bytes | None


@dataclass(frozen=True)
class IntervalPlan:
    """What gives the events of an interval, in order of time.

    ``landed`` are the recorded windows to read, ``drains`` what has to be read from Salesforce, ``missing`` what can no
    longer be had. Together they cover the interval. All spans are in UTC.
    """

    landed: tuple[ReplayWindow, ...]
    drains: tuple[BusDrain, ...]
    missing: tuple[Span, ...]


def plan_interval(
    interval: Span,
    *,
    grace: timedelta,
    windows: Sequence[ReplayWindow],
    gaps: Sequence[Gap],
    horizon: datetime,
) -> IntervalPlan:
    """Return what gives the events that happened in ``interval``, whatever the order of ``windows`` and ``gaps``.

    Events come up to ``grace`` out of event-time order, so what answers for ``[start, end + grace)`` has all of them.

    Guarantee: every time in the interval is in exactly one of: the stretch of a recorded window, a drain, a missing
    span. A window answers for ``[covered_from, covered_until)`` and no more; one without a stretch answers for nothing.
    What no window answers for is missing if it is before ``horizon``, or in the stretch ``[since, detected_at)`` of a
    gap (an unknown ``since`` reaches back for ever; the window that went on after the gap ends it, if it is known,
    where it begins to answer); else it is drained. A hole is drained however small it is.

    ``[end, end + grace)`` holds late events at most: what of it is not covered is drained while it can be read, joined
    with the drain before it if that ends there, and is never missing.

    ``landed`` are the non-empty windows that hold events of the interval by their event times, or may hold some because
    their event times are not known while their stretch is in ``[start, end + grace)``. All such live windows are in it;
    a backfill window is left out if others answer for all that it could add. Live windows are in the order of their
    chain, backfill windows stand between them by time.

    A drain begins at the nearest position that is known to lie before it and should still be readable, see
    :func:`~airflow_provider_sfstream.windows.positions.nearest_position`; else at the earliest event.

    :param windows: all recorded windows of the stream, empty ones too, that may answer for a part of the interval or
        name a position before it. Unrelated ones change nothing.
    :param horizon: what happened before can no longer be read: now less the retention.
    :raises ConfigurationError: if ``grace`` is negative.
    """
    if grace < timedelta(0):
        raise ConfigurationError(f"grace={grace} is negative. Give the time that events may come late, or zero.")
    interval = Span(interval.start.astimezone(UTC), interval.end.astimezone(UTC))
    required = Span(interval.start, interval.end + grace)
    ordered = stream_order(windows)
    all_gaps = {*gaps, *(window.gap for window in ordered if window.gap is not None)}

    uncovered = subtract([required], _stretches(ordered))
    resumed = {window.gap: window.covered_from for window in ordered if window.gap is not None}
    lost = [(gap.since, min(gap.detected_at, resumed.get(gap) or gap.detected_at)) for gap in all_gaps]
    readable = subtract(uncovered, _unreadable(required, lost, horizon))
    return IntervalPlan(
        landed=tuple(_worth_reading(ordered, interval, grace)),
        drains=tuple(BusDrain(part, nearest_position(part.start, ordered, all_gaps, horizon)) for part in readable),
        missing=tuple(clip(subtract(uncovered, readable), interval)),
    )


def _stretches(windows: Iterable[ReplayWindow]) -> list[Span]:
    return union(stretch for window in windows if (stretch := stretch_of(window)) is not None)


def _unreadable(required: Span, lost: Iterable[tuple[datetime | None, datetime]], horizon: datetime) -> list[Span]:
    """Return what of ``required`` Salesforce no longer gives."""
    stretches = [(required.start, horizon), *((since or required.start, end) for since, end in lost)]
    return union(span for stretch in stretches if (span := span_between(*stretch)) is not None)


def _worth_reading(ordered: Sequence[ReplayWindow], interval: Span, grace: timedelta) -> list[ReplayWindow]:
    """Return the windows that may hold events of ``interval``, without backfill windows that add nothing to others.

    A backfill window adds nothing where the others answer for all the time in which its events of the interval came:
    from ``grace`` before the first of them to ``grace`` after the last.
    """
    useful = {
        window.window_id: span for window in ordered if (span := _useful_span(window, interval, grace)) is not None
    }
    optional = [window for window in ordered if window.kind == "backfill" and window.window_id in useful]
    optional.sort(key=lambda window: (useful[window.window_id].start, -_length(useful[window.window_id])))
    left_out = {window.window_id for window in optional}
    answered = _stretches(window for window in ordered if window.window_id not in left_out)
    for window in optional:
        span = useful[window.window_id]
        if not covers(answered, Span(span.start - grace, span.end + grace)):
            left_out.remove(window.window_id)
            answered = union([*answered, *_stretches([window])])
    return [window for window in ordered if window.window_id in useful and window.window_id not in left_out]


def _useful_span(window: ReplayWindow, interval: Span, grace: timedelta) -> Span | None:
    """Return the part of the interval that the window's events are in, as far as is known; ``None`` if none is."""
    if window.event_count == 0:
        return None
    if window.first_event_time is not None and window.last_event_time is not None:
        held, within = span_between(window.first_event_time, window.last_event_time + _TICK), interval
    else:
        held = stretch_of(window)
        within = Span(interval.start, interval.end + grace)
    return next(iter(clip([] if held is None else [held], within)), None)


def _length(span: Span) -> timedelta:
    return span.end - span.start
