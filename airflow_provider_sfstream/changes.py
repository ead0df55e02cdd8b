"""Rows of a table that changed since a consumer's last run, for copies of the table in other databases."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.extras import require_extra

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.changes.table_changes import TableChanges


def read_changes(
    output_url: str,
    table: str,
    *,
    since: str | int | datetime | None,
    output_conn_id: str | None = None,
) -> TableChanges:
    """Return the rows of a table that changed since a version, without a scan of the table.

    For the tables of a replica, its histories (``"Account__history"``), event logs and their ``"_quarantine"``, written
    by any engine. Only files that one of the two versions lacks are read. The rows are the difference of the versions:
    a row that changed several times is returned once, and one that was rewritten unchanged, or merged into another file
    by the maintenance, is not returned. The later version of a replica's table is that of its newest snapshot, so no
    part of a run is returned.

    The result has the table's columns, and ``_change_type`` as in Delta's change data feed: ``insert``,
    ``update_postimage``, or ``delete`` with the last values of the row. With ``deletes="soft"``, a deleted record is an
    ``update_postimage`` whose ``_deleted`` is true. Needs the extra ``tables``.

    :param output_url: folder of the tables, as in the operators.
    :param table: name of the table, for example ``"Account"`` or ``"Order__e"``.
    :param since: version of the consumer's copy. Text: ``next_since`` of the last result, which also detects that the
        table was created again or restored from a backup. Number: a Delta version. Time with a zone: the last version
        until then, by the clock of the job that wrote it. ``None``: no version, so all rows are returned as ``insert``.
    :param output_conn_id: Airflow connection of the storage, as in the operators. ``None`` (default): none.
    :return: the changes. Their rows are read when they are used.
    :raises ConfigurationError: ``since`` is invalid, the table does not exist, or that version can no longer be read.
        No row was read.
    :raises LandingError: the storage cannot be read.
    """
    require_extra("tables")
    from airflow_provider_sfstream.tables.changes.table_changes import read_table_changes

    files = ObjectStorageFiles(output_conn_id)
    return read_table_changes(files, files.url(output_url), table, since)
