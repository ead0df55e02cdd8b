"""Refresh document of a Spark job, and the removal of a table's flag."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.replica.refresh import flag_after
from airflow_provider_sfstream.tables.replica.refresh_document import RefreshDocument, TableRefresh
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, Flag, StreamState

TABLE = TableRefresh(
    "full",
    ("Name", "Phone"),
    ("Account/part-00000.jsonl",),
    7,
    "stream",
    10,
    13,
    "window-1",
    "2026-01-01T00:00:00+00:00",
    {"Sum__c": "double"},
    True,
    ("Secret__c",),
)
DOCUMENT = RefreshDocument("one", 4, {"Account": TABLE, "Contact": replace(TABLE, mode="records", files=())})


def test_a_document_is_read_as_it_was_written() -> None:
    assert RefreshDocument.from_json(DOCUMENT.to_json(), "somewhere") == DOCUMENT


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2"),
        ({"format": "sfstream-replica"}, "sfstream-replica"),
        ({"tables": []}, "list"),
        ({"tables": {"Account": {"mode": "full"}}}, "columns"),
        ({"tables": {"Account": json.loads(DOCUMENT.to_json())["tables"]["Account"] | {"mode": "some"}}}, "some"),
    ],
)
def test_invalid_refresh_document_is_refused(change: dict[str, object], message: str) -> None:
    text = json.dumps(json.loads(DOCUMENT.to_json()) | change)
    with pytest.raises(ConfigurationError, match=rf"file:///x/refresh.json .*{message}.*Nothing was written"):
        RefreshDocument.from_json(text, "file:///x/refresh.json")
    with pytest.raises(ConfigurationError):
        RefreshDocument.from_json("{", "somewhere")


def stream(window: str) -> StreamState:
    return StreamState("00D", "pubsub", "/data/ChangeEvents", "", AppliedWindow(window, "", 11, 5), None)


@pytest.mark.parametrize(
    ("mode", "window", "sequence", "stays"),
    [
        ("full", "window-1", 5, False),
        ("full", "window-1", 13, False),  # raised by a hole before an empty window, when the fetch began
        ("full", "window-2", 12, False),  # raised by an event that had landed, but was not applied
        ("full", "window-2", 13, True),
        ("records", "window-1", 5, True),
    ],
)
def test_flag_is_removed_unless_it_was_raised_after_the_fetch(
    mode: str, window: str, sequence: int, stays: bool
) -> None:
    flag = Flag("overflow", "2026-01-01T00:00:00+00:00", sequence)
    assert flag_after(flag, replace(TABLE, mode=mode, hidden=()), stream(window)) == (flag if stays else None)


def test_flag_remains_for_hidden_columns() -> None:
    flag = Flag("new", "2026-01-01T00:00:00+00:00", 5, ("A__c", "B__c"))
    remaining = flag_after(flag, replace(TABLE, hidden=("B__c",)), stream("window-1"))
    assert remaining == replace(flag, reason="schema", columns=("B__c",))


def test_table_without_a_flag_has_no_flag_after_a_refresh() -> None:
    assert flag_after(None, TABLE, stream("window-1")) is None
