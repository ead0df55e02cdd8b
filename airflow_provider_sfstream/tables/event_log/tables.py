"""Names of the tables below one folder, one for each event type, and of the quarantine."""

from __future__ import annotations

import re
from datetime import date

import pyarrow as pa

from airflow_provider_sfstream.tables.runner.engine import JobFiles

QUARANTINE_TABLE = "_quarantine"
TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
Dates = tuple[date, date] | None
"""First and last relevant event date; ``None``: any."""
KEYS = pa.schema(
    [("_org_id", pa.string()), ("_topic", pa.string()), ("_replay_id", pa.binary()), ("window_id", pa.string())]
)
"""Columns that identify the event and the partition of a table's row."""
PARTITION_BY = ("event_date",)
"""Columns of event tables that are stored as folders."""


def check_table_name(name: str) -> str:
    """Return the record name of a schema if it is a valid folder name.

    :raises ValueError: if it is not.
    """
    if not TABLE_NAME.fullmatch(name):
        raise ValueError(f"the record name {name[:80]!r} is not a valid table name")
    return name


def find_tables(files: JobFiles, base: str) -> list[str]:
    """Return the names of the event tables below a folder."""
    return [name for name in files.folders(base) if TABLE_NAME.fullmatch(name) and _has_events(files, f"{base}/{name}")]


def _has_events(files: JobFiles, table: str) -> bool:
    """Return whether a folder is a Delta table by event date, unlike a replica's tables."""
    folders = files.folders(table)
    return "_delta_log" in folders and any(folder.startswith("event_date=") for folder in folders)
