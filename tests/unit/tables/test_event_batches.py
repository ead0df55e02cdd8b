from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.event_log.table_plans import TableSources, place_columns
from airflow_provider_sfstream.tables.rows.event_batches import TablePlan, WindowReference, by_value, decode_rows
from tests.support.scripted_source import SCHEMA, avro_payload, replay_id


@pytest.mark.parametrize(
    "values", [["a", None, "a", "b", None], ["a", None], [None, "a"], [None], ["a", "a"], ["b", "a"], []]
)
def test_each_row_is_in_the_group_of_its_value_and_in_no_other(values: list[str | None]) -> None:
    batch = pa.record_batch({"key": pa.array(values, pa.string()), "row": range(len(values))})
    groups = {value: group.column("row").to_pylist() for value, group in by_value(batch, "key")}
    assert groups == {key: [row for row, value in enumerate(values) if value == key] for key in set(values)}


HOUR = 3_600_000_000
TOPIC = "/event/Order__e"


def landed(windows: list[int], hours: list[float]) -> pa.RecordBatch:
    """Return landed rows of events that were published at ``hours`` and received at hour 12."""
    count = len(hours)
    columns = {
        "ordinal": pa.array(range(count), pa.int64()),
        "replay_id": pa.array([replay_id(number) for number in range(count)], pa.binary()),
        "event_id": pa.nulls(count, pa.string()),
        "schema_id": pa.array(["a"] * count, pa.string()),
        "payload": pa.array([avro_payload(int(hour * HOUR) // 1_000) for hour in hours], pa.binary()),
        "received_at": pa.array([12 * HOUR] * count, pa.timestamp("us", tz="UTC")),
        "window": pa.array(windows, pa.int32()),
        "format": pa.array(["avro"] * count, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def hours_read(windows: tuple[WindowReference, ...], rows: pa.RecordBatch) -> tuple[list[float], int]:
    """Return the event times in hours that a job for the hour from 4 to 5 writes, and the number of other rows."""
    columns, schemas, fields = place_columns("Order__e", TableSources(schemas={"a": SCHEMA}), ColumnRegistry())
    plan = TablePlan(columns, schemas, fields, windows, time_from=4 * HOUR, time_to=5 * HOUR)
    decoded = decode_rows(rows, plan)
    times = pa.Table.from_batches(decoded.rows)["_event_time"].cast(pa.int64()).to_pylist()
    return [time / HOUR for time in times], decoded.outside_interval


def test_late_events_are_read_from_the_windows_of_the_run_itself_only() -> None:
    """The run that landed them returns them, because the run of their own hour had ended."""
    windows = WindowReference("own", "00D", TOPIC, late_before=4 * HOUR), WindowReference("another", "00D", TOPIC)
    hours = [2.5, 3.9, 4.5, 5.5]
    assert hours_read(windows, landed([0] * 4 + [1] * 4, hours * 2)) == ([2.5, 3.9, 4.5, 4.5], 4)


def test_an_event_counts_within_the_bounds_of_its_publication() -> None:
    window = WindowReference("w", "00D", TOPIC, counts_from=4 * HOUR)
    found, _ = hours_read((window,), landed([0] * 3, [2.5, 4.5, 5.5]))
    assert found == [2.5, 4.5], "an event time before the window counts at the beginning of the window"
