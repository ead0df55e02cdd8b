"""What the job asks of the tables below one folder, one for each event type, and of the quarantine beside them.

Each format answers it in a module of its own. The formats share what a table is called, and what a run replaces: the
partitions of its own windows, as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any, Literal, Protocol

import pyarrow as pa

from airflow_provider_sfstream.spark.engines.engine import TableKeys
from airflow_provider_sfstream.spark.rows.event_batches import Rows, TablePlan
from airflow_provider_sfstream.spark.storage.column_registry import ColumnRegistry

QUARANTINE_TABLE = "_quarantine"
TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
TableFormat = Literal["delta", "parquet"]
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


class EventTables(Protocol):
    """The tables as one run sees and changes them. Its *own* rows are those of the window partitions that it writes."""

    def keys(self, tables: Collection[str]) -> TableKeys:
        """Return the keys of the rows that tables have already, on the event dates that this run can touch.

        Where the run has one partition, the rows that it replaces are left out: they cannot change what is a duplicate.
        """

    def registry(self, table: str) -> ColumnRegistry:
        """Return the columns that a table has.

        :raises ValueError: if they are kept in a file that is broken.
        """

    def write(self, table: str, rows: Any, decode: Rows, plan: TablePlan) -> int:
        """Write what ``decode`` makes of landed rows in place of the table's own rows; return how many it is.

        :raises PositionConflictError: if another job has written events of the same streams meanwhile.
        """

    def write_quarantine(self, outcasts: Sequence[Any]) -> int:
        """Write rows that could not be decoded in place of the quarantine's own rows; return how many it is."""

    def remove_rest(self, written: Mapping[str, Collection[Partition]]) -> None:
        """Remove own rows that are in other tables or partitions than those ``written`` now."""
