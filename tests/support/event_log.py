"""A landing and the event log tables that the job writes from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig, EventLogMetrics
from airflow_provider_sfstream.tables.event_log.job import run
from airflow_provider_sfstream.tables.event_log.reader import read_event_log
from airflow_provider_sfstream.tables.rows.event_batches import ENVELOPE, PARTITIONS
from airflow_provider_sfstream.tables.runner.engine import Engine
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from airflow_provider_sfstream.windows import read_windows
from tests.support.json_windows import JsonEvent, land_json_window
from tests.support.landing_files import LandedEvent, land_window

DAY = datetime(2026, 1, 10, tzinfo=UTC)
SPAN = (DAY, DAY + timedelta(days=3))


class Lake:
    """A landing and event log tables in a temporary folder."""

    def __init__(self, spark: Any, folder: Path, engine: Callable[[], Engine] | None = None) -> None:
        self.engine = engine or (lambda: SparkEngine(spark))
        self.spark, self.landing, self.output = spark, folder / "landing", folder / "tables"

    def land(self, window_id: str, events: list[LandedEvent], schemas: dict[str, Any], **options: Any) -> str:
        return land_window(self.landing, window_id, events, schemas, **{"event_times": SPAN} | options)

    def land_json(
        self,
        window_id: str,
        topic: str,
        events: Sequence[JsonEvent],
        schemas: Mapping[str, dict[str, Any]] | None = None,
        **options: Any,
    ) -> str:
        return land_json_window(self.landing, window_id, topic, events, schemas, **options)

    def run(self, *manifests: str, **options: Any) -> EventLogMetrics:
        is_new = not self.output.exists()
        metrics = run(self.engine(), EventLogConfig(manifests=manifests, output_url=self.output.as_uri(), **options))
        if is_new and "own_windows" not in options:
            self._compare_with_memory(manifests, options)
        return metrics

    def _compare_with_memory(self, manifests: Sequence[str], options: Mapping[str, Any]) -> None:
        """Assert that the tables of a first run equal the result of :func:`read_windows` for the same windows."""
        bounds = {name: options[name].isoformat() for name in ("event_time_from", "event_time_to") if options.get(name)}
        in_memory = read_windows(list(manifests), verify_files=options.get("verify_files", True), **bounds)
        stored = {folder.name: folder for folder in self.output.glob("*") if any(folder.rglob("*.parquet"))}
        assert sorted(in_memory) == sorted(stored)
        for name, table in in_memory.items():
            files = (pq.ParquetFile(file).read() for file in stored[name].rglob("*.parquet"))
            written = pa.concat_tables(files, promote_options="permissive")
            ours, theirs = (_by_event(_without_partitions(each)) for each in (table, written))
            for row in (*ours, *theirs):
                row.pop("reason", None)  # it may quote the random frame around a payload
            assert ours == theirs, name

    def rows(self, table: str = "Order__e") -> list[dict[str, Any]]:
        frame = read_event_log(self.spark, self.output.as_uri(), table)
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        return sorted(rows, key=lambda row: (row.get("_replay_id") or row.get("replay_id"), row["window_id"]))

    def files(self, table: str = "Order__e") -> set[str]:
        """Return the files of a table's current version."""
        return set(self.log(table).version().files)

    def log(self, table: str = "Order__e", job: str = "") -> DeltaTableLog:
        return DeltaTableLog(TableLocation(str(self.output / table)), job)

    def columns(self, table: str = "Order__e") -> dict[str, Any]:
        """Return the types of a table's columns in the Delta schema, without envelope and partition columns."""
        fields = json.loads(self.log(table).version().schema_json)["fields"]
        return {field["name"]: field["type"] for field in fields if field["name"] not in ENVELOPE | PARTITIONS}


def _without_partitions(table: pa.Table) -> pa.Table:
    return table.drop_columns([column for column in ("event_date", "window_id") if column in table.column_names])


def _by_event(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows sorted by event, with their columns sorted by name."""
    rows = [dict(sorted(row.items())) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row.get("_replay_id") or row["replay_id"], repr(row)))


def as_utc(local: datetime) -> datetime:
    """Convert a timestamp that Spark returned to UTC. Spark returns local times without a time zone."""
    return local.astimezone(UTC)
