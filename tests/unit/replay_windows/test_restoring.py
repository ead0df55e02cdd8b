"""Restored replay stores: after random histories, a store rebuilt from the landing equals the lost store."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from airflow_provider_sfstream.replay_stores.base import Position, ReplayStore
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.restoring import restore_from_landing
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream
from tests.support.examples import for_examples
from tests.support.replay_stores import (
    DictVariables,
    StoreUnderTest,
    minute,
    new_stream,
    run_at,
    variable_store,
)

HISTORIES = st.lists(
    st.sampled_from(["window", "empty", "race", "reset", "forget", "backfill"]), min_size=1, max_size=14
)


def live(under_test: StoreUnderTest, stream: Stream, history: Sequence[str]) -> None:
    """Apply a history, one step per minute. Two windows at its end record the position in the landing."""
    number = 0

    def window(*, events: bool = True) -> None:
        nonlocal number
        number += 1
        times = (number - 1, number) if events else None
        under_test.advance(stream, number.to_bytes(2), run_at(number), events=times, covered=(number - 1, number))

    for step in history:
        number += 1
        position = under_test.store.read(stream)
        if step == "race":  # the losing window is landed first, and the chain continues with the winner
            under_test.land(stream, position, b"\xff\xff", run_at(number), events=(number - 1, number))
            window()
            window()
        elif step in ("reset", "forget"):
            to = number.to_bytes(2) if step == "reset" else None
            under_test.store.reset(stream, to, reason="test", updated_by="test")
        elif step == "backfill":
            found = under_test.land(
                stream, Position(b"\x01"), b"\x02", run_at(number), kind="backfill", events=(number, number)
            )
            under_test.store.record_backfill(stream, found)
        else:
            window(events=step == "window")
    window()
    window()


def windows(store: ReplayStore, stream: Stream) -> list[ReplayWindow]:
    return store.windows_overlapping(stream, minute(-60), minute(600))


def held(store: ReplayStore, stream: Stream) -> list[str]:
    return [window.window_id for window in windows(store, stream)]


@for_examples(history=HISTORIES, cut=st.integers(0, 30), few=20, many=150)
def test_restored_store_equals_the_lost_store(history: list[str], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        under_test, stream = variable_store(Path(folder)), new_stream()
        live(under_test, stream, history)
        before = under_test.store.read(stream)
        recorded = held(under_test.store, stream)
        restored_store = DocumentReplayStore(under_test.catalog, DictVariables())
        landed = LandedStream(stream, under_test.catalog, restored_store)

        # Restore up to an earlier window, as from an older backup, then restore the rest.
        ids = [window.window_id for window in windows(under_test.store, stream) if window.kind == "live"]
        last = ids[min(cut, len(ids) - 1)]
        restore_from_landing(landed, now=minute(600), updated_by="test", last_window_id=last)
        restored = restore_from_landing(landed, now=minute(600), updated_by="test")

        assert (restored.after.replay_id, restored.after.window_id) == (before.replay_id, before.window_id)
        assert held(restored_store, stream) == recorded
