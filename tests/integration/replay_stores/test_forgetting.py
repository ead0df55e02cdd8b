"""Deletion of the records of windows that are about to be removed, in every store."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from tests.support.replay_stores import StoreUnderTest, gap_at, minute, new_stream, run_at


def test_forgotten_windows_are_gone_after_their_files_are_removed(under_test: StoreUnderTest) -> None:
    stream, other = new_stream(), new_stream()
    windows = [
        under_test.advance(stream, bytes([number]), run_at(number), events=(number, number + 0.5), gap=gap_at(number))
        for number in range(1, 5)
    ]
    elsewhere = under_test.advance(other, b"\x01", run_at(1), events=(1, 2))
    position = under_test.store.read(stream)
    ids = [window.window_id for window in windows[:2]]

    under_test.store.forget_windows(stream, [*ids, elsewhere.window_id, "20261120T000000Z-unknown"])
    landing = under_test.catalog.landing
    for window_id in ids:
        landing.filesystem.rm_file(landing.manifest_path(stream, window_id))
    under_test.store.forget_windows(stream, ids)

    store = under_test.open()
    assert store.read(stream) == position
    assert store.windows_overlapping(stream, minute(0), minute(99)) == windows[2:]
    assert store.window_before(stream, minute(2)) is None
    assert store.windows_of_run(stream, run_at(1)) == []
    assert {gap_at(3), gap_at(4)} <= set(store.gaps(stream))
    assert store.windows_of_run(other, run_at(1)) == [elsewhere]
    store.close()
    under_test.advance(stream, b"\x05", run_at(5))


def test_the_window_at_the_position_cannot_be_forgotten(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    first = under_test.advance(stream, b"\x01", run_at(1), events=(1, 2))
    window = under_test.advance(stream, b"\x02", run_at(2), events=(2, 3))

    with pytest.raises(ConfigurationError, match=window.window_id):
        under_test.store.forget_windows(stream, [first.window_id, window.window_id])

    assert under_test.store.windows_overlapping(stream, minute(0), minute(9)) == [first, window]
