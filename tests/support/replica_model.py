"""What the replica's fold and merge must do, one row at a time in plain Python: the specification in other words.

Changes and rows are dictionaries as ``spark/replica_rows.py`` names their columns; only ``_set`` is a set of column
names here. A change has only the columns that it sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]


def new_row(record_id: str, columns: Iterable[str]) -> Row:
    """Return a row of which nothing is known."""
    envelope = dict.fromkeys(("_dirty_since", "_dirty_reason", "_replay_id", "_commit_time", "_transaction_key"))
    return {"Id": record_id, "_deleted": False, "_dirty": False, "_sequence": None, "_refreshed_at": None} | (
        envelope | dict.fromkeys(columns)
    )


def apply_window(table: dict[str, Row], changes: Iterable[Row], columns: Iterable[str], *, hard: bool = False) -> None:
    """Apply the changes of one window to ``table`` (rows by ``Id``) one after another."""
    columns = list(columns)
    by_record: dict[str, list[Row]] = {}
    for change in sorted(changes, key=lambda change: change["_sequence"]):
        by_record.setdefault(change["Id"], []).append(change)
    for row in table.values():
        for name in columns:
            row.setdefault(name, None)
    for record_id, own in by_record.items():
        row = _apply(table.get(record_id), own, columns)
        gone = hard and row["_deleted"] and _deletes(own) and not row["_dirty_reason_is_new_gap"]
        changed = row.pop("_changed")
        row.pop("_dirty_reason_is_new_gap")
        if gone and changed:
            table.pop(record_id, None)
        else:
            table[record_id] = row


def _deletes(changes: list[Row]) -> bool:
    """Tell whether the changes that apply end with the record deleted."""
    deleted = False
    for change in changes:
        if change["_operation"] == "gap":
            break
        if change["_operation"] in ("delete", "full"):
            deleted = change["_operation"] == "delete"
    return deleted


def _apply(former: Row | None, changes: list[Row], columns: list[str]) -> Row:
    last = changes[-1]
    row = new_row(changes[0]["Id"], columns) if former is None else dict(former)
    row |= {"_changed": False, "_dirty_reason_is_new_gap": False}
    if row["_sequence"] is not None and row["_sequence"] >= last["_sequence"]:
        return row
    row["_sequence"] = last["_sequence"]
    refreshed = row["_refreshed_at"]
    if row["_dirty"] or (refreshed is not None and last["_commit_time"] < refreshed):
        return row
    row["_changed"] = True
    whole = former is not None
    for change in changes:
        for name in ("_replay_id", "_commit_time", "_transaction_key"):
            row[name] = change[name]
        if change["_operation"] == "gap":
            row |= _dirty(change, change["_dirty_reason"]) | {"_dirty_reason_is_new_gap": True}
            return row
        for name in change["_set"]:
            row[name] = change[name]
        if change["_operation"] != "patch":
            row["_deleted"] = change["_operation"] == "delete"
        whole = whole or change["_operation"] == "full"
    if not whole:
        row |= _dirty(row, "unknown_record")
    return row


def _dirty(change: Row, reason: str) -> Row:
    return {"_dirty": True, "_dirty_since": change["_commit_time"], "_dirty_reason": reason}
