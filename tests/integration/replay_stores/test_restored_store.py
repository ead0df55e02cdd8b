"""Stores restored from a backup that lacks windows of the landing, for every store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import LandingError, PositionConflictError, ReplayStoreLostError
from airflow_provider_sfstream.landing import replaced_files
from airflow_provider_sfstream.replay_windows import recorded_positions
from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome, commit_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.pruning import prune_stream
from airflow_provider_sfstream.replay_windows.recorded_positions import read_recorded, write_recorded
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.drained_minutes import Minutes
from tests.support.killed import Killed, killed_at
from tests.support.replay_stores import StoreUnderTest, minute, run_at
from tests.support.scripted_source import ForbiddenSource, replay_id

BY = "somebody"


@pytest.fixture
def minutes(under_test: StoreUnderTest) -> Minutes:
    return Minutes(under_test)


@pytest.fixture
def restore_backup(minutes: Minutes, empty_store: Callable[[], Any]) -> Callable[[WindowOutcome], None]:
    """Return a function that replaces the store by a backup that ends with the given window."""

    def restore_backup_to(last: WindowOutcome) -> None:
        minutes.store = empty_store()
        # Minutes.restore also writes the recorded position, but restoring a backup does not change the landing.
        recorded = read_recorded(minutes.under_test.catalog.landing, minutes.stream)
        minutes.restore(last.manifest.window.window_id)
        if recorded is not None:
            write_recorded(minutes.under_test.catalog.landing, recorded)

    return restore_backup_to


def numbers(*values: int) -> list[bytes]:
    return [replay_id(number) for number in values]


def test_drain_with_a_restored_store_raises_and_reads_nothing(
    minutes: Minutes, restore_backup: Callable[..., None]
) -> None:
    before = [minutes.drain(due) for due in (3, 5, 7)]
    restore_backup(before[0])
    position = minutes.store.read(minutes.stream)

    for due in (9, 7, 5):
        with pytest.raises(ReplayStoreLostError) as raised:
            minutes.drain(due, ForbiddenSource([]), try_number=2)
    for part in (str(minutes.stream), before[2].manifest.window.window_id, "RestoreReplayPositionOperator", "Nothing"):
        assert part in str(raised.value)
    with pytest.raises(ReplayStoreLostError):
        minutes.backfill(7, at=90 * 60)
    assert minutes.store.read(minutes.stream) == position
    assert minutes.windows() == [outcome.manifest for outcome in before]

    minutes.restore()
    again = minutes.drain(7, ForbiddenSource([]), try_number=3)
    assert again.manifest == before[2].manifest
    assert minutes.landed(*before, minutes.drain(9)) == numbers(*range(1, 10))
    assert minutes.landed(minutes.drain(11)) == numbers(10, 11)


def test_reset_after_restoring_a_backup_allows_drains(minutes: Minutes, restore_backup: Callable[..., None]) -> None:
    before = [minutes.drain(due) for due in (3, 5, 7)]
    restore_backup(before[0])
    minutes.store.reset(minutes.stream, replay_id(3), reason="drain again", updated_by=BY)

    assert minutes.landed(minutes.drain(9)) == numbers(*range(4, 10))
    assert minutes.landed(minutes.drain(11)) == numbers(10, 11)


def test_killed_drain_after_a_reset_of_a_restored_store_stops_no_run(
    minutes: Minutes, restore_backup: Callable[..., None]
) -> None:
    before = [minutes.drain(due) for due in (3, 5, 7)]
    restore_backup(before[0])
    minutes.store.reset(minutes.stream, replay_id(3), reason="drain again", updated_by=BY)
    kill_before_recorded(minutes, 9)

    assert minutes.landed(minutes.drain(9, ForbiddenSource([]), try_number=2)) == numbers(*range(4, 10))
    assert minutes.landed(minutes.drain(11)) == numbers(10, 11)


def kill_before_recorded(minutes: Minutes, due: int) -> None:
    with killed_at([(recorded_positions, "write_recorded")], 1, after=False), pytest.raises(Killed):
        minutes.drain(due)


@pytest.mark.parametrize("to", [None, 1, 3])
def test_drain_follows_a_position_that_a_user_set_back(minutes: Minutes, to: int | None) -> None:
    minutes.drain(3)
    minutes.drain(5)
    minutes.store.reset(minutes.stream, None if to is None else replay_id(to), reason="once more", updated_by=BY)

    assert minutes.landed(minutes.drain(7)) == numbers(*range((to or 0) + 1, 8))
    assert minutes.landed(minutes.drain(9)) == numbers(8, 9)


def test_drains_killed_after_advancing_the_position_stop_no_run(minutes: Minutes) -> None:
    first = minutes.drain(3)
    kill_before_recorded(minutes, 5)
    kill_before_recorded(minutes, 7)
    recorded = read_recorded(minutes.under_test.catalog.landing, minutes.stream)
    assert recorded is not None
    assert recorded.window_id == first.manifest.window.window_id, (
        "the recorded position is two windows behind the store"
    )

    assert minutes.landed(minutes.drain(5, ForbiddenSource([]), try_number=2)) == numbers(4, 5)
    assert minutes.landed(minutes.drain(9)) == numbers(8, 9)


def test_window_of_a_killed_try_is_adopted_by_its_own_run(minutes: Minutes) -> None:
    first = minutes.drain(3)
    minutes.die_before_recording(5)

    adopted = minutes.drain(5, ForbiddenSource([]), try_number=2)
    assert minutes.landed(first, adopted, minutes.drain(7)) == numbers(*range(1, 8))


def test_window_of_a_killed_try_does_not_stop_other_runs(minutes: Minutes) -> None:
    first = minutes.drain(3)
    minutes.die_before_recording(5)

    assert minutes.landed(first, minutes.drain(7), minutes.drain(9)) == numbers(*range(1, 10))


def test_uncommitted_window_stops_no_run(minutes: Minutes) -> None:
    first = minutes.drain(3)
    waiting = minutes.drain(5, advance=False)
    assert minutes.landed(minutes.drain(5, ForbiddenSource([]), try_number=2, advance=False)) == numbers(4, 5)
    minutes.drain(7, advance=False)

    commit_window(waiting.manifest, store=minutes.store, catalog=minutes.under_test.catalog)
    recorded = read_recorded(minutes.under_test.catalog.landing, minutes.stream)
    assert recorded is not None
    assert recorded.window_id == waiting.manifest.window.window_id
    assert minutes.landed(first, waiting, minutes.drain(9)) == numbers(*range(1, 10))


def test_replaced_window_is_not_committed_to_a_restored_store(
    minutes: Minutes, restore_backup: Callable[..., None]
) -> None:
    first = minutes.drain(3)
    late = minutes.drain(5, advance=False)
    recorded = minutes.drain(7)
    restore_backup(first)

    with pytest.raises(ReplayStoreLostError, match=recorded.manifest.window.window_id):
        commit_window(late.manifest, store=minutes.store, catalog=minutes.under_test.catalog)

    minutes.restore(recorded.manifest.window.window_id)
    assert minutes.landed(first, recorded, minutes.drain(9)) == numbers(*range(1, 10))


def test_window_of_a_refused_advance_stops_no_run(minutes: Minutes) -> None:
    first = minutes.drain(3)
    advance = minutes.store.advance

    def overtaken(*arguments: Any) -> Any:
        minutes.store.advance = advance  # type: ignore[method-assign]
        minutes.drain(7)
        return advance(*arguments)

    minutes.store.advance = overtaken  # type: ignore[method-assign]
    with pytest.raises(PositionConflictError):
        minutes.drain(5)

    assert minutes.landed(minutes.drain(7, ForbiddenSource([]), try_number=2)) == numbers(4, 5, 6, 7)
    assert minutes.landed(first, minutes.drain(9)) == numbers(1, 2, 3, 8, 9)


def test_backfill_windows_are_not_compared_with_the_store(minutes: Minutes) -> None:
    minutes.drain(3)
    minutes.backfill(5, at=6)

    assert minutes.landed(minutes.drain(7)) == numbers(4, 5, 6, 7)


def test_landing_of_an_earlier_version_can_be_used(minutes: Minutes) -> None:
    for due in (3, 5):
        minutes.drain(due)
    landing = minutes.under_test.catalog.landing
    landing.filesystem.rm_file(landing.recorded_path(minutes.stream))

    assert minutes.landed(minutes.drain(7)) == numbers(6, 7)
    assert read_recorded(landing, minutes.stream) is not None


def test_restore_that_is_killed_before_its_last_write_can_be_repeated(
    minutes: Minutes, restore_backup: Callable[..., None]
) -> None:
    before = [minutes.drain(due) for due in (3, 5, 7)]
    restore_backup(before[0])
    with killed_at([(recorded_positions, "write_recorded")], 1, after=False), pytest.raises(Killed):
        minutes.restore(before[1].manifest.window.window_id)
    with pytest.raises(ReplayStoreLostError):
        minutes.drain(9, ForbiddenSource([]))

    minutes.restore(before[1].manifest.window.window_id)
    assert minutes.landed(*before[:2], minutes.drain(9)) == numbers(*range(1, 10))


def test_drain_killed_at_any_write_of_landing_or_store_stops_no_run(minutes: Minutes) -> None:
    """The documented exception is not tested: a backup that lacks only the last window, of a killed run."""
    expected, last = minutes.landed(minutes.drain(1)), 1
    calls = [
        (minutes.under_test.catalog, "write_manifest"),
        (minutes.store, "advance"),
        (replaced_files, "replace_file"),
    ]
    for after in (False, True):
        for nth in range(1, 4):
            last += 2
            with killed_at(calls, nth, after=after), pytest.raises(Killed):
                minutes.drain(last)
            expected += minutes.landed(minutes.drain(last, try_number=2))
            last += 1
            expected += minutes.landed(minutes.drain(last))
    assert expected == numbers(*range(1, last + 1))


def test_drain_succeeds_when_the_recorded_position_cannot_be_written(
    minutes: Minutes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise LandingError("The disk is full.")

    monkeypatch.setattr(recorded_positions, "write_recorded", full)
    assert minutes.landed(minutes.drain(3), minutes.drain(5)) == numbers(1, 2, 3, 4, 5)
    assert "The disk is full" in caplog.text


def test_invalid_recorded_position_stops_the_drain_and_names_the_remedy(minutes: Minutes) -> None:
    minutes.drain(3)
    landing = minutes.under_test.catalog.landing
    landing.filesystem.pipe_file(landing.recorded_path(minutes.stream), b"{}")

    with pytest.raises(LandingError, match="remove the file"):
        minutes.drain(5, ForbiddenSource([]))

    landing.filesystem.rm_file(landing.recorded_path(minutes.stream))
    assert minutes.landed(minutes.drain(5)) == numbers(4, 5)


def test_known_position_reads_no_manifests_or_resets(minutes: Minutes, monkeypatch: pytest.MonkeyPatch) -> None:
    drained = minutes.drain(3)
    catalog = minutes.under_test.catalog
    monkeypatch.setattr(catalog, "chain", lambda *_: pytest.fail("manifests were read"))
    monkeypatch.setattr(minutes.store, "resets", lambda *_: pytest.fail("resets were read"))

    position = minutes.landed_stream.known_position(run_at(5))
    assert position.window_id == drained.manifest.window.window_id


def test_second_store_of_one_landing_is_refused(
    minutes: Minutes, empty_store: Callable[[], Any], under_test: StoreUnderTest
) -> None:
    """Two stores over one landing, where each has windows that the other lacks."""
    for due in (3, 5, 7):
        minutes.drain(due)
    minutes.store = empty_store()
    minutes.store.reset(minutes.stream, None, reason="another store", updated_by=BY)
    mine = minutes.drain(9)
    minutes.store = under_test.open()
    if minutes.store.read(minutes.stream).window_id == mine.manifest.window.window_id:
        pytest.skip("the landing holds one store")

    with pytest.raises(ReplayStoreLostError):
        minutes.drain(11, ForbiddenSource([]), start_from=StartFrom.EARLIEST)


def test_pruning_refuses_a_restored_store(minutes: Minutes, restore_backup: Callable[..., None]) -> None:
    before = [minutes.drain(due) for due in (3, 5, 7)]
    restore_backup(before[0])

    with pytest.raises(ReplayStoreLostError):
        prune_stream(
            LandedStream(minutes.stream, minutes.under_test.catalog, minutes.store),
            timedelta(days=30),
            pruned_by=BY,
            now=lambda: minute(99),
        )
