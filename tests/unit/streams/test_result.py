"""Result of a drain from the end of the stream that a trigger confirmed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.streams.drain.limits import StopReason
from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.scripted_source import replay_id

AFTER, NEWER = replay_id(3), replay_id(9)
OPENED = datetime(2026, 11, 20, 12, tzinfo=UTC)
ANSWERED = OPENED + timedelta(seconds=280)
SEEN = ConfirmedEnd(AFTER, NEWER, OPENED, ANSWERED)


def test_result_is_confirmed_for_the_opening_time_of_the_second_subscription() -> None:
    result = SEEN.drained("/event/Order__e", AFTER)
    assert (result.stop_reason, result.event_count, result.through) == (StopReason.CAUGHT_UP, 0, NEWER)
    assert (result.confirmed_at, result.contact_at) == (OPENED, ANSWERED)
    assert result.gap is None


@pytest.mark.parametrize("after", [NEWER, StartFrom.EARLIEST, StartFrom.LATEST])
def test_confirmed_end_is_refused_for_another_position(after: bytes | StartFrom) -> None:
    with pytest.raises(ValueError, match=f"/event/Order__e: .*was confirmed after replay ID {AFTER.hex()}"):
        SEEN.drained("/event/Order__e", after)
