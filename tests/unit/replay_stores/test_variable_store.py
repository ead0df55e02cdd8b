"""The Variable store: its keys, its document, its size limits, and changes by other writers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    PositionConflictError,
    ReplayStoreCorruptError,
    ReplayStoreError,
)
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.replay_stores.document.store import GAPS_KEPT, RESETS_KEPT, DocumentReplayStore
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream
from tests.support.replay_stores import DictVariables, gap_at, minute, run_at, variable_store

STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e", "airflow")
KEY = "sfstream_position.event.Order__e.airflow." + STREAM.key[:12]


def window_after(position: Position, through: bytes | None, number: float) -> ReplayWindow:
    return ReplayWindow(
        f"20261120-{number}",
        "live",
        position.replay_id,
        through,
        0,
        None,
        None,
        "file:///w",
        run_at(number),
        position.window_id,
    )


@pytest.fixture
def variables() -> DictVariables:
    return DictVariables()


@pytest.fixture
def store(variables: DictVariables) -> DocumentReplayStore:
    return DocumentReplayStore(variables=variables, clock=lambda: datetime(2026, 11, 21, 3, tzinfo=UTC))


def test_position_document_is_readable_json(store: DocumentReplayStore, variables: DictVariables) -> None:
    store.reset(STREAM, b"\x00\x06", reason="begin here", updated_by="ann")
    window = replace(window_after(store.read(STREAM), b"\x00\x07", 5), gap=gap_at(5))
    store.advance(STREAM, store.read(STREAM), window)

    assert list(variables.values) == [KEY]
    assert json.loads(variables.values[KEY]) == {
        "format": "sfstream-replay-position",
        "version": 1,
        "stream": {
            "org_id": "00D000000000001EAA",
            "api": "pubsub",
            "topic": "/event/Order__e",
            "subscription": "airflow",
        },
        "position": "0007",
        "fence": 2,
        "window_id": "20261120-5",
        "run": {
            "dag_id": "orders",
            "task_id": "drain",
            "run_id": "scheduled__5",
            "run_after": "2026-11-20T00:05:00+00:00",
            "map_index": -1,
            "try_number": 1,
        },
        "updated_at": "2026-11-21T03:00:00+00:00",
        "updated_by": "orders.drain run scheduled__5 try 1",
        "contact_at": None,
        "confirmed_at": None,
        "gaps": [
            {
                "after": "01",
                "resumed_at": "09",
                "since": "2026-11-20T00:04:00+00:00",
                "detected_at": "2026-11-20T00:05:00+00:00",
                "reason": "aged out",
                "uncertain": False,
            }
        ],
        "resets": [
            {
                "reset_at": "2026-11-21T03:00:00+00:00",
                "reset_by": "ann",
                "reason": "begin here",
                "from": None,
                "to": "0006",
                "from_window_id": None,
            }
        ],
    }


@pytest.mark.parametrize("length", [1, 240])
def test_variable_keys_are_unique_and_short_enough(length: int) -> None:
    store = DocumentReplayStore(variables=DictVariables())
    streams = [
        replace(STREAM, topic="/event/" + "o" * length, subscription=subscription)
        for subscription in ("a" * length, "a" * (length - 1) + "b", "Ä" * length, "a/b" * (length // 3 + 1))
    ]
    keys = {store.key(stream) for stream in streams}

    assert len(keys) == len(streams)
    assert all(len(key + ".gaps") <= 250 and key.isascii() and "/" not in key for key in keys)


def changed(**fields: Any) -> Callable[[str], str]:
    return lambda text: json.dumps({**json.loads(text), **fields})


def without(name: str) -> Callable[[str], str]:
    return lambda text: json.dumps({key: value for key, value in json.loads(text).items() if key != name})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: "00000000005a94f00000", "not JSON"),
        (lambda text: text[:-5], "not JSON"),
        (lambda text: "", "not JSON"),
        (lambda text: "[]", "format"),
        (lambda text: "[" * 100_000, "not JSON"),
        (changed(format="other"), "format"),
        (changed(version=2), "version is 2.*upgrade"),
        (changed(position="xyz"), "'xyz' is not a replay ID"),
        (changed(position="abc"), "'abc' is not a replay ID"),
        (changed(position=""), "'' is not a replay ID"),
        (changed(position=7), "has the wrong type"),
        (changed(position="00" * 65), "is not a replay ID"),
        (changed(fence="1"), "fence is '1'"),
        (changed(fence=True), "fence is True"),
        (changed(fence=0), "fence is 0"),
        (changed(window_id=5), "window_id is 5"),
        (changed(stream={"topic": "/event/Other__e"}), "another stream.*Other__e"),
        (changed(updated_at="yesterday"), "yesterday"),
        (changed(updated_at="2026-11-20T00:00:00"), "time zone"),
        (changed(updated_at=None), "has the wrong type"),
        (changed(gaps=[{}]), "a field is missing"),
        (changed(gaps=None), "has the wrong type"),
        (changed(resets=["x"]), "has the wrong type"),
        (changed(run={"dag_id": "x"}), "a field is missing"),
        (without("position"), "'position'"),
        (without("fence"), "'fence'"),
    ],
)
def test_invalid_variable_is_refused_until_a_reset(
    store: DocumentReplayStore, variables: DictVariables, edit: Callable[[str], str], message: str
) -> None:
    store.advance(STREAM, Position(), window_after(Position(), b"\x01", 1))
    fence_before = store.read(STREAM).fence
    variables.values[KEY] = edited = edit(variables.values[KEY])

    with pytest.raises(ReplayStoreCorruptError, match=message) as raised:
        store.read(STREAM)
    assert KEY in str(raised.value)
    assert "nothing was moved" in str(raised.value)
    assert "ResetReplayPositionOperator" in str(raised.value)
    assert not raised.value.retriable
    with pytest.raises(ReplayStoreCorruptError):
        store.advance(STREAM, Position(), window_after(Position(), b"\x01", 2))
    assert variables.values == {KEY: edited}

    after = store.reset(STREAM, b"\x05", reason="repair", updated_by="ann")
    assert store.read(STREAM) == after
    assert (after.replay_id, after.fence > fence_before) == (b"\x05", True)
    [record] = store.resets(STREAM)
    assert "repair (the previous value was unreadable" in record.reason


def test_gaps_edited_by_hand_are_reported(store: DocumentReplayStore, variables: DictVariables) -> None:
    store.record_gap(STREAM, gap_at(1))
    variables.values[KEY + ".gaps"] = "{}"

    with pytest.raises(ReplayStoreCorruptError, match=r"\.gaps.*delete it"):
        store.gaps(STREAM)
    assert store.read(STREAM) == Position()


def test_lists_are_bounded_and_dropped_entries_are_logged(
    store: DocumentReplayStore, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(GAPS_KEPT):
        store.record_gap(STREAM, gap_at(number))
    for number in range(RESETS_KEPT):
        store.reset(STREAM, b"\x01", reason=f"reason {number}", updated_by="ann")
    with caplog.at_level(logging.WARNING):
        assert not caplog.records
        store.record_gap(STREAM, gap_at(GAPS_KEPT, "one more"))
        store.reset(STREAM, b"\x01", reason="one more", updated_by="ann")

    assert [gap.detected_at for gap in store.gaps(STREAM)] == [minute(n) for n in range(1, GAPS_KEPT + 1)]
    assert [reset.reason for reset in store.resets(STREAM)][0::19] == ["reason 1", "one more"]
    dropped = [record.getMessage() for record in caplog.records]
    assert len(dropped) == 2
    assert "deleting the oldest gap" in dropped[0]
    assert "aged out" in dropped[0]
    assert "reason 0" in dropped[1]


def test_gaps_of_live_windows_are_bounded_too(store: DocumentReplayStore) -> None:
    for number in range(GAPS_KEPT + 3):
        position = store.read(STREAM)
        store.advance(STREAM, position, replace(window_after(position, b"\x01", number), gap=gap_at(number)))

    assert [gap.detected_at for gap in store.gaps(STREAM)] == [minute(n) for n in range(3, GAPS_KEPT + 3)]


def test_a_gap_of_a_backfill_never_rewrites_the_position(store: DocumentReplayStore, variables: DictVariables) -> None:
    store.advance(STREAM, Position(), window_after(Position(), b"\x01", 1))
    before = variables.values[KEY]

    store.record_gap(STREAM, gap_at(2))

    assert variables.values[KEY] == before


def test_write_of_another_writer_is_detected(variables: DictVariables) -> None:
    store = DocumentReplayStore(variables=variables)
    rival = window_after(Position(), b"\x09", 9)

    class OverwrittenVariables(DictVariables):
        def set(self, key: str, value: str, description: str) -> None:
            variables.set(key, value, description)
            variables.set(key, rival_document, description)

        def get(self, key: str) -> str | None:
            return variables.get(key)

    store.advance(STREAM, Position(), rival)
    rival_document = variables.values.pop(KEY)

    with pytest.raises(PositionConflictError, match="scheduled__9"):
        DocumentReplayStore(variables=OverwrittenVariables()).advance(
            STREAM, Position(), window_after(Position(), b"\x01", 1)
        )
    assert store.read(STREAM).replay_id == b"\x09"


def test_variable_with_a_second_definition_is_detected(variables: DictVariables) -> None:
    class Shadowed(DictVariables):
        def get(self, key: str) -> str | None:
            return shadow

    DocumentReplayStore(variables=variables).advance(STREAM, Position(), window_after(Position(), b"\x01", 1))
    shadow = variables.values[KEY]
    store = DocumentReplayStore(variables=Shadowed())
    position = store.read(STREAM)

    with pytest.raises(ReplayStoreError, match="environment variable"):
        store.advance(STREAM, position, window_after(position, b"\x02", 2))


def test_one_window_counts_after_two_undetected_writers(tmp_path: Path, variables: DictVariables) -> None:
    """Variables cannot prevent this. The chain must still have exactly one of the two windows."""
    under_test = variable_store(tmp_path, variables)
    start = under_test.store.read(STREAM)
    first = under_test.land(STREAM, start, b"\x01", run_at(1), events=(0, 1))
    second = under_test.land(STREAM, start, b"\x02", run_at(2), events=(0, 1))
    under_test.store.advance(STREAM, start, first)
    variables.values.clear()  # the second one read before the first wrote
    under_test.store.advance(STREAM, start, second)
    third = under_test.advance(STREAM, b"\x03", run_at(3), events=(2, 3))

    assert under_test.store.windows_overlapping(STREAM, minute(0), minute(9)) == [second, third]
    assert under_test.store.windows_of_run(STREAM, first.run) == []


def test_a_window_that_does_not_follow_the_recorded_one_is_refused(store: DocumentReplayStore) -> None:
    store.advance(STREAM, Position(), window_after(Position(), b"\x01", 1))
    position = store.read(STREAM)

    with pytest.raises(ConfigurationError, match="names None as the window before it"):
        store.advance(STREAM, position, replace(window_after(position, b"\x02", 2), previous_window_id=None))
    assert store.read(STREAM) == position


def test_a_backfill_that_is_not_in_the_landing_is_refused(tmp_path: Path) -> None:
    under_test = variable_store(tmp_path)
    window = replace(window_after(Position(), b"\x01", 1), kind="backfill", gap=gap_at(1))

    with pytest.raises(ReplayStoreError, match="no manifest in the landing"):
        under_test.store.record_backfill(STREAM, window)
    assert under_test.store.gaps(STREAM) == []


def test_without_a_landing_windows_cannot_be_found(store: DocumentReplayStore) -> None:
    with pytest.raises(ConfigurationError, match="no landing is configured"):
        store.windows_of_run(STREAM, run_at(1))
    with pytest.raises(ConfigurationError, match="no landing is configured"):
        store.windows_overlapping(STREAM, minute(0), minute(1))


def test_store_outside_a_task_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("_AIRFLOW_PROCESS_CONTEXT", raising=False)

    with pytest.raises(ReplayStoreError, match=r"works only inside a task and|does not report which"):
        DocumentReplayStore().read(STREAM)


def test_unreadable_existing_variable_does_not_count_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import Variable

    monkeypatch.setattr(Variable, "get", lambda key, default: default)
    monkeypatch.setattr(Variable, "keys", lambda prefix: [prefix, prefix + ".gaps"], raising=False)

    with pytest.raises(ReplayStoreError, match="exists but could not be read") as raised:
        DocumentReplayStore().read(STREAM)
    assert raised.value.retriable


def test_variable_with_the_value_new_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import Variable

    monkeypatch.setattr(Variable, "get", lambda key, default: "new")
    assert DocumentReplayStore().read(STREAM) == Position()
