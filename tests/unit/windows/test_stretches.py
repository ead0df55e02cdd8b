"""Which stretch of time a window answers for, by how its drain began and ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.drain.drain import DrainResult
from airflow_provider_sfstream.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.drain.source import StartFrom
from airflow_provider_sfstream.protocol.streams import Gap, ReplayWindow, RunIdentity, Stream
from airflow_provider_sfstream.protocol.topics import Topic
from airflow_provider_sfstream.windows.stretches import Drained, covered_stretch

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
AFTER = b"\1"
GAP = Gap(after=AFTER, resumed_at=None, since=NOON - 9 * MINUTE, detected_at=NOON, reason="test")


def drained(
    start: bytes | StartFrom = AFTER,
    stop_reason: StopReason = StopReason.CAUGHT_UP,
    *,
    first: int | None = None,
    last: int | None = None,
    gap: Gap | None = None,
    topic: str = "/event/Order__e",
    **limits: object,
) -> Drained:
    """A drain from 12:00 to 12:05; events by minutes after 12:00."""
    return Drained(
        stream=Stream("00D000000000001EAA", Topic.parse(topic).api, topic),
        start=start,
        limits=DrainLimits(**limits),  # type: ignore[arg-type]
        result=DrainResult(stop_reason, None, 0, 0, gap, 0, None),
        first_event_time=None if first is None else NOON + first * MINUTE,
        last_event_time=None if last is None else NOON + last * MINUTE,
        started_at=NOON,
        finished_at=NOON + 5 * MINUTE,
    )


def window(until: int | None) -> ReplayWindow:
    run = RunIdentity("orders", "drain", "run-1", NOON)
    covered = None if until is None else NOON + until * MINUTE
    return ReplayWindow("w", "live", None, AFTER, 0, None, None, "/manifest.json", run, covered_until=covered)


def minutes(stretch: tuple[datetime | None, datetime | None]) -> tuple[float | None, ...]:
    return tuple(None if time is None else (time - NOON) / MINUTE for time in stretch)


@pytest.mark.parametrize(
    ("ended", "previous", "stretch"),
    [
        (drained(), window(-30), (-30, 0)),
        (drained(first=-20, last=3), window(-30), (-30, 3)),
        (drained(first=-20, last=-1), None, (-20, 0)),
        (drained(), None, (None, 0)),
        (drained(), window(None), (None, 0)),
        (drained(StartFrom.EARLIEST, first=-100, last=-1), None, (-72 * 60, 0)),
        (drained(StartFrom.EARLIEST, topic="/topic/Orders"), None, (-24 * 60, 0)),
        (drained(StartFrom.LATEST, first=2, last=3), None, (2, 5)),
        (drained(StartFrom.LATEST), None, (None, 5)),
        (drained(stop_reason=StopReason.MAX_EVENTS, first=-20, last=-10), window(-30), (-30, -10)),
        (drained(stop_reason=StopReason.MAX_SECONDS), window(-30), (None, -30)),
        (drained(stop_reason=StopReason.UNTIL, until=NOON - 5 * MINUTE, grace=2 * MINUTE), window(-30), (-30, -3)),
        (drained(stay_until=NOON + 4 * MINUTE), window(-30), (-30, 4)),
        (replace(drained(first=-12, last=-7), begins_at=NOON - 10 * MINUTE), None, (-10, 0)),
        (drained(first=-3, last=-2, gap=GAP), window(-30), (-3, 0)),
        (drained(gap=GAP), window(-30), (None, 0)),
        (drained(first=-40, last=-35, stop_reason=StopReason.MAX_EVENTS), window(-30), (None, -30)),
    ],
)
def test_the_stretch(ended: Drained, previous: ReplayWindow | None, stretch: tuple[float | None, ...]) -> None:
    assert minutes(covered_stretch(ended, previous)) == stretch


def test_a_chain_of_windows_leaves_no_time_out() -> None:
    first = covered_stretch(drained(StartFrom.EARLIEST), None)
    before = replace(window(None), covered_from=first[0], covered_until=first[1])
    second = covered_stretch(replace(drained(), started_at=NOON + 60 * MINUTE), before)
    assert second == (first[1], NOON + 60 * MINUTE)
