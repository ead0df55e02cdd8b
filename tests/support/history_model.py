"""Reference model of a table's history in plain Python, one change at a time.

Rows and changes have the format of ``replica_model``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_provider_sfstream.tables.rows.history_batches import VERSION_ENVELOPE
from tests.support.replica_model import Row, applies, row_after


def closed_versions(
    table: dict[str, Row], changes: Iterable[Row], columns: Iterable[str], *, hard: bool = False
) -> list[Row]:
    """Return the versions that the changes of one window end, sorted by record ID and sequence."""
    columns, rows, closed = list(columns), dict(table), []
    for change in sorted(changes, key=lambda change: change["_sequence"]):
        former = rows.pop(change["Id"], None)
        row = row_after(former, change, columns, hard=hard)
        if row is not None:
            rows[change["Id"]] = row
        if former is not None and applies(former, change) and not (hard and former["_deleted"]):
            end = max(begin_of(former), change["_commit_time"])
            closed.append(version_of(former, columns) | {"_valid_to": end})
    return sorted(closed, key=lambda version: (version["Id"], version["_sequence"]))


def version_of(row: Row, columns: Iterable[str]) -> Row:
    """Return the current version of a row, which has no end."""
    fetched = row.get("_refreshed_at") is not None and (
        row["_commit_time"] is None or row["_commit_time"] < row["_refreshed_at"]
    )
    operation = "unknown" if row["_dirty"] else "delete" if row["_deleted"] else "refresh" if fetched else "upsert"
    version: Row = {"_valid_from": begin_of(row), "_valid_to": None, "_operation": operation}
    other_columns = [name for name in (*VERSION_ENVELOPE, *columns) if name not in version]
    return version | {name: row.get(name) for name in other_columns}


def begin_of(row: Row) -> Any:
    """Return the time at which the current version of a row began."""
    return max(time for time in (row["_commit_time"], row.get("_refreshed_at")) if time is not None)
