"""What the replica's fold and merge must do, one row at a time in plain Python: the specification in other words.

Changes and rows are dictionaries as ``spark/replica_rows.py`` names their columns; only ``_set`` is a set of column
names here. A change has only the columns that it sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]
_ORIGIN = ("_replay_id", "_commit_time", "_transaction_key")


def fold(changes: Iterable[Row]) -> Row:
    """Return all changes of one record, in order, as one."""
    folded: Row = {"_full": False, "_deleted": None, "_dirty_since": None, "_dirty_reason": None, "_set": frozenset()}
    for change in changes:
        folded |= {"Id": change["Id"], "_sequence": change["_sequence"], "_seen_commit_time": change["_commit_time"]}
        if folded["_dirty_reason"] is not None:
            continue
        folded |= {name: change[name] for name in _ORIGIN}
        if change["_operation"] == "gap":
            folded |= {"_dirty_since": change["_commit_time"], "_dirty_reason": change["_dirty_reason"]}
            continue
        folded |= {name: change[name] for name in change["_set"]}
        folded["_set"] |= change["_set"]
        folded["_full"] |= change["_operation"] == "full"
        if change["_operation"] != "patch":
            folded["_deleted"] = change["_operation"] == "delete"
    return folded


def apply_window(table: dict[str, Row], changes: Iterable[Row], columns: Iterable[str], *, hard: bool = False) -> None:
    """Apply the changes of one window to ``table`` (rows by ``Id``), one change after another."""
    columns = list(columns)
    by_record: dict[str, list[Row]] = {}
    for change in sorted(changes, key=lambda change: change["_sequence"]):
        by_record.setdefault(change["Id"], []).append(change)
    for record_id, row in table.items():
        table[record_id] = dict.fromkeys(columns) | row
    for record_id, own in by_record.items():
        row, deletes = _apply(table.get(record_id), own, columns)
        if hard and deletes:
            table.pop(record_id, None)
        else:
            table[record_id] = row


def _apply(former: Row | None, changes: list[Row], columns: list[str]) -> tuple[Row, bool]:
    """Return the row after all changes of its record, and whether they delete the record."""
    row, last = dict(former or _unknown_row(changes[0]["Id"], columns)), changes[-1]
    if row["_sequence"] is not None and row["_sequence"] >= last["_sequence"]:
        return row, False
    row["_sequence"] = last["_sequence"]
    refreshed = row["_refreshed_at"]
    if row["_dirty"] or (refreshed is not None and last["_commit_time"] < refreshed):
        return row, False
    known, deletes = former is not None, False
    for change in changes:
        row |= {name: change[name] for name in _ORIGIN}
        if change["_operation"] == "gap":
            return row | _dirty(change, change["_dirty_reason"]), False
        row |= {name: change[name] for name in change["_set"]}
        if change["_operation"] != "patch":
            row["_deleted"] = deletes = change["_operation"] == "delete"
        known = known or change["_operation"] == "full"
    return (row if known else row | _dirty(row, "unknown_record")), deletes


def _unknown_row(record_id: str, columns: list[str]) -> Row:
    envelope = dict.fromkeys(("_dirty_since", "_dirty_reason", *_ORIGIN, "_sequence", "_refreshed_at", *columns))
    return {"Id": record_id, "_deleted": False, "_dirty": False} | envelope


def _dirty(change: Row, reason: str) -> Row:
    return {"_dirty": True, "_dirty_since": change["_commit_time"], "_dirty_reason": reason}
