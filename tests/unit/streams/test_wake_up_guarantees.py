"""Guarantees of wake-ups for any script: each event is in exactly one wake-up, in order and in time.

The watcher of these tests stops and starts again after the last ``through`` that it received, as a triggerer does.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta

from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import (
    ReplayIdLostError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
)
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.streams.watch.wake_ups import Watch
from tests.support.examples import for_examples
from tests.support.scripted_async_source import Pause, ScriptedAsyncSource, Step
from tests.support.scripted_source import Deliver, End, Event, Keepalive, Silence, avro_payload, replay_id
from tests.support.virtual_time import BEGINNING, run_in_virtual_time, virtual_clock, virtual_now

LONGER_THAN_ANY_SCRIPT = 20_000.0
EARLIEST, LATEST = StartFrom.EARLIEST, StartFrom.LATEST
EVENTS, STARTED, REPLAY_LOST, QUIET = WakeUpReason

steps = (
    st.builds(Deliver, st.integers(1, 40), st.booleans())
    | st.builds(Pause, st.floats(0, 100))
    | st.sampled_from(
        [
            Keepalive(),
            Keepalive(pending=0),
            End(),
            Silence(),
            ServiceUnavailableError("reset"),
            ThrottledError("slower"),
            SessionExpiredError("refused"),
            ReplayIdLostError("aged out"),
        ]
    )
)
conditions = st.builds(
    WakeUpConditions,
    min_events=st.integers(1, 30),
    max_wait=st.none() | st.floats(0.1, 200),
    min_interval=st.just(0.0) | st.floats(0.1, 100),
)


@dataclass
class Checker:
    """Checks of one watcher.

    ``reported`` is the number of events that wake-ups have reported; ``None`` before the start is pinned.
    """

    source: ScriptedAsyncSource
    conditions: WakeUpConditions
    reported: int | None
    woken_at: float | None = None
    reasons: list[WakeUpReason] = field(default_factory=list)

    def check(self, wake_up: WakeUp) -> None:
        self.reasons.append(wake_up.reason)
        {EVENTS: self.events, STARTED: self.started, REPLAY_LOST: self.lost, QUIET: self.quiet}[wake_up.reason](wake_up)
        if wake_up.reason is not QUIET:
            self.woken_at = virtual_clock()

    def events(self, wake_up: WakeUp) -> None:
        first = self.count(wake_up)
        assert wake_up.event_count >= (1 if self.conditions.max_wait else self.conditions.min_events)
        assert self.source.number_through(wake_up.through) == self.reported
        if self.woken_at is not None:
            assert virtual_clock() - self.woken_at >= self.conditions.min_interval - 1e-6
        if self.conditions.max_wait or self.conditions.min_events == 1:
            longest = max(self.conditions.min_interval, self.conditions.max_wait or 0)
            waited = virtual_clock() - self.source.delivered_at[self.source.stream[first].replay_id]
            assert waited <= longest + 1e-3

    def count(self, wake_up: WakeUp) -> int:
        """Check that the events of ``wake_up`` follow those reported before; return the index of its first event."""
        first = self.source.latest_places[-1] if self.reported is None else self.reported
        assert wake_up.event_count >= 1
        assert wake_up.first_replay_id == self.source.stream[first].replay_id
        self.reported = first + wake_up.event_count
        return first

    def started(self, wake_up: WakeUp) -> None:
        assert self.reported is None
        assert (wake_up.event_count, wake_up.first_replay_id) == (0, None)
        if wake_up.through is not None:
            self.reported = self.source.number_through(wake_up.through)
            assert self.reported == self.source.latest_places[-1]

    def lost(self, wake_up: WakeUp) -> None:
        if wake_up.event_count:
            self.count(wake_up)
        assert wake_up.through is None
        self.reported = None

    def quiet(self, wake_up: WakeUp) -> None:
        assert (wake_up.event_count, wake_up.first_replay_id) == (0, None)
        assert self.source.number_through(wake_up.through) == self.reported == self.source.place

    def at_the_end(self) -> None:
        reported = self.source.latest_places[-1] if self.reported is None else self.reported
        left = len(self.source.stream) - reported
        assert left == 0 or (self.conditions.max_wait is None and left < self.conditions.min_events)


async def watch(checker: Checker, after: bytes | StartFrom, closings: list[int]) -> None:
    """Watch until all events are reported. Restart after each number of wake-ups in ``closings``, and after errors."""
    source = checker.source
    while True:
        wake_ups_left = closings.pop(0) if closings else None
        checker.woken_at = None
        options = {"clock": virtual_clock, "now": virtual_now, "random": lambda: 0.5}
        try:
            async with (
                asyncio.timeout(LONGER_THAN_ANY_SCRIPT),
                aclosing(
                    Watch(source, "/event/Order__e", after, checker.conditions, **options).wake_ups()
                ) as all_of_them,
            ):
                async for wake_up in all_of_them:
                    checker.check(wake_up)
                    after = wake_up.through or (LATEST if wake_up.reason is REPLAY_LOST else after)
                    if wake_up.reason is QUIET and not source.script and checker.reported == len(source.stream):
                        return
                    wake_ups_left = None if wake_ups_left is None else wake_ups_left - 1
                    if wake_ups_left == 0:
                        break
        except SessionExpiredError:
            assert source.renewals >= 1
        except ReplayIdLostError:
            assert isinstance(source.starts[-1], StartFrom)
        except TimeoutError:
            return
        assert source.open_subscriptions == 0


@for_examples(
    ages=st.lists(st.integers(0, 300), max_size=150),
    script=st.lists(steps, max_size=30),
    conditions=conditions,
    start=st.sampled_from([EARLIEST, LATEST]) | st.integers(1, 20),
    latest_from=st.integers(0, 150),
    closings=st.lists(st.integers(1, 5), max_size=4),
    few=30,
    many=300,
)
def test_each_event_is_reported_in_exactly_one_wake_up(ages, script, conditions, start, latest_from, closings):
    times = [int((BEGINNING - timedelta(seconds=age)).timestamp() * 1_000) for age in ages]
    stream = [Event(replay_id(number * 3), avro_payload(time), time) for number, time in enumerate(times, 1)]
    script_to_play: list[Step] = list(script)
    source = ScriptedAsyncSource(stream, script_to_play, latest_from=min(latest_from, len(stream)))
    begin = min(start, len(stream)) if isinstance(start, int) else None
    reported = {EARLIEST: 0, LATEST: None}.get(start, begin)
    checker = Checker(source, conditions, reported)

    run_in_virtual_time(watch(checker, start if begin is None else replay_id(begin * 3), list(closings)))

    checker.at_the_end()
    assert source.open_subscriptions == 0
    assert STARTED in checker.reasons or REPLAY_LOST in checker.reasons or start is not LATEST
