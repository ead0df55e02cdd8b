"""Landings without the window of the recorded position, for every store: unmounted, deleted, or another URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_sfstream.exceptions import LandingLostError
from airflow_provider_sfstream.salesforce.streams import Stream
from tests.support.drained_minutes import Minutes
from tests.support.replay_stores import StoreUnderTest
from tests.support.scripted_source import ForbiddenSource, replay_id

BY = "somebody"


@pytest.fixture
def minutes(under_test: StoreUnderTest) -> Minutes:
    return Minutes(under_test)


def unmount(landing: Path, elsewhere: Path) -> None:
    """Move all files of a landing, except those of a replay store in it."""
    elsewhere.mkdir()
    for entry in landing.iterdir():
        if entry.name != "positions":
            entry.rename(elsewhere / entry.name)


def mount(landing: Path, elsewhere: Path) -> None:
    for entry in elsewhere.iterdir():
        entry.rename(landing / entry.name)


def test_drain_into_a_vanished_landing_raises_and_reads_nothing(minutes: Minutes, tmp_path: Path) -> None:
    before = [minutes.drain(3), minutes.drain(5)]
    position = minutes.store.read(minutes.stream)
    unmount(tmp_path / "landing", tmp_path / "elsewhere")

    for _ in range(2):
        with pytest.raises(LandingLostError) as raised:
            minutes.drain(9, ForbiddenSource([]))

    for part in (
        str(minutes.stream),
        before[1].manifest.window.window_id,
        minutes.under_test.catalog.landing.url,
        "ResetReplayPositionOperator",
        f"replay_id='{replay_id(5).hex()}'",
        "No event was read",
    ):
        assert part in str(raised.value)
    assert not raised.value.retriable
    assert minutes.store.read(minutes.stream) == position
    assert minutes.windows() == []

    mount(tmp_path / "landing", tmp_path / "elsewhere")
    after = minutes.drain(9)
    assert minutes.landed(*before, after) == [replay_id(number) for number in range(1, 10)]


def test_backfill_with_a_vanished_landing_raises(minutes: Minutes, tmp_path: Path) -> None:
    minutes.drain(5)
    unmount(tmp_path / "landing", tmp_path / "elsewhere")

    with pytest.raises(LandingLostError, match="ResetReplayPositionOperator"):
        minutes.backfill(3, at=6)


def test_reset_to_the_same_replay_id_accepts_an_empty_landing(minutes: Minutes, tmp_path: Path) -> None:
    minutes.drain(5)
    unmount(tmp_path / "landing", tmp_path / "elsewhere")

    minutes.store.reset(minutes.stream, replay_id(5), reason="the landing has a new URL", updated_by=BY)

    assert minutes.landed(minutes.drain(9)) == [replay_id(number) for number in range(6, 10)]


def test_position_that_another_run_moves_during_the_check_is_not_a_lost_landing(
    minutes: Minutes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may advance the position and prune the previous window between the two reads."""
    minutes.drain(3)
    store, reads = minutes.store, []
    read = store.read
    old = read(minutes.stream)
    minutes.drain(5)
    assert old.window_id is not None
    folder = Path(minutes.under_test.catalog.landing.window_folder(minutes.stream, old.window_id))

    def read_before_the_other_run(stream: Stream) -> object:
        reads.append(None)
        return old if len(reads) <= 2 else read(stream)

    monkeypatch.setattr(store, "read", read_before_the_other_run)
    folder.rename(tmp_path / "pruned")

    assert minutes.drain(9).manifest.window.after == replay_id(5)
