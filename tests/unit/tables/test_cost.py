"""Minimum number of API requests of a refresh."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_sfstream.salesforce import soql
from airflow_provider_sfstream.tables.refresh.plan import least_requests, plan_all, plan_dirty
from airflow_provider_sfstream.tables.replica.snapshots import (
    AppliedWindow,
    ComputedColumns,
    Flag,
    Snapshot,
    StreamState,
    TableState,
)

STREAM = StreamState("00D000000000001AAA", "pubsub", "/data/ChangeEvents", "", AppliedWindow("w", "", 1, 5), None, 5)
COLUMNS = {"Name": "string", "AnnualRevenue": "double"}
TABLE = TableState("stream", columns=COLUMNS, dirty_list="dirty/Account/one")
ROOM = soql.ids_in_url("Account", list(COLUMNS))


def least(table: TableState, **arguments: object) -> int:
    snapshot = Snapshot(1, None, {"stream": STREAM}, {"Account": table})
    return least_requests(plan_dirty(snapshot, None, **arguments))  # type: ignore[arg-type]


def test_each_request_has_as_many_rows_as_fit() -> None:
    assert least(TABLE) == 0
    assert least(replace(TABLE, dirty=1)) == 2
    assert least(replace(TABLE, dirty=ROOM)) == 2
    assert least(replace(TABLE, dirty=ROOM + 1)) == 3


def test_rows_changed_by_an_event_are_requested() -> None:
    changed = replace(TABLE, dirty=ROOM, computed=ComputedColumns(on_change=True, changed=1))
    assert least(changed, computed_fields="on_change") == 3


def test_all_records_are_described_counted_and_read() -> None:
    flagged = replace(TABLE, flag=Flag("new", "2026-01-01T00:00:00+00:00", 1))
    assert least(flagged) == 3
    snapshot = Snapshot(1, None, {"stream": STREAM}, {"Account": TABLE, "Contact": TABLE})
    assert least_requests(plan_all(snapshot, None, "compare")) == 6
