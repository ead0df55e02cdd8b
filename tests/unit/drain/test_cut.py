"""Where a batch is cut: events with one replay ID stay together."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.drain.cut import cut
from airflow_provider_sfstream.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.protocol.events import EventBatch


def batch(replay_ids: str) -> EventBatch:
    """Return a batch of events of 10 bytes, with a letter each for replay ID."""
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
def test_a_cut(replay_ids: str, limits: dict[str, int], before: int, kept: str) -> None:
    part = cut(batch(replay_ids), DrainLimits(**limits), before, 0, lambda *_: [])
    assert b"".join(part.batch.replay_ids).decode() == kept
    assert part.payload_bytes == 10 * len(kept)
    assert part.stop is (StopReason.MAX_EVENTS if "max_events" in limits else StopReason.MAX_BYTES)
