"""``until`` and event times in the future of Salesforce's clock; the worker's clock does not matter."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.scripted_source import BEGAN, Event, ListSink, ScriptedSource, replay_id


@pytest.mark.parametrize(
    ("worker", "measured", "ahead", "kept"),
    [
        pytest.param(timedelta(days=400), True, timedelta(days=365), 3, id="a worker's clock ahead"),
        pytest.param(timedelta(days=-400), True, timedelta(hours=2), 1, id="a worker's clock behind"),
        pytest.param(timedelta(0), False, timedelta(days=365), 3, id="no time of the server"),
    ],
)
def test_until_ignores_events_in_the_future_of_salesforces_clock(
    worker: timedelta, measured: bool, ahead: timedelta, kept: int
) -> None:
    times = [int((BEGAN + each).timestamp() * 1000) for each in (timedelta(hours=-1), ahead, timedelta(minutes=-30))]
    source = ScriptedSource([Event(replay_id(n + 1), bytes([n]), time) for n, time in enumerate(times)])
    source.measures_time = measured
    result = Drain(
        source,
        ListSink(),
        "/event/Order__e",
        StartFrom.EARLIEST,
        DrainLimits(until=BEGAN),
        event_times=lambda _, payloads: [times[payload[0]] for payload in payloads],
        clock=source.time.clock,
        sleep=source.time.sleep,
        now=lambda: BEGAN + worker,
        random=lambda: 0.5,
    ).run()
    assert result.event_count == kept
    assert (result.stop_reason is StopReason.UNTIL) is (kept == 1)
