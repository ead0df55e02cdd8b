"""Which span of time a window answers for, by how its drain began and what the server showed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.drain.drain import DrainResult
from airflow_provider_sfstream.drain.limits import StopReason
from airflow_provider_sfstream.protocol.streams import Gap, ReplayWindow, RunIdentity, Stream
from airflow_provider_sfstream.protocol.topics import Topic
from airflow_provider_sfstream.reading.source import StartFrom
from airflow_provider_sfstream.runs.covered_spans import Drained, covered_span

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
AFTER = b"\1"
GAP = Gap(after=AFTER, resumed_at=None, since=NOON - 9 * MINUTE, detected_at=NOON + MINUTE, reason="test")


def at(minutes: int | None) -> datetime | None:
    return None if minutes is None else NOON + minutes * MINUTE


def drained(
    start: bytes | StartFrom = AFTER,
    *,
    confirmed: int | None = None,
    pinned: int | None = None,
    gap: Gap | None = None,
    topic: str = "/event/Order__e",
    begins: int | None = None,
) -> Drained:
    """A drain that began at 12:00; times by minutes after that."""
    reason = StopReason.IDLE if confirmed is None else StopReason.CAUGHT_UP
    return Drained(
        stream=Stream("00D000000000001EAA", Topic.parse(topic).api, topic),
        start=start,
        result=DrainResult(reason, None, 0, 0, gap, 0, None, NOON, at(confirmed), at(pinned)),
        started_at=NOON,
        begins_at=at(begins),
    )


def window(until: int | None, begin: int | None = None) -> ReplayWindow:
    run = RunIdentity("orders", "drain", "run-1", NOON)
    span = {"covered_from": at(begin), "covered_until": at(until)}
    return ReplayWindow("w", "live", None, AFTER, 0, None, None, "/manifest.json", run, **span)


def minutes(span: tuple[datetime | None, datetime | None]) -> tuple[float | None, ...]:
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
        (drained(confirmed=0), window(-30, -20), (-20, 0)),
        (drained(StartFrom.EARLIEST, confirmed=0), None, (-72 * 60, 0)),
        (drained(StartFrom.EARLIEST), None, (-72 * 60, None)),
        (drained(StartFrom.EARLIEST, confirmed=0, topic="/topic/Orders"), None, (-24 * 60, 0)),
        (drained(StartFrom.EARLIEST, confirmed=0, begins=-5), window(-5), (-5, 0)),
        (drained(StartFrom.LATEST, pinned=2), None, (2, None)),
        (drained(StartFrom.LATEST, pinned=2, confirmed=2), None, (2, 2)),
        (drained(confirmed=0, begins=-10), None, (-10, 0)),
        (drained(confirmed=2, gap=GAP), window(-30), (1, 2)),
        (drained(gap=GAP), window(-30), (1, None)),
        (drained(pinned=3, confirmed=3, gap=GAP), window(-30), (3, 3)),
    ],
)
def test_the_span(ended: Drained, previous: ReplayWindow | None, span: tuple[float | None, ...]) -> None:
    assert minutes(covered_span(ended, previous)) == span


def test_a_chain_of_windows_leaves_no_time_out() -> None:
    first = covered_span(drained(StartFrom.EARLIEST, confirmed=0), None)
    before = replace(window(None), covered_from=first[0], covered_until=first[1])
    idle = covered_span(drained(), before)
    assert idle == (first[1], first[1])
    second = covered_span(drained(confirmed=60), replace(before, covered_from=idle[0], covered_until=idle[1]))
    assert second == (first[1], NOON + 60 * MINUTE)
