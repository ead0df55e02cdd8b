"""Covered span of a window, by the start of its drain and the evidence of the server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.replay_windows.landing import NewWindow, counts_from, covered_span
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream, WindowKind
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.drain.result import DrainResult
from airflow_provider_sfstream.streams.source import StartFrom

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
AFTER = b"\1"
STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e")
RUN = RunIdentity("orders", "drain", "run-1", NOON)
GAP = Gap(after=AFTER, resumed_at=None, since=NOON - 9 * MINUTE, detected_at=NOON + MINUTE, reason="test")


def at(minutes: int | None) -> datetime | None:
    return None if minutes is None else NOON + minutes * MINUTE


def drained(
    after: bytes | StartFrom = AFTER,
    *,
    confirmed: int | None = None,
    pinned: int | None = None,
    gap: Gap | None = None,
    hours: int = 72,
    begins: int | None = None,
    unbroken: int | None = None,
    contact: int | None = 5,
    published: int | None = None,
    kind: WindowKind = "live",
) -> tuple[NewWindow, DrainResult]:
    """Return a drain that began at 12:00 with its last contact at 12:05. Times are minutes after noon."""
    reason = StopReason.IDLE if confirmed is None else StopReason.CAUGHT_UP
    new = NewWindow(
        STREAM,
        RUN,
        "w",
        kind,
        after,
        DrainLimits(),
        "fail",
        retention=timedelta(hours=hours),
        begins_at=at(begins),
        published_from=at(published),
        unbroken_since=at(unbroken),
    )
    return new, DrainResult(reason, None, 0, 0, gap, 0, None, at(contact), at(confirmed), at(pinned), NOON)


def window(until: int | None, begin: int | None = None) -> ReplayWindow:
    span = {"covered_from": at(begin), "covered_until": at(until)}
    return ReplayWindow("w", "live", None, AFTER, 0, None, None, "/manifest.json", RUN, **span)


def minutes(span: tuple[datetime | None, ...]) -> tuple[float | None, ...]:
    return tuple(None if time is None else (time - NOON) / MINUTE for time in span)


@pytest.mark.parametrize(
    ("ended", "previous", "span"),
    [
        (drained(confirmed=0), window(-30), (-30, 0)),
        (drained(confirmed=4), window(-30), (-30, 4)),
        (drained(), window(-30), (-30, -30)),
        (drained(), window(None, -70), (-70, None)),
        (drained(confirmed=0), window(None, -70), (-70, 0)),
        (drained(confirmed=0), None, (None, 0)),
        (drained(), None, (None, None)),
        (drained(confirmed=-40), window(-30), (-30, -30)),
        (drained(confirmed=0), window(150, -30), (150, 0)),
        (drained(), window(150, -30), (150, None)),
        (drained(confirmed=0), window(-30, -20), (-20, 0)),
        (drained(StartFrom.EARLIEST, confirmed=0), None, (5 - 72 * 60, 0)),
        (drained(StartFrom.EARLIEST), None, (5 - 72 * 60, None)),
        (drained(StartFrom.EARLIEST, confirmed=0, unbroken=-90), None, (-90, 0)),
        (drained(StartFrom.EARLIEST, unbroken=-90, contact=None), None, (None, None)),
        (drained(StartFrom.EARLIEST, confirmed=0, hours=24), None, (5 - 24 * 60, 0)),
        (drained(StartFrom.EARLIEST, confirmed=0, begins=-5), window(-5), (-5, 0)),
        (drained(confirmed=0, kind="backfill"), window(None, -70), (-70, 0)),
        (drained(confirmed=0, kind="backfill"), window(-30, -70), (-70, 0)),
        (drained(confirmed=0, kind="backfill"), window(None), (5 - 72 * 60, 0)),  # from the earliest event, unproven
        (drained(confirmed=0, kind="backfill", unbroken=-90), window(None), (-90, 0)),
        (drained(confirmed=0), window(None), (None, 0)),
        (drained(StartFrom.LATEST, pinned=2), None, (2, None)),
        (drained(StartFrom.LATEST, pinned=2, confirmed=2), None, (2, 2)),
        (drained(confirmed=0, begins=-10), None, (-10, 0)),
        (drained(confirmed=2, gap=GAP), window(-30), (1, 2)),
        (drained(gap=GAP), window(-30), (1, None)),
        (drained(pinned=3, confirmed=3, gap=GAP), window(-30), (3, 3)),
    ],
)
def test_covered_span_follows_from_the_drain_and_the_previous_window(
    ended: tuple[NewWindow, DrainResult], previous: ReplayWindow | None, span: tuple[float | None, ...]
) -> None:
    assert minutes(covered_span(*ended, previous)) == span


@pytest.mark.parametrize(
    ("ended", "previous", "minute"),
    [
        (drained(), window(-30), -30),
        (drained(gap=GAP), window(-30), -30),
        (drained(), replace(window(None), counts_from=at(-70)), -70),
        (drained(), replace(window(-30), counts_from=at(-70)), -30),
        (drained(), window(None), None),
        (drained(), None, None),
        (drained(published=-9), window(-30), -9),
        (drained(StartFrom.EARLIEST), None, None),
        (drained(StartFrom.EARLIEST, contact=None), None, None),
        (drained(StartFrom.LATEST, pinned=2), None, 0),
        # Recorded while a clock was fast.
        (drained(), replace(window(500), counts_from=at(-70)), -70),
        (drained(), window(500), None),
        (drained(contact=None), window(500), 500),
    ],
)
def test_events_count_from_the_end_of_the_previous_window(
    ended: tuple[NewWindow, DrainResult], previous: ReplayWindow | None, minute: float | None
) -> None:
    assert minutes((counts_from(*ended, previous),)) == (minute,)


def test_chain_of_windows_has_no_uncovered_time() -> None:
    first = covered_span(*drained(StartFrom.EARLIEST, confirmed=0), None)
    before = replace(window(None), covered_from=first[0], covered_until=first[1])
    idle = covered_span(*drained(), before)
    assert idle == (first[1], first[1])
    second = covered_span(*drained(confirmed=60), replace(before, covered_from=idle[0], covered_until=idle[1]))
    assert second == (first[1], NOON + 60 * MINUTE)
