"""Config and metrics of the ``event_log`` job, and its landed rows to decode at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig, EventLogMetrics
from airflow_provider_sfstream.tables.event_log.delta_tables import decoded_at_once
from airflow_provider_sfstream.tables.event_log.job import run

NOON, LATER = datetime(2026, 1, 10, 12, tzinfo=UTC), datetime(2026, 1, 10, 13, tzinfo=UTC)
WINDOW = ReplayWindow("w1", "live", None, None, 0, None, None, "w1/manifest.json", RunIdentity("d", "t", "r", NOON))


def config(**arguments: Any) -> EventLogConfig:
    return EventLogConfig(**{"manifests": ("a",), "output_url": "b", **arguments})


def test_a_partition_is_named_by_window_and_bounds() -> None:
    first, end = datetime.fromisoformat("2026-01-10T02:00:00+02:00"), datetime(2026, 1, 11, tzinfo=UTC)
    part = config(event_time_from=first, event_time_to=end).partition_of(WINDOW)
    assert part == "w1.20260110T000000.000000Z-20260111T000000.000000Z"
    assert config().partition_of(WINDOW) == "w1"


def test_the_part_with_late_events_has_a_partition_of_its_own() -> None:
    """Another run of the same interval does not read late events, so it must not replace this partition."""
    bounds = {"event_time_from": datetime(2026, 1, 10, tzinfo=UTC), "event_time_to": datetime(2026, 1, 11, tzinfo=UTC)}
    of_the_run = config(own_windows=("w1",), **bounds).partition_of(WINDOW)
    of_another = config(own_windows=("w2",), **bounds).partition_of(WINDOW)
    assert of_the_run == f"{of_another}.own"
    assert config(own_windows=("w1",)).partition_of(WINDOW) == "w1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"event_time_from": NOON.replace(tzinfo=None), "event_time_to": LATER},
            "event_time_from=.* must have a time zone",
        ),
        ({"event_time_from": NOON}, "or neither"),
        ({"event_time_to": NOON}, "or neither"),
        ({"event_time_from": NOON, "event_time_to": NOON}, "a later event_time_to"),
        ({"hash_fields": ["Id"]}, "Id identifies rows"),
    ],
)
def test_invalid_event_log_config_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        config(**arguments)


def test_a_job_without_windows_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="manifests is empty"):
        run(None, config(manifests=()))  # type: ignore[arg-type]


def test_rows_that_do_not_add_up_are_an_error() -> None:
    EventLogMetrics(
        ["w"], rows_in=5, rows_written=2, duplicates=1, quarantined=1, outside_interval=1, tables={"T": 2}
    ).check()
    with pytest.raises(RuntimeError, match="counts of read and written rows differ"):
        EventLogMetrics(["w"], rows_in=5, rows_written=4, tables={"T": 4}).check()
    with pytest.raises(RuntimeError, match="counts of read and written rows differ"):
        EventLogMetrics(["w"], rows_in=5, rows_written=5, tables={"T": 4}).check()


def test_landed_rows_are_decoded_in_parts_by_payload_and_number_of_columns() -> None:
    def lengths(count: int, payload: int, columns: int) -> list[int]:
        rows = pa.RecordBatch.from_pydict({"payload": [b"x" * payload] * count})
        return [len(part) for part in decoded_at_once(rows, columns, 1 << 20)]

    assert lengths(20_000, 4, 0) == [8_192, 8_192, 3_616]
    assert lengths(20_000, 4, 1_000) == [*[130] * 153, 110], "null values take memory too"
    assert lengths(3, 1 << 20, 0) == [1, 1, 1]
    assert lengths(0, 0, 10) == []
