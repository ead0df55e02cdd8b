"""Pruning of a landing on S3 by the user with the fewest rights, and recovery from a refused removal."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_sfstream.exceptions import LandingError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.pruned import read_pruned
from tests.support.pruning import DailyWindows
from tests.support.replay_stores import StoreUnderTest, table_store

pytestmark = pytest.mark.extended


@pytest.fixture
def under_test(landing: Landing, tmp_path: Path) -> StoreUnderTest:
    store = table_store(tmp_path, f"sqlite:///{tmp_path}/positions.db")
    store.catalog = LandingCatalog(landing)
    return store


def test_oldest_windows_are_removed_with_all_their_files(under_test: StoreUnderTest) -> None:
    windows = DailyWindows(under_test, days=8)

    outcome = windows.prune(today=10.5, older_than=5)

    assert [old.window.window_id for old in outcome.removed] == [window.window_id for window in windows.live[:5]]
    assert windows.recorded() == windows.live[5:]
    assert {path.split("/")[-2] for path in windows.files()} == {window.window_id for window in windows.live[5:]}
    windows.check()


def test_refused_removal_is_finished_by_the_next_prune(
    under_test: StoreUnderTest, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = DailyWindows(under_test, days=8)
    remove, calls = landing.filesystem.rm_file, 0

    def refuse_the_third(path: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise PermissionError(path)
        remove(path)

    monkeypatch.setattr(landing.filesystem, "rm_file", refuse_the_third)
    with pytest.raises(LandingError, match="could not be removed") as raised:
        windows.prune(today=10.5, older_than=5)
    assert raised.value.retriable
    pruned = read_pruned(landing, windows.stream)
    assert pruned is not None
    assert set(pruned.removing) == {window.window_id for window in windows.live[:5]}
    windows.check()

    assert windows.prune(today=10.5, older_than=5).finished == 5

    assert {path.split("/")[-2] for path in windows.files()} == {window.window_id for window in windows.live[5:]}
    windows.check()
