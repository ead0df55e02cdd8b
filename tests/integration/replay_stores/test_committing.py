"""Commits of windows that were drained before the store was restored from a backup, for every store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, commit_window, drain_window
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from tests.support.drained_minutes import Minutes, event
from tests.support.replay_stores import StoreUnderTest, minute, run_at
from tests.support.scripted_source import ScriptedSource, replay_id, use_clock


def test_a_window_is_not_committed_to_a_position_that_only_has_the_same_fence(
    under_test: StoreUnderTest, empty_store: Callable[[], Any]
) -> None:
    minutes = Minutes(under_test)
    first = minutes.drain(2)
    minutes.drain(8)
    waiting = minutes.drain(10, advance=False)
    minutes.store = empty_store()  # restored from a backup that ends with the first window
    minutes.restore(first.manifest.window.window_id)
    second = minutes.drain(4)
    before = minutes.store.read(minutes.stream)
    assert before.fence == waiting.manifest.fence, "after a restored backup, another position has the same fence"

    with pytest.raises(PositionConflictError) as raised:
        commit_window(waiting.manifest, store=minutes.store, catalog=under_test.catalog)

    for part in (waiting.manifest.window.window_id, "scheduled__4", "backup", "was not moved", "clear the drain"):
        assert part in str(raised.value)
    assert minutes.store.read(minutes.stream) == before
    last = minutes.drain(10, try_number=2)
    assert minutes.landed(first, second, last) == [replay_id(number) for number in range(1, 11)]


def test_later_run_with_a_slow_clock_hides_no_window_from_a_retry(under_test: StoreUnderTest) -> None:
    minutes = Minutes(under_test)
    first = minutes.drain(300)
    source = ScriptedSource([event(number) for number in range(1, 304)], began=minute(301))
    request = WindowRequest(run_at(301), DrainLimits())
    with use_clock(source.time):
        drain_window(minutes.landed_stream, request, source=source, now=lambda: minute(100))

    retry = minutes.drain(300, try_number=2)

    assert (retry.drained, retry.manifest.window) == (False, first.manifest.window)
