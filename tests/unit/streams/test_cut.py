"""Cut of a batch at a limit: events with one replay ID stay together, and wrong event times do not end a drain."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.salesforce.events import EventBatch
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, MisdatedEventWarning, StopReason, cut

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
HOUR = 3_600_000


def batch(replay_ids: str) -> EventBatch:
    """Create a batch of events of 10 bytes; each letter of ``replay_ids`` is the replay ID of one event."""
    count = len(replay_ids)
    return EventBatch(
        [one.encode() for one in replay_ids],
        [None] * count,
        ["schema"] * count,
        [b"x" * 10] * count,
        received_at=0,
        pending=1,
        latest_replay_id=replay_ids[-1].encode(),
    )


@pytest.mark.parametrize(
    ("replay_ids", "limits", "before", "kept"),
    [
        ("abc", {"max_events": 2}, 0, "ab"),
        ("abbc", {"max_events": 2}, 0, "abb"),
        ("aaab", {"max_events": 1}, 0, "aaa"),
        ("aabb", {"max_events": 5}, 2, "aabb"),
        ("abbb", {"max_events": 3}, 1, "abbb"),
        ("abbc", {"max_bytes": 20}, 0, "abb"),
        ("aab", {"max_bytes": 5}, 0, "aa"),
        ("aab", {"max_bytes": 5}, 1, ""),
    ],
)
def test_cut_keeps_events_with_one_replay_id_together(
    replay_ids: str, limits: dict[str, int], before: int, kept: str
) -> None:
    part = cut(batch(replay_ids), DrainLimits(**limits), before, 0, lambda *_: [], now=NOW)
    assert b"".join(part.batch.replay_ids).decode() == kept
    assert part.payload_bytes == 10 * len(kept)
    assert part.stop is (StopReason.MAX_EVENTS if "max_events" in limits else StopReason.MAX_BYTES)


@pytest.mark.parametrize(
    ("until", "hours", "kept", "misdated"),
    [
        pytest.param(0, (-1, 24 * 365, -1, -2), "abcd", 24 * 365, id="a year"),
        pytest.param(0, (-1, 24 * 365, -1, 0), "abc", 24 * 365, id="a year, and until after it"),
        pytest.param(0, (-1, 24, -1), "a", None, id="a day"),
        pytest.param(0, (-1, 25, -1), "abc", 25, id="a day and an hour"),
        pytest.param(0, (-1, 0, 25), "a", None, id="after the cut"),
        pytest.param(0, (25, 26, 27), "abc", 25, id="all"),
        pytest.param(48, (-1, 24 * 365, 25), "abc", 24 * 365, id="until ahead"),
        pytest.param(48, (-1, 30), "ab", None, id="before until"),
        pytest.param(-48, (-49, 25, -48, -49), "ab", 25, id="until in the past"),
        pytest.param(0, (-1, None, 25), "abc", 25, id="no time"),
        pytest.param(0, (-1, 10**12, -1), "abc", 10**12, id="after the year 9999"),
    ],
)
def test_until_ignores_an_event_more_than_a_day_ahead(
    until: int, hours: tuple[int | None, ...], kept: str, misdated: int | None
) -> None:
    base = int(NOW.timestamp() * 1_000)
    times = [None if hour is None else base + hour * HOUR for hour in hours]
    events = batch("abcdef"[: len(hours)])
    limits = DrainLimits(until=NOW + timedelta(hours=until))
    part = cut(events, limits, 0, 0, lambda *_: times, now=NOW)
    assert b"".join(part.batch.replay_ids).decode() == kept
    assert part.stop is (None if len(kept) == len(hours) else StopReason.UNTIL)
    assert part.misdated == (None if misdated is None else base + misdated * HOUR)


def test_misdated_event_is_reported_only_if_it_is_stored() -> None:
    times = [0, int((NOW + timedelta(days=365)).timestamp() * 1_000)]
    limits = DrainLimits(until=NOW, max_events=1)
    part = cut(batch("ab"), limits, 0, 0, lambda *_: times, now=NOW)
    assert (len(part.batch), part.stop, part.misdated) == (1, StopReason.MAX_EVENTS, None)


@pytest.mark.parametrize(
    ("misdated", "text"), [(int(NOW.timestamp() * 1_000), NOW.isoformat()), (10**18, "after the year 9999")]
)
def test_drain_logs_one_warning_for_all_misdated_events(
    caplog: pytest.LogCaptureFixture, misdated: int, text: str
) -> None:
    warning = MisdatedEventWarning("/event/Order__e")
    with caplog.at_level(logging.WARNING):
        for time in (None, misdated, misdated + 1):
            warning.stored(time)
    (message,) = caplog.messages
    assert all(part in message for part in ("/event/Order__e", text, "publisher's clock is wrong", "was landed"))
