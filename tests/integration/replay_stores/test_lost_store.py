"""Lost or replaced stores while the landing has windows of the stream, for every store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import PositionConflictError, ReplayStoreLostError
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome, commit_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.drained_minutes import Minutes, event
from tests.support.replay_stores import StoreUnderTest, run_at
from tests.support.scripted_source import ForbiddenSource, ScriptedSource, replay_id

BY = "somebody"


@pytest.fixture
def minutes(under_test: StoreUnderTest) -> Minutes:
    return Minutes(under_test)


@pytest.mark.parametrize("start_from", [StartFrom.EARLIEST, StartFrom.LATEST, replay_id(1)], ids=str)
def test_drain_with_a_lost_store_raises_and_reads_nothing(
    minutes: Minutes, empty_store: Callable[[], Any], start_from: StartFrom | bytes
) -> None:
    before = [minutes.drain(3), minutes.drain(5)]
    minutes.store = empty_store()

    for _ in range(2):
        with pytest.raises(ReplayStoreLostError) as raised:
            minutes.drain(9, ForbiddenSource([]), start_from=start_from)

    for part in (
        str(minutes.stream),
        before[1].manifest.window.window_id,
        "RestoreReplayPositionOperator",
        "Nothing was read",
    ):
        assert part in str(raised.value)
    assert not raised.value.retriable
    assert minutes.store.read(minutes.stream) == Position()
    assert minutes.windows() == [outcome.manifest for outcome in before]

    minutes.restore()
    after = minutes.drain(9, start_from=start_from)
    assert minutes.landed(*before, after) == [replay_id(number) for number in range(1, 10)]


def test_interval_with_a_lost_store_raises_and_reports_no_missing_hour(
    minutes: Minutes, empty_store: Callable[[], Any]
) -> None:
    minutes.drain(5)
    minutes.store = empty_store()

    with pytest.raises(ReplayStoreLostError, match="RestoreReplayPositionOperator"):
        minutes.backfill(3, at=90 * 60)


def test_stream_restarts_after_a_reset_that_forgets_the_position(
    minutes: Minutes, empty_store: Callable[[], Any]
) -> None:
    minutes.drain(3)
    minutes.store.reset(minutes.stream, None, reason="anew", updated_by=BY)
    assert minutes.landed(minutes.drain(4)) == [replay_id(number) for number in range(1, 5)]

    minutes.store = empty_store()
    minutes.store.reset(minutes.stream, None, reason="anew, in another store", updated_by=BY)
    assert minutes.landed(minutes.drain(5)) == [replay_id(number) for number in range(1, 6)]


def test_backfill_before_the_first_live_run_is_not_a_lost_store(minutes: Minutes) -> None:
    minutes.backfill(3, at=6)
    minutes.backfill(4, at=6)
    assert {manifest.window.kind for manifest in minutes.windows()} == {"backfill"}

    assert minutes.landed(minutes.drain(7)) == [replay_id(number) for number in range(1, 8)]


def test_first_window_of_a_killed_try_is_adopted_only_by_its_own_run(minutes: Minutes) -> None:
    minutes.die_before_recording(3)

    with pytest.raises(ReplayStoreLostError, match=r"scheduled__3.*RestoreReplayPositionOperator"):
        minutes.drain(5, ForbiddenSource([]), start_from=StartFrom.LATEST)

    outcome = minutes.drain(3, ForbiddenSource([]))
    assert not outcome.drained
    assert minutes.landed(outcome, minutes.drain(5)) == [replay_id(number) for number in range(1, 6)]


def test_first_window_of_a_failed_run_can_be_restored(minutes: Minutes) -> None:
    minutes.die_before_recording(3)

    minutes.restore()

    (first,) = minutes.windows()
    assert minutes.store.read(minutes.stream).window_id == first.window.window_id
    assert minutes.drain(5).manifest.window.after == first.window.through


def test_cleared_first_run_with_a_lost_store_raises(minutes: Minutes, empty_store: Callable[[], Any]) -> None:
    minutes.drain(3)
    minutes.drain(5)
    minutes.store = empty_store()

    with pytest.raises(ReplayStoreLostError):
        minutes.drain(3, ForbiddenSource([]))

    assert minutes.store.read(minutes.stream) == Position()


def test_uncommitted_first_window_stops_the_next_run(minutes: Minutes) -> None:
    waiting = minutes.drain(3, advance=False)

    with pytest.raises(ReplayStoreLostError, match="CommitReplayPositionOperator"):
        minutes.drain(5, ForbiddenSource([]), start_from=StartFrom.LATEST, advance=False)

    commit_window(waiting.manifest, store=minutes.store, catalog=minutes.under_test.catalog)
    assert minutes.landed(waiting, minutes.drain(5)) == [replay_id(number) for number in range(1, 6)]


def test_slower_first_run_is_not_a_lost_store(minutes: Minutes, monkeypatch: pytest.MonkeyPatch) -> None:
    read, others = minutes.store.read, []

    def overtaken(stream: Stream) -> Position:
        position = read(stream)
        if not others:
            others.append(None)
            others.append(minutes.drain(3))
        return position

    monkeypatch.setattr(minutes.store, "read", overtaken)

    assert minutes.drain(5).manifest.window.after == replay_id(3)


def test_only_one_of_two_concurrent_first_runs_advances(minutes: Minutes) -> None:
    """Both runs read the store before either of them has landed a window."""
    others: list[WindowOutcome] = []

    class Overtaken(ScriptedSource):
        def subscribe(self, *arguments: Any, **named: Any) -> Any:
            others.append(minutes.drain(3))
            return super().subscribe(*arguments, **named)

    with pytest.raises(PositionConflictError, match="scheduled__3"):
        minutes.drain(5, Overtaken([event(number) for number in range(1, 6)]))

    assert minutes.landed(others[0], minutes.drain(5)) == [replay_id(number) for number in range(1, 6)]


def test_landing_is_not_listed_when_the_store_has_the_stream(minutes: Minutes, monkeypatch: pytest.MonkeyPatch) -> None:
    minutes.drain(3)
    monkeypatch.setattr(minutes.under_test.catalog, "newest_live", lambda stream: pytest.fail("listed"))

    minutes.drain(5)
    position = LandedStream(minutes.stream, minutes.under_test.catalog, minutes.store).known_position(run_at(6))
    assert position == minutes.store.read(minutes.stream)
