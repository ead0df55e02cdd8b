"""The rows of the event log in memory: what the job writes, kept instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields

import pyarrow as pa

from airflow_provider_sfstream.spark.engines.arrow_frames import ArrowFrame
from airflow_provider_sfstream.spark.engines.embedded import EmbeddedEngine
from airflow_provider_sfstream.spark.engines.engine import TableKeys
from airflow_provider_sfstream.spark.event_log.job import EventLogJob, EventLogMetrics, EventLogOptions
from airflow_provider_sfstream.spark.event_log.tables import QUARANTINE_TABLE, Partition
from airflow_provider_sfstream.spark.rows.event_batches import Rows, TablePlan, quarantine_schema
from airflow_provider_sfstream.spark.storage.column_registry import ColumnRegistry
from airflow_provider_sfstream.spark.storage.landed_windows import LandedWindow, read_windows


def tables_in_memory(engine: EmbeddedEngine, options: EventLogOptions) -> dict[str, pa.Table]:
    """Return the events by table, each once, and those that cannot be decoded as the quarantine.

    :param options: ``output`` and what else is about writing does not matter.
    :raises ConfigurationError: as the job does.
    """
    windows = read_windows(engine.landing, options.manifests)
    tables = _Tables()
    if any(window.files for window in windows):
        metrics = EventLogMetrics([window.window_id for window in windows])
        options = _Options(**{each.name: getattr(options, each.name) for each in fields(options)})
        EventLogJob(engine, windows, options, metrics).run(lambda *_: tables)
        metrics.check()
    return {name: table for name, table in tables.written.items() if len(table)}


class _Options(EventLogOptions):
    def partition_of(self, window: LandedWindow) -> str:
        """Return the window's id: nothing is replaced."""
        return window.window_id


class _Tables:
    def __init__(self) -> None:
        self.written: dict[str, pa.Table] = {}

    def keys(self, tables: Collection[str]) -> TableKeys:
        return TableKeys()

    def registry(self, table: str) -> ColumnRegistry:
        return ColumnRegistry()

    def write(self, table: str, rows: ArrowFrame, decode: Rows, plan: TablePlan) -> int:
        made = rows.made(decode, plan.arrow_schema()).batches(None)
        self.written[table] = pa.Table.from_batches(made, plan.arrow_schema())
        return len(self.written[table])

    def write_quarantine(self, outcasts: Sequence[ArrowFrame]) -> int:
        made = (batch for rows in outcasts for batch in rows.batches(None))
        self.written[QUARANTINE_TABLE] = pa.Table.from_batches(made, quarantine_schema())
        return len(self.written[QUARANTINE_TABLE])

    def remove_rest(self, written: Mapping[str, Collection[Partition]]) -> None:
        """There is nothing else."""
