"""What the job asks of the tables below one folder, one for each event type, and of the quarantine beside them.

A run replaces the partitions of its own windows, as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any, Protocol

import pyarrow as pa

from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.rows.event_batches import Rows, TablePlan
from airflow_provider_sfstream.tables.runner.engine import JobFiles, TableKeys

QUARANTINE_TABLE = "_quarantine"
TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
Dates = tuple[date, date] | None
"""The first and the last of the event dates that matter; ``None``: any."""
KEYS = pa.schema(
    [("_org_id", pa.string()), ("_topic", pa.string()), ("_replay_id", pa.binary()), ("window_id", pa.string())]
)
"""What tells which event a row of a table is, and which partition it is in."""
Partition = tuple[date, str]
"""Event date and window partition."""


def check_table_name(name: str) -> str:
    """Return the record name of a schema if it can name a folder.

    :raises ValueError: if not.
    """
    if not TABLE_NAME.fullmatch(name):
        raise ValueError(f"the record name {name[:80]!r} cannot name a table")
    return name


def find_tables(files: JobFiles, base: str) -> list[str]:
    """Return the names of the tables of events below a folder."""
    return [name for name in files.folders(base) if TABLE_NAME.fullmatch(name) and _has_events(files, f"{base}/{name}")]


class EventTables(Protocol):
    """The tables as one run sees and changes them. Its *own* rows are those of the window partitions that it writes."""

    def keys(self, tables: Collection[str]) -> TableKeys:
        """Return the keys of the rows that tables have already, on the event dates that this run can touch.

        Where the run has one partition, the rows that it replaces are left out: they cannot change what is a duplicate.
        """

    def registry(self, table: str) -> ColumnRegistry:
        """Return the columns that a table has."""

    def write(self, table: str, rows: Any, decode: Rows, plan: TablePlan) -> int:
        """Write what ``decode`` makes of landed rows in place of the table's own rows; return how many it is.

        :raises PositionConflictError: if another job has written events of the same streams meanwhile.
        """

    def write_quarantine(self, outcasts: Sequence[Any]) -> int:
        """Write rows that could not be decoded in place of the quarantine's own rows; return how many it is."""

    def remove_rest(self, written: Mapping[str, Collection[Partition]]) -> None:
        """Remove own rows that are in other tables or partitions than those ``written`` now."""


def _has_events(files: JobFiles, table: str) -> bool:
    """Tell whether a folder is a Delta table by event date, as a replica's tables are not."""
    folders = files.folders(table)
    return "_delta_log" in folders and any(folder.startswith("event_date=") for folder in folders)
