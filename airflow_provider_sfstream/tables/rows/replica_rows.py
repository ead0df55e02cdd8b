"""The rows that the steps of the ``replica`` job hand to one another, and those of the replica tables themselves.

Change rows (one for each change of each record) are folded into one row for each record, and folded rows are merged
into the table. ``_sequence`` is an event's place in its stream, counted from 1 over all windows that a replica was made
from: replay IDs tell no order.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType

Operation = Literal["full", "patch", "delete", "gap", "seen"]
"""What a change does to a record: sets all its fields (CREATE, UNDELETE), some (UPDATE), deletes it, or says that it
changed and not how (GAP_*, and an UPDATE with a diff of a text); nothing, if it was committed before the record was
fetched (``seen``)."""

FlagReason: TypeAlias = Literal["new", "overflow", "gap", "undecodable", "all_records", "schema"]
"""Why a whole table has to be fetched: its records from before the stream are missing, GAP_OVERFLOW, a span of the
stream that is lost, an event that cannot be read, a gap event for all records (``001*``); or some of its columns: the
object's fields are others than before (``schema``), and no event says what records have in them."""

TABLE_ENVELOPE: dict[str, ColumnType] = {
    "Id": "string",
    "_deleted": "boolean",
    "_dirty": "boolean",
    "_dirty_since": "timestamp",
    "_dirty_reason": "string",
    "_replay_id": "binary",
    "_commit_time": "timestamp",
    "_transaction_key": "string",
    "_sequence": "long",
    "_refreshed_at": "timestamp",
}
"""Columns of a table before the record's own. ``_replay_id``, ``_commit_time`` and ``_transaction_key`` are of the last
change applied (of the gap, in a dirty row); ``_sequence`` of the last one seen, also if a dirty row ignored it;
``_refreshed_at`` is the ``SystemModstamp`` of the record as it was fetched last, null if it never was.
``_commit_time`` is the latest one of the changes applied: it never goes back, also where those of an org's servers
do."""

CHANGE_ENVELOPE: dict[str, ColumnType] = {
    "Id": "string",
    "_sequence": "long",
    "_operation": "string",
    "_dirty_reason": "string",
    "_set": {"array": "long"},
    "_replay_id": "binary",
    "_commit_time": "timestamp",
    "_transaction_key": "string",
}
"""Columns of a change row before the record's own. ``_set`` has a bit for each column of the table, in its order: bit
``n % 64`` of element ``n // 64`` says that the change sets column ``n``, to null where the value is null.
``_dirty_reason`` is null but for the operation ``gap``."""

FOLDED_ENVELOPE: dict[str, ColumnType] = {
    "Id": "string",
    "_sequence": "long",
    "_full": "boolean",
    "_deleted": "boolean",
    "_dirty_since": "timestamp",
    "_dirty_reason": "string",
    "_set": {"array": "long"},
    "_replay_id": "binary",
    "_commit_time": "timestamp",
    "_transaction_key": "string",
}
"""Columns of a folded row before the record's own: all changes of one record, in order, as one.

Changes after a gap are ignored: ``_dirty_since`` and ``_dirty_reason`` are of the first gap, null if there is none.
``_sequence`` is of the last change, ignored or not; ``_replay_id`` and ``_transaction_key`` of the last one applied,
the first gap included, and ``_commit_time`` the latest of those: all null if none applies. ``_full`` says that a CREATE
or UNDELETE is among them, so that the row needs no former one; ``_deleted`` is null where no change says whether it
is."""
