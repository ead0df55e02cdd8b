"""The rows of the event log in memory: what the job writes, kept instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow, read_windows
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig, EventLogMetrics
from airflow_provider_sfstream.tables.event_log.job import EventLogJob
from airflow_provider_sfstream.tables.event_log.tables import QUARANTINE_TABLE, Partition
from airflow_provider_sfstream.tables.rows.event_batches import (
    Rows,
    TablePlan,
    quarantine_rows,
    quarantine_schema,
    table_rows,
)
from airflow_provider_sfstream.tables.runner.arrow_frames import ArrowFrame
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine
from airflow_provider_sfstream.tables.runner.engine import TableKeys


def tables_in_memory(engine: EmbeddedEngine, config: EventLogConfig) -> dict[str, pa.Table]:
    """Return the events by table, each once, and those that cannot be decoded as the quarantine.

    :param config: ``output_url`` is not used.
    :raises ConfigurationError: as the job does.
    """
    tables = _Tables()
    if (metrics := _run(engine, config, tables)) is not None:
        metrics.check()
    return {name: table for name, table in tables.written.items() if len(table)}


def events_in_order(engine: EmbeddedEngine, config: EventLogConfig) -> tuple[list[str], Iterator[list[dict[str, Any]]]]:
    """Return the columns of the events, and the events themselves in the order of the windows, each once, some at a
    time: memory is that of a row group. What cannot be decoded is a row of the quarantine, with its ``reason``.

    :param config: ``output_url`` is not used.
    :raises ConfigurationError: as the job does; and if the events are of several tables, which have no common order.
    """
    tables = _Frames()
    _run(engine, config, tables)
    if len(tables.frames) > 1:
        raise ConfigurationError(
            f"The windows have events of {', '.join(sorted(tables.frames))}. Give windows with events of one."
        )
    columns = [name for _, plan in tables.frames.values() for name in plan.columns]
    return columns, tables.in_order()


def _run(engine: EmbeddedEngine, config: EventLogConfig, tables: _Tables) -> EventLogMetrics | None:
    windows = read_windows(engine.landing, config.manifests)
    if not any(window.files for window in windows):
        return None
    metrics = EventLogMetrics([window.window_id for window in windows])
    config = _InMemoryConfig(**{each.name: getattr(config, each.name) for each in fields(config)})
    EventLogJob(engine, windows, config, metrics).run(lambda *_: tables)
    return metrics


class _InMemoryConfig(EventLogConfig):
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


class _Frames(_Tables):
    """Decodes nothing before it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: dict[str, tuple[ArrowFrame, TablePlan]] = {}
        self._outcasts: list[ArrowFrame] = []

    def write(self, table: str, rows: ArrowFrame, decode: Rows, plan: TablePlan) -> int:
        self.frames[table] = rows, plan
        return 0

    def write_quarantine(self, outcasts: Sequence[ArrowFrame]) -> int:
        self._outcasts += outcasts  # of schemas that cannot be used; which payloads are broken is yet to be seen
        return 0

    def in_order(self) -> Iterator[list[dict[str, Any]]]:
        for rows, plan in self.frames.values():
            for batch in rows.batches(None):
                yield _decoded(batch, plan)
        for outcasts in self._outcasts:
            for batch in outcasts.batches(None):
                yield batch.to_pylist()


def _decoded(batch: pa.RecordBatch, plan: TablePlan) -> list[dict[str, Any]]:
    """Return landed rows of one window as rows of their table or of the quarantine, in the order of the window."""
    counted: Counter[Any] = Counter()
    rows = [row for part in table_rows(plan, counted.update)(iter([batch])) for row in part.to_pylist()]
    if any(key[0] == "undecodable" for key in counted):
        rows += [row for part in quarantine_rows(plan)(iter([batch])) for row in part.to_pylist()]
    return sorted(rows, key=lambda row: int(row["_ordinal"] if "_ordinal" in row else row["ordinal"]))
