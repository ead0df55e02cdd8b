"""A drain that goes on with the end of the stream that the triggerer saw."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_provider_sfstream.drain.drain import DrainResult, drain
from airflow_provider_sfstream.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.drain.seen_end import SeenEnd
from airflow_provider_sfstream.protocol.topics import Api
from tests.support.scripted_source import ListSink, replay_id

AFTER, NEWER = replay_id(3), replay_id(9)
OPENED = datetime(2026, 11, 20, 12, tzinfo=UTC)


def drained(api: Api, start: bytes) -> DrainResult:
    seen = SeenEnd(api, AFTER, NEWER, OPENED)
    return drain(seen, ListSink(), "/event/Order__e", start, DrainLimits(), now=seen.now)


@pytest.mark.parametrize(("api", "through"), [("pubsub", NEWER), ("streaming", None)])
def test_it_is_confirmed_for_the_moment_at_which_that_was_opened(api: Api, through: bytes | None) -> None:
    """The Streaming API names no replay ID in a silence."""
    result = drained(api, AFTER)
    assert (result.stop_reason, result.event_count) == (StopReason.CAUGHT_UP, 0)
    assert (result.through, result.confirmed_at) == (through, OPENED)


def test_it_says_nothing_of_another_position() -> None:
    with pytest.raises(ValueError, match=f"its end was seen after {AFTER.hex()}"):
        drained("pubsub", NEWER)
