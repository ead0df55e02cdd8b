"""Recorded windows and gaps with times in minutes after a fixed hour, for tests that compute with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Span, WindowKind

HOUR = datetime(2026, 11, 20, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def at(minute: int) -> datetime:
    return HOUR + minute * MINUTE


def span(start: int, end: int) -> Span:
    return Span(at(start), at(end))


def recorded_window(
    window_id: str,
    covered: tuple[int | None, int | None] = (None, None),
    events: tuple[int, int] | None = None,
    *,
    after: bytes | None = None,
    through: bytes | None = None,
    previous: str | None = None,
    kind: WindowKind = "live",
    event_count: int | None = None,
    gap: Gap | None = None,
    contact: int | None = None,
    counts: int | None = None,
) -> ReplayWindow:
    """Return a window; all times are minutes after :data:`HOUR`.

    :param covered: start and end of the covered span.
    :param events: times of the first and the last event.
    :param contact: time of the last contact; default: the end of the span.
    :param counts: time from which on the window's events count; default: the start of the span.
    """
    covered_from, covered_until = (None if minute is None else at(minute) for minute in covered)
    return ReplayWindow(
        window_id=window_id,
        kind=kind,
        after=after,
        through=through,
        event_count=(2 if events else 0) if event_count is None else event_count,
        first_event_time=at(events[0]) if events else None,
        last_event_time=at(events[1]) if events else None,
        manifest_url=f"memory:///lake/{window_id}/manifest.json",
        run=RunIdentity("orders", "drain", window_id, HOUR),
        previous_window_id=previous,
        gap=gap,
        covered_from=covered_from,
        covered_until=covered_until,
        contact_at=covered_until if contact is None else at(contact),
        counts_from=covered_from if counts is None else at(counts),
    )


def recorded_gap(since: int | None, detected: int, after: bytes | None = None) -> Gap:
    return Gap(after, None, None if since is None else at(since), at(detected), "replay ID invalid")
