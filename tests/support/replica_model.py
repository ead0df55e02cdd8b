"""Reference model of the replica's merge, in plain Python, one row at a time.

Changes and rows are dictionaries with the column names of ``tables/rows/replica_columns.py``, but ``_set`` is a set of
column names. A change contains only the columns that it sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]
_ORIGIN = ("_replay_id", "_commit_time", "_transaction_key")
_CLEAN: Row = {"_dirty": False, "_dirty_since": None, "_dirty_reason": None}


def apply_window(table: dict[str, Row], changes: Iterable[Row], columns: Iterable[str], *, hard: bool = False) -> None:
    """Apply the changes of one window to ``table`` (rows by ``Id``), one change after another."""
    columns = list(columns)
    for record_id, row in table.items():
        table[record_id] = dict.fromkeys(columns) | row
    for change in sorted(changes, key=lambda change: change["_sequence"]):
        row = row_after(table.get(change["Id"]), change, columns, hard=hard)
        if row is None:
            table.pop(change["Id"], None)
        else:
            table[change["Id"]] = row


def row_after(former: Row | None, change: Row, columns: Iterable[str], *, hard: bool) -> Row | None:
    """Return the row of a record after one change; ``None`` if the change removes it."""
    if former is not None and not applies(former, change):
        return former | {"_sequence": max(former["_sequence"] or 0, change["_sequence"])}
    if hard and change["_operation"] == "delete":
        return None
    has_row = former is not None and not (hard and former["_deleted"])
    is_known = has_row and not former["_dirty"]
    if not has_row:
        former = _unknown_row(change["Id"], columns)
    row = former | _origin(former, change) | {"_sequence": change["_sequence"], **_CLEAN}
    if change["_operation"] == "gap":
        return row | _dirty(change, change["_dirty_reason"])
    row |= {name: change[name] for name in change["_set"]}
    if change["_operation"] != "patch":
        row["_deleted"] = change["_operation"] == "delete"
    if is_known or change["_operation"] == "full":
        return row
    return row | _dirty(change, "unknown_record") | {"_dirty_since": former["_dirty_since"] or change["_commit_time"]}


def applies(row: Row, change: Row) -> bool:
    """Return whether a change affects more of a row than its sequence."""
    is_stopped = row["_dirty"] and row["_dirty_reason"] != "unknown_record"
    return (row["_sequence"] or 0) < change["_sequence"] and not is_stopped and not contains_change(row, change)


def refresh_all(
    table: dict[str, Row], images: dict[str, Row], columns: Iterable[str], applied: int, *, hard: bool, moved_on: bool
) -> None:
    """Merge all records fetched from an org into ``table``.

    :param images: fetched records by ``Id``, with ``_deleted``, ``_refreshed_at`` and the fetched columns.
    :param applied: sequence of the last change applied before the fetch began.
    :param moved_on: whether changes were applied during the fetch.
    """
    for record_id in table.keys() | images.keys():
        base, image = table.get(record_id), images.get(record_id)
        row = dict(base or _unknown_row(record_id, []) | {"_sequence": applied})
        if base is not None and base["_sequence"] > applied:
            table[record_id] = row | _changed_during_refresh(row)
            continue
        _set_image(row, image, columns)
        unsure = base is None and hard and moved_on
        if unsure:
            row |= {"_dirty": True, "_dirty_since": row["_refreshed_at"], "_dirty_reason": "changed_while_refreshed"}
        if hard and row["_deleted"] and not unsure:
            table.pop(record_id, None)
        else:
            table[record_id] = row


def refresh_listed(
    table: dict[str, Row], listed: dict[str, int], images: dict[str, Row], columns: Iterable[str], *, hard: bool
) -> None:
    """Merge records fetched by ID; ``listed`` contains the sequence of each row when the list was made."""
    for record_id, sequence in listed.items():
        row = table.get(record_id)
        if row is None or not row["_dirty"]:
            continue
        if row["_sequence"] != sequence:
            row |= _changed_during_refresh(row)
            continue
        _set_image(row, images.get(record_id), columns)
        if hard and row["_deleted"]:
            del table[record_id]


def refresh_columns(table: dict[str, Row], images: dict[str, Row], columns: Iterable[str], applied: int) -> None:
    """Merge fetched columns of all records into ``table``."""
    for record_id, row in table.items():
        image = images.get(record_id)
        if image is not None and row["_sequence"] <= applied:
            row |= {name: image.get(name) for name in columns}
        elif image is not None and not row["_dirty"]:
            row |= _changed_during_refresh(row)


def _set_image(row: Row, image: Row | None, columns: Iterable[str]) -> None:
    row |= {"_deleted": True, **_CLEAN}
    if image is not None:
        row |= {name: image.get(name) for name in columns}
        row |= {"_deleted": image["_deleted"], "_refreshed_at": image["_refreshed_at"]}


def _changed_during_refresh(row: Row) -> Row:
    since = row["_commit_time"] if row["_dirty_since"] is None else row["_dirty_since"]
    return {"_dirty": True, "_dirty_since": since, "_dirty_reason": "changed_while_refreshed"}


def contains_change(row: Row, change: Row) -> bool:
    """Return whether a row already contains a change, because it was fetched after the commit of the change."""
    return row.get("_refreshed_at") is not None and bool(change["_commit_time"] < row["_refreshed_at"])


def latest(row: Row, change: Row) -> Any:
    """Return the commit time of a row after a change; it never decreases."""
    former = row.get("_commit_time")
    return change["_commit_time"] if former is None else max(former, change["_commit_time"])


def _origin(row: Row, change: Row) -> Row:
    return {name: change[name] for name in _ORIGIN} | {"_commit_time": latest(row, change)}


def _unknown_row(record_id: str, columns: Iterable[str]) -> Row:
    envelope = dict.fromkeys(("_dirty_since", "_dirty_reason", *_ORIGIN, "_sequence", "_refreshed_at", *columns))
    return {"Id": record_id, "_deleted": False, "_dirty": False} | envelope


def _dirty(change: Row, reason: str) -> Row:
    return {"_dirty": True, "_dirty_since": change["_commit_time"], "_dirty_reason": reason}
