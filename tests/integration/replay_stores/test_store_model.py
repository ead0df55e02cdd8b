"""Random sequences of calls on every store, compared with a simple model of a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.replay_stores.base import Position, ReplayStore
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow
from tests.support.replay_stores import StoreUnderTest, gap_at, minute, new_stream, run_at

ends = st.none() | st.sampled_from([b"\x01", b"\x02", b"\x00\x00\x03"])
bounds = st.none() | st.tuples(st.integers(0, 5), st.integers(5, 10))
spans = st.none() | st.tuples(st.integers(0, 9), st.integers(0, 10)).map(sorted).map(tuple)
details = st.fixed_dictionaries({"events": bounds, "covered": spans})


def meet(window: ReplayWindow, first: datetime, last: datetime) -> bool:
    """Return whether the span of the window overlaps ``[first, last)``, by half minutes: bounds are whole minutes."""
    if window.covered_from is None or window.covered_until is None:
        return False
    halves = [minute(number + 0.5) for number in range(20)]
    return any(first <= at < last and window.covered_from <= at < window.covered_until for at in halves)


def holds(window: ReplayWindow, first: datetime, last: datetime) -> bool:
    """Return whether an event of the window may count in ``[first, last)``."""
    begin, end = window.covered_from, window.contact_at
    if end is None:
        begin, end = window.first_event_time, window.last_event_time
    return window.event_count > 0 and end >= first and (begin is None or begin < last)


class StoreMachine(RuleBasedStateMachine):
    """State machine of drains, late drains, retries, resets, backfills and gaps by two clients of one store."""

    under_test: StoreUnderTest

    def __init__(self) -> None:
        super().__init__()
        self.stream = new_stream()
        self.clients = [self.under_test.store, self.under_test.open()]
        self.replay_id: bytes | None = None
        self.fence = 0
        self.live: list[ReplayWindow] = []
        self.backfills: list[ReplayWindow] = []
        self.gaps: list[Gap] = []
        self.resets: list[tuple[bytes | None, bytes | None]] = []
        self.seen = [Position()]
        self.runs = 0

    def teardown(self) -> None:
        for client in self.clients:
            client.close()

    def client(self, number: int) -> ReplayStore:
        return self.clients[number]

    def landed(self, position: Position, through: bytes | None, **details: Any) -> ReplayWindow:
        self.runs += 1
        return self.under_test.land(self.stream, position, through, run_at(self.runs), **details)

    def recorded(self) -> list[ReplayWindow]:
        return self.live + sorted(self.backfills, key=lambda window: window.window_id)

    def moved(self, replay_id: bytes | None) -> None:
        self.replay_id, self.fence = replay_id, self.fence + 1

    @rule(through=ends, details=details, has_gap=st.booleans(), number=st.sampled_from([0, 1]))
    def drain(self, through: bytes | None, details: dict[str, Any], has_gap: bool, number: int) -> None:
        position = self.client(number).read(self.stream)
        gap = gap_at(self.runs) if has_gap else None
        window = self.landed(position, through, **details, gap=gap)
        advanced = self.client(1 - number).advance(self.stream, position, window)
        self.moved(self.replay_id if through is None else through)
        assert (advanced.replay_id, advanced.fence) == (self.replay_id, self.fence)
        self.live.append(window)
        self.gaps += [gap] if gap else []
        self.seen.append(advanced)

    @rule(data=st.data(), through=ends, number=st.sampled_from([0, 1]))
    def drain_from_an_old_position(self, data: st.DataObject, through: bytes | None, number: int) -> None:
        position = data.draw(st.sampled_from(self.seen))
        if position.fence == self.fence:
            return
        window = self.landed(position, through, events=(1, 2), gap=gap_at(999))
        try:
            self.client(number).advance(self.stream, position, window)
        except PositionConflictError:
            return
        raise AssertionError("a window from an old position was recorded")

    @precondition(lambda self: self.live)
    @rule(data=st.data(), number=st.sampled_from([0, 1]))
    def advance_again(self, data: st.DataObject, number: int) -> None:
        window = data.draw(st.sampled_from(self.live))
        position = data.draw(st.sampled_from(self.seen))
        again = self.client(number).advance(self.stream, position, window)
        assert (again.replay_id, again.fence) == (self.replay_id, self.fence)

    @precondition(lambda self: len(self.resets) < 15)
    @rule(to=ends)
    def reset(self, to: bytes | None) -> None:
        after = self.client(0).reset(self.stream, to, reason="test", updated_by="ann")
        self.resets.append((self.replay_id, to))
        self.moved(to)
        self.seen.append(after)

    @rule(after=ends, through=ends, details=details, has_gap=st.booleans())
    def backfill(self, after: bytes | None, through: bytes | None, details: dict[str, Any], has_gap: bool) -> None:
        gap = gap_at(self.runs) if has_gap else None
        window = self.landed(Position(after), through, kind="backfill", **details, gap=gap)
        for client in self.clients:
            client.record_backfill(self.stream, window)
        self.backfills.append(window)
        self.gaps += [gap] if gap else []

    @rule()
    def record_gap(self) -> None:
        gap = replace(gap_at(self.runs), reason=f"outside {len(self.gaps)}")
        self.client(1).record_gap(self.stream, gap)
        self.gaps.append(gap)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def windows_of_run(self, data: st.DataObject) -> None:
        run = run_at(data.draw(st.integers(1, self.runs)), try_number=2)
        expected = [window for window in self.live + self.backfills if window.run.key == run.key]
        assert self.client(1).windows_of_run(self.stream, run) == expected

    @rule(start=st.integers(0, 9), length=st.integers(1, 9))
    def windows_overlapping(self, start: int, length: int) -> None:
        first, last = minute(start), minute(start + length)
        expected = [window for window in self.recorded() if holds(window, first, last) or meet(window, first, last)]
        assert self.client(0).windows_overlapping(self.stream, first, last) == expected

    @rule(number=st.integers(-1, 12))
    def window_before(self, number: int) -> None:
        time = minute(number)
        ends = [
            (end, window.kind == "live", place, window)
            for place, window in enumerate(self.recorded())
            if window.through is not None
            and (
                ((end := window.contact_at) and end <= time)
                or (not window.contact_at and (end := window.last_event_time) and end < time)
            )
        ]
        expected = max(ends)[-1] if ends else None
        assert self.client(1).window_before(self.stream, time) == expected

    @invariant()
    def agrees_with_the_model(self) -> None:
        position = self.client(0).read(self.stream)
        assert (position.replay_id, position.fence) == (self.replay_id, self.fence)
        found = self.client(1).gaps(self.stream)
        assert [gap.detected_at for gap in found] == sorted(gap.detected_at for gap in self.gaps)
        assert set(found) == set(self.gaps)
        audited = [(record.from_replay_id, record.to_replay_id) for record in self.client(0).resets(self.stream)]
        assert audited == self.resets


@pytest.mark.parametrize("examples", [5, pytest.param(10, marks=pytest.mark.extended)])
def test_every_store_agrees_with_the_model(under_test: StoreUnderTest, examples: int) -> None:
    machine: Callable[[], StoreMachine] = type("Machine", (StoreMachine,), {"under_test": under_test})
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples, stateful_step_count=20, suppress_health_check=list(HealthCheck)),
    )
