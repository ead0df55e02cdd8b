"""Event log rows in memory: the rows that the job would write, returned instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.landed_windows import load_windows
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.event_log.decoding import EventPlan
from airflow_provider_sfstream.tables.event_log.job import EventLogJob
from airflow_provider_sfstream.tables.event_log.tables import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.rows.event_batches import DecodedRows, quarantine_schema
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine


def tables_in_memory(engine: EmbeddedEngine, config: EventLogConfig) -> dict[str, pa.Table]:
    """Return the events by table, each once, and undecodable events as the quarantine.

    :param config: ``output_url`` is not used.
    :raises ConfigurationError: as the job does.
    """
    plan, decoded = _decoded(engine, config)
    batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in (*plan.tables, QUARANTINE_TABLE)} if plan else {}
    for table, part in decoded:
        if table != QUARANTINE_TABLE:
            batches[table] += part.rows
        batches[QUARANTINE_TABLE] += part.quarantined
    schemas = {name: table_plan.arrow_schema() for name, table_plan in plan.tables.items()} if plan else {}
    schemas[QUARANTINE_TABLE] = quarantine_schema()
    tables = {name: pa.Table.from_batches(parts, schemas[name]) for name, parts in batches.items()}
    return {name: table for name, table in tables.items() if len(table)}


def events_in_order(engine: EmbeddedEngine, config: EventLogConfig) -> tuple[list[str], Iterator[list[dict[str, Any]]]]:
    """Return the columns of the events, and the events in the order of the windows, each once, some at a time.

    Memory is that of a row group. An undecodable event is a quarantine row, with its ``reason``.

    :param config: ``output_url`` is not used.
    :raises ConfigurationError: as the job does; and if the events are of several tables, which have no common order.
    """
    plan, decoded = _decoded(engine, config)
    if plan is not None and len(plan.tables) > 1:
        raise ConfigurationError(
            f"The windows have events of {', '.join(sorted(plan.tables))}. Pass windows with events of one type."
        )
    columns = [name for table_plan in plan.tables.values() for name in table_plan.columns] if plan else []
    return columns, (_in_order(part) for _, part in decoded)


def _decoded(
    engine: EmbeddedEngine, config: EventLogConfig
) -> tuple[EventPlan | None, Iterator[tuple[str, DecodedRows]]]:
    windows = load_windows(engine.landing, config.manifests)
    if not any(window.files for window in windows):
        return None, iter(())
    plan = EventLogJob(engine, windows, config).plan()
    rows = engine.landed_rows(windows, verify=config.verify_files)
    return plan, plan.decode(rows.batches(None))


def _in_order(decoded: DecodedRows) -> list[dict[str, Any]]:
    """Return rows of a table and of the quarantine, in the order of their window."""
    rows = [row for part in (*decoded.rows, *decoded.quarantined) for row in part.to_pylist()]
    return sorted(rows, key=lambda row: int(row["_ordinal"] if "_ordinal" in row else row["ordinal"]))
