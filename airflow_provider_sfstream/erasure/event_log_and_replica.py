"""Erasure of records from the folder of an event log, and from the folder of a replica.

In an event log, the tables and the quarantine are searched. In a replica, the table and its history, the list of rows
to fetch, fetched files, reports and metrics, the quarantine and old snapshots are searched. The replica's tables get
new versions, and the next snapshot names them. Then the older snapshots and the files that only they name are removed.
A kill before the snapshot leaves the replica unchanged; a kill after it leaves files that the next run removes.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from airflow_provider_sfstream.erasure.record_ids import RecordIds
from airflow_provider_sfstream.erasure.table import (
    TableErasure,
    clean_all,
    erased_events,
    erased_quarantine,
    erased_records,
    is_header,
    is_of_quarantine,
)
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.topics import CHANGE_EVENT, change_event_of
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableVersion
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.event_log.tables import PARTITION_BY, TABLE_NAME, StoredRules
from airflow_provider_sfstream.tables.job_config import METRICS
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.replica.delta_sink import HISTORY, PROGRESS, versions_named
from airflow_provider_sfstream.tables.replica.dirty_lists import FOLDER as DIRTY
from airflow_provider_sfstream.tables.replica.dirty_lists import remove_lists
from airflow_provider_sfstream.tables.replica.reconciliation import RECONCILIATIONS
from airflow_provider_sfstream.tables.replica.refresh_document import FOLDER as REFRESH
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.hidden_values import coverage_of
from airflow_provider_sfstream.tables.rows.replica_columns import HEADER
from airflow_provider_sfstream.tables.runner.engine import JobFiles

_FORMER_QUARANTINE = "_replica_quarantine"
"""Folder of Parquet files, in place of the quarantine, of a replica of early versions of this package."""


class EventLogErasure:
    """Erasure of an object's records from the tables of an event log, below one folder.

    :param job: name of the job, for the tables' history.
    :raises ConfigurationError: if there is no event log, or a table cannot be searched, because its events do not name
        their records. Nothing was erased.
    """

    def __init__(self, files: JobFiles, output: str, entity: str, job: str) -> None:
        self._base, self._entity = files.url(output), entity
        location = files.table_location(self._base)
        self._tables: list[tuple[str, DeltaTableLog]] = []
        stored_rules, event = StoredRules(files, self._base), change_event_of(entity).lower()
        folders = {name: files.folders(f"{self._base}/{name}") for name in files.folders(self._base)}
        if not any(inner == "_delta_log" or _is_date(inner) for each in folders.values() for inner in each):
            raise ConfigurationError(
                f"There is no event log at {self._base}. Nothing was erased. Correct event_log_urls, or remove the URL."
            )
        # A killed job may have left files of a table without a log.
        for name in (name for name, each in folders.items() if TABLE_NAME.fullmatch(name) and any(map(_is_date, each))):
            table = DeltaTableLog(location.below(name), job)
            version, is_own = table.version(), name.lower() == event
            can_search = version.number < 0 or _has_headers(version)  # without a version, there are only files
            if not is_own and (name.endswith(CHANGE_EVENT) or not can_search):
                continue
            coverage = coverage_of(stored_rules.rules_of(name), name)
            treatment = coverage.treatment_of((HEADER, "recordIds"), is_opaque=True)
            if treatment is not None or not can_search:
                raise ConfigurationError(
                    f"The table {self._base}/{name} does not store the record IDs of its events, so records cannot be "
                    "erased from it. Nothing was erased. Erase the records from the landing first. Then write a new "
                    "table from the landing to another folder, and delete this one."
                )
            self._tables.append((name, table))
        if QUARANTINE_TABLE in folders:
            self._tables.append((QUARANTINE_TABLE, DeltaTableLog(location.below(QUARANTINE_TABLE), job)))

    @property
    def tables(self) -> list[str]:
        """Names of the searched tables."""
        return [name for name, _ in self._tables]

    def run(self, ids: RecordIds) -> dict[str, int]:
        """Erase records; return the numbers of changed or removed ``rows``, of their ``tables``, and of removed
        ``files``.

        :raises PositionConflictError: if another job is writing to a table. Repeat later to complete the erasure.
        """
        erasures = [
            _of_quarantine(table, ids, self._entity)
            if name == QUARANTINE_TABLE
            else TableErasure(name, table, partial(erased_events, ids=ids), is_header, PARTITION_BY)
            for name, table in self._tables
        ]
        rows = [erasure.rewrite() for erasure in erasures]
        files = clean_all(self._base, erasures)
        tables = sum(bool(changed or removed) for changed, removed in zip(rows, files, strict=True))
        return {"tables": tables, "rows": sum(rows), "files": sum(files)}


class ReplicaErasure:
    """Erasure of an object's records from the replica below one folder.

    :param entity: the object, and the name of its table.
    :param job: name of the job, for the replica's snapshot.
    :raises ConfigurationError: if there is no replica, or its table has no IDs of its records. Nothing was erased.
    """

    def __init__(self, files: JobFiles, output: str, entity: str, job: str) -> None:
        self._files, self._base, self._job = files, files.url(output), job
        self._location = files.table_location(self._base)
        self._store = SnapshotStore(files, self._base)
        snapshot, folders = self._store.current(), files.folders(self._base)
        if not snapshot.number:
            raise ConfigurationError(f"There is no replica at {self._base}. Nothing was erased.")
        names = {name.lower(): name for name in (*folders, *snapshot.tables)}
        self._entity = names.get(entity.lower(), entity)
        if _FORMER_QUARANTINE in folders:
            raise ConfigurationError(
                f"{self._base}/{_FORMER_QUARANTINE} has undecodable events of an early version of this package, and an "
                "erasure does not search it. Nothing was erased. Read the events that you still need, and delete the "
                "folder."
            )
        table = snapshot.tables.get(self._entity)
        if table is not None and "id" in table.hidden:
            raise ConfigurationError(
                f"The table {self._entity} of the replica at {self._base} does not store the IDs of its records, so "
                "records cannot be erased from it. Nothing was erased. Erase the records from the landing first. Then "
                "build a new replica from the landing, and delete this one."
            )

    def run(self, ids: RecordIds) -> dict[str, int]:
        """Erase records; return the number of ``rows`` removed from the table and its history, of ``listed`` rows to
        fetch, of ``quarantined`` events that lost their payload, and of removed ``files`` of tables.

        :raises PositionConflictError: if another job published a snapshot meanwhile, or is writing. A repetition
            completes the erasure.
        """
        counted = Counter[str](dict.fromkeys(("rows", "listed", "quarantined", "files"), 0))
        snapshot, erasures, versions = self._store.current(), list[TableErasure](), dict[str, Any]()
        table = snapshot.tables.get(self._entity)
        numbers = (None, None) if table is None else (table.version, table.history)
        for name, number in zip((self._entity, HISTORY.format(self._entity)), numbers, strict=True):
            log = self._table(name)
            if number is not None:  # None: no snapshot names the table, but a killed job may have begun it
                log.restore(number)
            rows = partial(erased_records, ids=ids)
            erasures.append(TableErasure(name, log, rows, lambda column: column == "Id", progress=[PROGRESS]))
            counted["rows"] += erasures[-1].rewrite()
            if number is not None and number >= 0:
                versions["version" if name == self._entity else "history"] = log.version().number
        if table is not None:
            after, counted["listed"] = self._without_listed(table, ids)
            after = replace(after, **versions)
            if after != table:
                following = snapshot.next({}, {self._entity: after}, datetime.now(UTC))
                self._store.publish(replace(following, job=self._job))
        self._forget_older()
        if QUARANTINE_TABLE in self._files.folders(self._base):
            quarantine = DeltaTableLog(self._location.below(QUARANTINE_TABLE), self._job)
            erasures.append(_of_quarantine(quarantine, ids, self._entity))
            counted["quarantined"] = erasures[-1].rewrite()
        self._files.delete(f"{self._base}/{REFRESH}")
        self._remove_reports()
        counted["files"] = sum(clean_all(self._base, erasures))
        return dict(counted)

    def _table(self, name: str) -> TableVersions:
        return TableVersions(self._location.below(name), self._job, cuts_log=False)

    def _without_listed(self, table: TableState, ids: RecordIds) -> tuple[TableState, int]:
        """Return the table with its list of rows to fetch without the records, and the number of removed rows."""
        if table.dirty_list is None:
            return table, 0
        folder = f"{self._base}/{table.dirty_list}"
        names = [name for name in self._files.file_names(folder) if name.endswith(".json")]
        lines = [line for name in names for line in self._files.read_text(f"{folder}/{name}").splitlines()]
        remaining = [line for line in lines if json.loads(line)["Id"] not in ids]
        if len(remaining) == len(lines):
            return table, 0
        changed = sum("changed" in json.loads(line) for line in remaining)
        list_path = f"{DIRTY}/{self._entity}/{uuid.uuid4().hex}" if remaining else None
        if list_path is not None:
            text = "".join(f"{line}\n" for line in remaining)
            self._files.replace_text(f"{self._base}/{list_path}/{names[0]}", text)
        computed, dirty = replace(table.computed, changed=changed), len(remaining) - changed
        return replace(table, dirty=dirty, dirty_list=list_path, computed=computed), len(lines) - len(remaining)

    def _forget_older(self) -> None:
        """Remove all snapshots but the newest, and the files that only they name."""
        older, newest = self._store.divided(1)
        retained = versions_named(newest)
        for name, numbers in versions_named(older).items():
            self._table(name).forget(min(numbers), retained.get(name, set()))
        self._store.prune(older, newest)
        live = {table.dirty_list for snapshot in newest for table in snapshot.tables.values()}
        remove_lists(self._files, self._base, self._entity, live)

    def _remove_reports(self) -> None:
        """Remove the reports of the object's comparisons, and all metrics: a range may be that of one record."""
        self._files.delete(f"{self._base}/{METRICS}")
        folder = f"{self._base}/{RECONCILIATIONS}"
        for refresh_id in self._files.folders(folder):
            self._files.delete(f"{folder}/{refresh_id}/{self._entity}.json")


def _of_quarantine(table: DeltaTableLog, ids: RecordIds, entity: str) -> TableErasure:
    return TableErasure(QUARANTINE_TABLE, table, partial(erased_quarantine, ids=ids, entity=entity), is_of_quarantine)


def _is_date(folder: str) -> bool:
    """Return whether a folder has the files of one date of an event table."""
    return folder.startswith("event_date=")


def _has_headers(version: TableVersion) -> bool:
    """Return whether a table has columns with headers of change events."""
    return any(is_header(field["name"]) for field in json.loads(version.schema_json)["fields"])
