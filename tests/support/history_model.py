"""What a table's history must be, one change at a time in plain Python, on rows and changes as ``replica_model`` has
them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_provider_sfstream.tables.rows.history_batches import VERSION_ENVELOPE
from tests.support.replica_model import Row, is_in, latest

_ORIGIN = ("_sequence", "_replay_id", "_commit_time", "_transaction_key")


def closed_versions(
    table: dict[str, Row], changes: Iterable[Row], columns: Iterable[str], *, hard: bool = False
) -> list[Row]:
    """Return the versions that the changes of one window end, in the order of their records and sequences."""
    columns = list(columns)
    states: dict[str, Row] = {record_id: row | {"_known": True} for record_id, row in table.items()}
    closed: list[Row] = []
    for change in sorted(changes, key=lambda change: change["_sequence"]):
        former = states.get(change["Id"])
        if former is None:
            states[change["Id"]] = _next(dict.fromkeys(columns) | {"_deleted": False, "_known": False}, change)
        elif change["_sequence"] > former["_sequence"] and not _ends_there(former) and not is_in(former, change):
            states[change["Id"]] = _next(former, change)
            if not (hard and former["_deleted"]):
                closed.append(version_of(former, columns) | {"_valid_to": begin_of(states[change["Id"]])})
    return sorted(closed, key=lambda version: (version["Id"], version["_sequence"]))


def version_of(row: Row, columns: Iterable[str]) -> Row:
    """Return the version that a row is, without its end."""
    fetched = row.get("_refreshed_at") is not None and (
        row["_commit_time"] is None or row["_commit_time"] < row["_refreshed_at"]
    )
    began = "unknown" if row["_dirty"] else "delete" if row["_deleted"] else "refresh" if fetched else "upsert"
    made: Row = {"_valid_from": begin_of(row), "_valid_to": None, "_operation": began}
    kept = [name for name in (*VERSION_ENVELOPE, *columns) if name not in made]
    return made | {name: row.get(name) for name in kept}


def begin_of(row: Row) -> Any:
    """Return when the version that a row is began."""
    return max(time for time in (row["_commit_time"], row.get("_refreshed_at")) if time is not None)


def _next(former: Row, change: Row) -> Row:
    row = former | {"Id": change["Id"], "_dirty": False, "_dirty_reason": None}
    row |= {name: change[name] for name in _ORIGIN} | {"_commit_time": latest(former, change)}
    if change["_operation"] == "gap":
        return row | {"_dirty": True, "_dirty_reason": change["_dirty_reason"], "_ends": True}
    row |= {name: change[name] for name in change["_set"]}
    if change["_operation"] != "patch":
        row["_deleted"] = change["_operation"] == "delete"
    row["_known"] = row["_known"] or change["_operation"] == "full"
    return row if row["_known"] else row | {"_dirty": True, "_dirty_reason": "unknown_record"}


def _ends_there(row: Row) -> bool:
    """Tell whether no further change of the window applies: after a gap, and to a row that was dirty before."""
    return bool(row.get("_ends") or (row["_dirty"] and row["_known"]))
