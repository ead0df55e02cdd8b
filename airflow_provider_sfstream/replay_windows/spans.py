"""Arithmetic with spans of time: sets of them as sorted lists of disjoint, non-touching spans, all in UTC."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Span


def span_between(start: datetime | None, end: datetime | None) -> Span | None:
    """Return ``[start, end)`` in UTC; ``None`` if an end is not known or nothing lies between them.

    In UTC, because Python compares two times of one local zone by their wall clocks, which repeat an hour each year.
    """
    if start is None or end is None:
        return None
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    return Span(start, end) if start < end else None


def span_of(window: ReplayWindow) -> Span | None:
    """Return the span of time that ``window`` answers for, ``None`` if that is not known or empty."""
    return span_between(window.covered_from, window.covered_until)


def union(spans: Iterable[Span]) -> list[Span]:
    """Return the times that are in any of ``spans``. A hole stays, however small; spans that touch become one."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def clip(spans: Iterable[Span], bounds: Span) -> list[Span]:
    """Return the times that are in any of ``spans`` and in ``bounds``."""
    clipped = (span_between(max(span.start, bounds.start), min(span.end, bounds.end)) for span in spans)
    return union(span for span in clipped if span is not None)


def subtract(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """Return the times that are in any of ``spans`` and in none of ``taken``."""
    left = union(spans)
    for cut in union(taken):
        pieces = ((span_between(span.start, min(span.end, cut.start)), span) for span in left)
        left = [
            piece
            for before, span in pieces
            for piece in (before, span_between(max(span.start, cut.end), span.end))
            if piece is not None
        ]
    return left


def covers(spans: Iterable[Span], span: Span) -> bool:
    """Return whether every time in ``span`` is in one of ``spans``."""
    return not subtract([span], spans)
