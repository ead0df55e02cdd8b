"""Restoring a store from the landing, for every store: lost stores, old backups, kills and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.replay_stores.base import Position, ReplayStore
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.recorded_positions import RecordedPositions
from airflow_provider_sfstream.replay_windows.restoring import RestoreResult, restore_from_landing
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream
from tests.support.replay_stores import StoreUnderTest, gap_at, minute, new_stream, run_at

BY = "recovery.restore run manual"


def restore(under_test: StoreUnderTest, store: ReplayStore, stream: Stream, last: str | None = None) -> RestoreResult:
    landed = LandedStream(stream, under_test.catalog, store)
    return restore_from_landing(landed, now=minute(60), updated_by=BY, last_window_id=last)


@dataclass
class DrainedWindows:
    """Windows of live runs and of a backfill, with a reset of the position between them."""

    live: list[ReplayWindow]
    backfill: ReplayWindow


def drain_windows(under_test: StoreUnderTest, stream: Stream) -> DrainedWindows:
    first = under_test.advance(stream, b"\x01", run_at(1), events=(0, 1), covered=(0, 1))
    quiet = under_test.advance(stream, b"\x02", run_at(2), covered=(1, 2))
    gap = under_test.advance(stream, b"\x05", run_at(3), events=(2, 3), covered=(2, 3), gap=gap_at(3))
    under_test.store.reset(stream, b"\x04", reason="once more", updated_by="somebody")
    again = under_test.advance(stream, b"\x07", run_at(4), events=(2, 4), covered=(2, 4))
    backfill = under_test.land(
        stream, Position(b"\x01"), b"\x02", run_at(9), kind="backfill", events=(5, 6), covered=(5, 6)
    )
    under_test.store.record_backfill(stream, backfill)
    return DrainedWindows([first, quiet, gap, again], backfill)


def test_restored_store_returns_the_same_records_as_the_lost_store(
    under_test: StoreUnderTest, empty_store: Callable[[], Any]
) -> None:
    stream = new_stream()
    windows = drain_windows(under_test, stream)
    before = under_test.store.read(stream)
    overlapping = under_test.store.windows_overlapping(stream, minute(0), minute(60))
    store = empty_store()

    restored = restore(under_test, store, stream)

    assert (restored.live_windows, restored.backfill_windows) == (4, 1)
    assert restored.after == store.read(stream)
    assert (restored.after.replay_id, restored.after.window_id) == (before.replay_id, before.window_id)
    assert store.windows_overlapping(stream, minute(0), minute(60)) == overlapping == [*windows.live, windows.backfill]
    for window in (*windows.live, windows.backfill):
        assert store.windows_of_run(stream, window.run) == [window]
    assert store.window_before(stream, minute(3.5)) == under_test.store.window_before(stream, minute(3.5))
    assert store.gaps(stream) == [gap_at(3)]
    assert [(reset.to_replay_id, reset.reset_by) for reset in store.resets(stream)] == [(b"\x04", BY)]
    under_test.store = store
    following = under_test.advance(stream, b"\x09", run_at(11), events=(10, 11))
    assert following.previous_window_id == windows.live[-1].window_id


def test_second_restore_changes_nothing(under_test: StoreUnderTest, empty_store: Callable[[], Any]) -> None:
    stream = new_stream()
    drain_windows(under_test, stream)
    store = empty_store()
    once = restore(under_test, store, stream)

    twice = restore(under_test, store, stream)

    assert twice == RestoreResult(once.after, once.after, 0, 1)
    assert len(store.resets(stream)) == 1


def test_restore_adds_the_windows_that_an_old_backup_lacks(
    under_test: StoreUnderTest, empty_store: Callable[[], Any]
) -> None:
    stream = new_stream()
    windows = drain_windows(under_test, stream)
    store = empty_store()
    restore(under_test, store, stream, last=windows.live[1].window_id)
    assert store.read(stream).replay_id == b"\x02"

    restored = restore(under_test, store, stream)

    assert (restored.before.replay_id, restored.after.replay_id, restored.live_windows) == (b"\x02", b"\x07", 2)
    assert store.windows_of_run(stream, windows.live[2].run) == [windows.live[2]]


class CrashError(Exception):
    """Simulated kill directly after a write."""


def test_restore_killed_after_each_write_and_retried_has_the_same_result(
    under_test: StoreUnderTest, empty_store: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = new_stream()
    windows = drain_windows(under_test, stream)
    store = empty_store()
    written: set[Any] = set()

    def crash_at_the_first_new_write(method: str) -> Callable[..., Any]:
        original = getattr(store, method)

        def call(*arguments: Any, **named: Any) -> Any:
            returned = original(*arguments, **named)
            write = (method, *(each.window_id for each in arguments if isinstance(each, ReplayWindow)))
            if write not in written:
                written.add(write)
                raise CrashError
            return returned

        return call

    for method in ("advance", "reset", "record_backfill"):
        monkeypatch.setattr(store, method, crash_at_the_first_new_write(method))
    crashes = 0
    while True:
        try:
            restore(under_test, store, stream)
            break
        except CrashError:
            crashes += 1

    assert crashes == 6  # four live windows, the reset between them, the backfill window
    position = store.read(stream)
    assert (position.replay_id, position.window_id) == (b"\x07", windows.live[-1].window_id)
    found = store.windows_overlapping(stream, minute(0), minute(60))
    assert [window.window_id for window in found] == [window.window_id for window in (*windows.live, windows.backfill)]


def test_restore_leaves_out_the_window_of_a_refused_advance(
    under_test: StoreUnderTest, empty_store: Callable[[], Any]
) -> None:
    stream = new_stream()
    first = under_test.advance(stream, b"\x01", run_at(1), events=(0, 1))
    at_first = under_test.store.read(stream)
    loser = under_test.land(stream, at_first, b"\x03", run_at(3), events=(1, 3))
    winner = under_test.advance(stream, b"\x02", run_at(2), events=(1, 2))
    store = empty_store()

    with pytest.raises(ConfigurationError, match="Set last_window_id to the ID of the window") as raised:
        restore(under_test, store, stream)
    assert winner.window_id in str(raised.value)
    assert loser.window_id in str(raised.value)
    assert store.read(stream).fence == 0
    assert restore(under_test, store, stream, last=winner.window_id).after.replay_id == b"\x02"

    # A following window decides which of the two was recorded.
    under_test.land(stream, Position(b"\x02", 2, winner.window_id), b"\x04", run_at(4), events=(3, 4))
    restored = restore(under_test, store, stream)
    assert (restored.live_windows, restored.after.replay_id) == (1, b"\x04")
    assert store.windows_of_run(stream, loser.run) == []
    assert store.windows_of_run(stream, first.run) == [first]


def test_recorded_position_decides_between_two_last_windows(
    under_test: StoreUnderTest, empty_store: Callable[[], Any]
) -> None:
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1), events=(0, 1))
    at_first = under_test.store.read(stream)
    loser = under_test.land(stream, at_first, b"\x03", run_at(3), events=(1, 3))
    winner = under_test.land(stream, at_first, b"\x02", run_at(2), events=(1, 2))
    RecordedPositions(stream, under_test.catalog, under_test.store).advance(at_first, winner)
    store = empty_store()

    restored = restore(under_test, store, stream)

    assert (restored.live_windows, restored.after.window_id) == (2, winner.window_id)
    assert store.windows_of_run(stream, loser.run) == []


def test_restore_is_refused_while_the_listing_lacks_the_last_recorded_window(
    under_test: StoreUnderTest, empty_store: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1), events=(0, 1))
    at_first = under_test.store.read(stream)
    last = under_test.land(stream, at_first, b"\x02", run_at(2), events=(1, 2))
    RecordedPositions(stream, under_test.catalog, under_test.store).advance(at_first, last)
    store = empty_store()
    listed = LandingCatalog._list

    def outdated(catalog: LandingCatalog, folder: str) -> list[str]:
        return [name for name in listed(catalog, folder) if name != last.window_id]

    with monkeypatch.context() as patch:
        patch.setattr(LandingCatalog, "_list", outdated)
        with pytest.raises(LandingError, match=f"does not list window {last.window_id}, which exists"):
            restore(under_test, store, stream)
    assert store.read(stream).replay_id is None
    assert restore(under_test, store, stream).after.window_id == last.window_id


def test_restore_works_without_the_oldest_windows(
    under_test: StoreUnderTest, empty_store: Callable[[], Any], tmp_path: Path
) -> None:
    stream = new_stream()
    windows = [under_test.advance(stream, bytes([n]), run_at(n), events=(n, n)) for n in range(1, 5)]
    for window in windows[:2]:
        path = under_test.catalog.landing.manifest_path(stream, window.window_id)
        Path(path).unlink()
    store = empty_store()

    restored = restore(under_test, store, stream)

    assert (restored.live_windows, restored.after.replay_id) == (2, b"\x04")
    assert [window.window_id for window in store.windows_overlapping(stream, minute(0), minute(60))] == [
        window.window_id for window in windows[2:]
    ]


def test_restarted_stream_is_restored_after_its_position_is_reset(
    under_test: StoreUnderTest, empty_store: Callable[[], Any]
) -> None:
    stream = new_stream()
    old = under_test.advance(stream, b"\x04", run_at(1), events=(0, 1))
    older_end = under_test.advance(stream, b"\x05", run_at(2), events=(1, 2))
    store = under_test.store = empty_store()
    new = under_test.advance(stream, b"\x06", run_at(10), events=(0, 10))
    assert restore(under_test, store, stream).live_windows == 0
    newest = under_test.advance(stream, b"\x08", run_at(11), events=(10, 11))

    assert restore(under_test, store, stream).live_windows == 0
    store.reset(stream, None, reason="the landing is to decide", updated_by="somebody")
    restored = restore(under_test, store, stream)

    assert restored.after.replay_id == b"\x08"
    for window in (old, older_end, new, newest):
        assert [each.window_id for each in store.windows_of_run(stream, window.run)] == [window.window_id]
    following = under_test.advance(stream, b"\x09", run_at(12))
    assert following.after == b"\x08"


def test_restore_refuses_other_streams_unknown_windows_and_reset_positions(
    under_test: StoreUnderTest, empty_store: Callable[[], Any], tmp_path: Path
) -> None:
    stream, other = new_stream(), new_stream("/event/Other__e")
    under_test.advance(stream, b"\x01", run_at(1))
    with pytest.raises(ConfigurationError, match="has no window of this stream"):
        restore(under_test, under_test.store, other)
    with pytest.raises(ConfigurationError, match="no live window 20260101T000000Z-nothing"):
        restore(under_test, under_test.store, stream, last="20260101T000000Z-nothing")
    under_test.store.reset(stream, b"\x99", reason="by hand", updated_by="somebody")
    with pytest.raises(ConfigurationError, match="was set by hand"):
        restore(under_test, under_test.store, stream)
    assert under_test.store.read(stream).replay_id == b"\x99"


def test_restore_refuses_a_landing_without_the_window_of_the_position(
    under_test: StoreUnderTest, tmp_path: Path
) -> None:
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1))
    elsewhere = StoreUnderTest(lambda: under_test.store, LandingCatalog(Landing.from_url(str(tmp_path / "elsewhere"))))
    elsewhere.land(stream, Position(b"\x07", 7), b"\x08", run_at(7))

    landed = LandedStream(stream, elsewhere.catalog, under_test.store)
    with pytest.raises(ConfigurationError, match="is on window"):
        restore_from_landing(landed, now=minute(60), updated_by=BY)
    assert under_test.store.read(stream).replay_id == b"\x01"
