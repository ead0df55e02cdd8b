"""Erasure of records from the Delta tables of event logs and replicas.

In each table, one commit replaces the files with rows of the records. Then the log is restarted with a checkpoint,
since earlier entries contain the least and the greatest values of removed files. Then the files that no version has any
longer are removed. A kill leaves files that the next run finds by their content, so that it completes the erasure.
Older versions are no longer readable.

The next snapshot of a replica names the new versions; then the older snapshots are removed. A kill before the snapshot
leaves the replica unchanged.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from airflow_provider_sfstream.erasure.records import (
    RecordIds,
    events_without,
    is_header,
    is_searched,
    quarantine_without,
    replica_without,
)
from airflow_provider_sfstream.exceptions import ConfigurationError, PositionConflictError
from airflow_provider_sfstream.salesforce.topics import CHANGE_EVENT, change_event_of
from airflow_provider_sfstream.tables.delta.delta_table import TableFile, TableVersion
from airflow_provider_sfstream.tables.delta.table_files import TableFileWriter
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.event_log.tables import TABLE_NAME, StoredRules
from airflow_provider_sfstream.tables.job_config import METRICS
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.replica.delta_sink import HISTORY, PROGRESS, forget_snapshots
from airflow_provider_sfstream.tables.replica.dirty_lists import remaining_list, remove_lists
from airflow_provider_sfstream.tables.replica.reconciliation import RECONCILIATIONS
from airflow_provider_sfstream.tables.replica.refresh_document import FOLDER as REFRESH
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.rows.hidden_values import coverage_of
from airflow_provider_sfstream.tables.rows.replica_columns import HEADER
from airflow_provider_sfstream.tables.runner.engine import JobFiles

log = logging.getLogger(__name__)

_YOUNG = timedelta(days=1)
"""Age below which a file that belongs to no version may be one that a job is about to commit."""
_OWN = "part-erased-"
"""Prefix of the names of new files. They never contain a row of an erased record."""
_DATA_FILE = re.compile(r"(?!_delta_log/).*\.parquet(#\d+)?")
"""Path of a data file; with the suffix, the unfinished file of a deltalake that was killed, on a local disk."""
_FORMER_QUARANTINE = "_replica_quarantine"
"""Folder of Parquet files, in place of the quarantine, of a replica of early versions of this package."""
_Rows = Callable[[pa.RecordBatch], tuple[int, pa.RecordBatch]]
"""Function that returns the number of changed rows of a batch, and the rows that remain."""


class TableErasure:
    """Rows to erase from one Delta table.

    :param progress: the progress marks that each commit of the table advances.
    """

    def __init__(self, name: str, table: TableVersions, rows: _Rows, progress: Sequence[str] = ()) -> None:
        self._name, self._table, self._rows, self._progress = name, table, rows, progress
        self._filesystem = table.location.filesystem()

    def rewrite(self) -> int:
        """Commit new files in place of those with rows of the records; return the number of changed rows.

        :raises PositionConflictError: if another job has changed the table meanwhile.
        """
        version = self._table.version(progress=self._progress)
        removed = [path for path in version.files if self._has_records(path)]
        added, changed, partition = list[TableFile](), 0, dict[str, str]()
        for path in removed:
            values = {key: value for key, value in version.files[path].items() if key.startswith("partition.")}
            partition = {key.removeprefix("partition."): str(value) for key, value in values.items()}
            rows, file = self._rewrite_file(path, partition)
            changed += rows
            added += [file] if file is not None else []
        if removed:
            number = self._table.commit(version, pa.schema([]), added, removed, list(partition))
            log.info("%s: committed version %d, with the records erased from %d rows.", self._name, number, changed)
        return changed

    def clean(self) -> tuple[int, list[str]]:
        """Remove the records from older versions and from the log; return the number of removed files, and the paths of
        files that stay because a job may be about to commit them."""
        added_once, removed_once = self._table.logged_files()
        live = self._table.version().files
        dead = {
            file.path: file.mtime
            for file in self._filesystem.get_file_info(fs.FileSelector("", allow_not_found=True, recursive=True))
            if file.is_file and _DATA_FILE.fullmatch(file.path) and file.path not in live
        }
        removable, young = list[str](), list[str]()
        for path, moment in dead.items():
            is_logged = path in added_once | removed_once
            is_own = not is_logged and path.rpartition("/")[2].startswith(_OWN)  # file of a killed erasure
            if is_own or self._has_records(path):
                (removable if is_own or is_logged or moment < datetime.now(UTC) - _YOUNG else young).append(path)
        # The content of files that are already removed is not known, but the log has values of them.
        if added_once and (removable or added_once - live.keys() - dead.keys()):
            self._table.restart_log()
        for path in removable:
            self._remove(path)
        return len(removable), [f"{self._name}/{path}" for path in young]

    def _remove(self, path: str) -> None:
        self._filesystem.delete_file(path)

    def _rewrite_file(self, path: str, partition: dict[str, str]) -> tuple[int, TableFile | None]:
        """Write a file without the records in the folder of a file, which is that of its partition; return the number
        of changed rows, and the file, ``None`` if no row remains."""
        new_path, changed = f"{path[: path.rfind('/') + 1]}{_OWN}{uuid.uuid4().hex}.parquet", 0
        writer: TableFileWriter | None = None
        try:
            for count, remaining in self._batches(path):
                changed += count
                if len(remaining):
                    writer = writer or TableFileWriter(self._filesystem, new_path, remaining.schema)
                    writer.append(remaining)
            return changed, None if writer is None else writer.close(partition)
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise

    def _batches(self, path: str, *, narrow: bool = False) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the number of changed rows of each batch of a file, and its rows without the records; if ``narrow``,
        only the columns by which the records are found."""
        with self._filesystem.open_input_file(path) as source:
            file = pq.ParquetFile(source)
            names = list(filter(is_searched, file.schema_arrow.names))
            for batch in file.iter_batches(columns=names if narrow else None) if names else ():
                yield self._rows(batch)

    def _has_records(self, path: str) -> bool:
        """Return whether a file has rows of the records, or its content is unreadable, for example because a kill
        truncated it."""
        try:
            return any(changed for changed, _ in self._batches(path, narrow=True))
        except (pa.ArrowInvalid, OSError):
            with self._filesystem.open_input_file(path) as source:
                source.read()  # fails if the storage is the cause, not the content
            return True


def _clean_all(base: str, erasures: Iterable[TableErasure]) -> list[int]:
    """Remove the records from older versions and logs of tables; return the number of removed files of each.

    :raises PositionConflictError: if files stay because a job may be about to commit them.
    """
    cleaned = [erasure.clean() for erasure in erasures]
    if files := [path for _, young in cleaned for path in young]:
        raise PositionConflictError(
            f"{base}: {len(files)} files that no version of a table has, the first {files[0]}, contain the records or "
            "cannot be read, and are younger than a day: a job is about to commit them, or was killed. Everything else "
            "below this folder is erased. Run the erasure again when no job is running, and a day after the last job "
            "was killed."
        )
    return [removed for removed, _ in cleaned]


class EventLogErasure:
    """Erasure of an object's records from the tables of an event log, below one folder, and from its quarantine.

    :param job: name of the job, for the tables' history.
    :raises ConfigurationError: if there is no event log, or a table cannot be searched, because its events do not name
        their records. Nothing was erased.
    """

    def __init__(self, files: JobFiles, output: str, entity: str, job: str) -> None:
        self._base, self._entity, self._job = files.url(output), entity, job
        self._location = files.table_location(self._base)
        stored_rules, event = StoredRules(files, self._base), change_event_of(entity).lower()
        folders = {name: files.folders(f"{self._base}/{name}") for name in files.folders(self._base)}
        # A killed job may have left files of a table without a log.
        by_date = {name for name, inner in folders.items() if any(each.startswith("event_date=") for each in inner)}
        if not by_date and QUARANTINE_TABLE not in folders and "_delta_log" not in chain(*folders.values()):
            raise ConfigurationError(
                f"There is no event log at {self._base}. Nothing was erased. Correct event_log_urls, or remove the URL."
            )
        self.tables: list[str] = []
        """Names of the searched tables."""
        for name in filter(TABLE_NAME.fullmatch, sorted(by_date)):
            version = TableVersions(self._location.below(name)).version()
            can_search = version.number < 0 or _has_headers(version)  # without a version, there are only files
            if name.lower() != event and (name.endswith(CHANGE_EVENT) or not can_search):
                continue
            coverage = coverage_of(stored_rules.rules_of(name), name)
            treatment = coverage.treatment_of((HEADER, "recordIds"), is_opaque=True)
            if treatment is not None or not can_search:
                raise ConfigurationError(
                    f"The table {self._base}/{name} does not store the record IDs of its events, so records cannot be "
                    "erased from it. Nothing was erased. Erase the records from the landing first. Then write a new "
                    "table from the landing to another folder, and delete this one."
                )
            self.tables.append(name)
        if QUARANTINE_TABLE in folders:
            self.tables.append(QUARANTINE_TABLE)

    def run(self, ids: RecordIds) -> dict[str, int]:
        """Erase records; return the numbers of changed or removed ``rows``, of their ``tables``, and of removed
        ``files``.

        :raises PositionConflictError: if another job is writing to a table. Repeat later to complete the erasure.
        """
        quarantined = partial(quarantine_without, ids=ids, entity=self._entity)
        functions = {name: partial(events_without, ids=ids) for name in self.tables} | {QUARANTINE_TABLE: quarantined}
        tables = {name: TableVersions(self._location.below(name), self._job) for name in self.tables}
        erasures = [TableErasure(name, table, functions[name]) for name, table in tables.items()]
        rows = [erasure.rewrite() for erasure in erasures]
        files = _clean_all(self._base, erasures)
        changed_tables = sum(bool(changed or removed) for changed, removed in zip(rows, files, strict=True))
        return {"tables": changed_tables, "rows": sum(rows), "files": sum(files)}


class ReplicaErasure:
    """Erasure of an object's records from the replica below one folder: from its table and the history, the list of
    rows to fetch, fetched files, reports and metrics, the quarantine, and old snapshots.

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
        counts = Counter[str](dict.fromkeys(("rows", "listed", "quarantined", "files"), 0))
        snapshot, erasures, versions = self._store.current(), list[TableErasure](), dict[str, Any]()
        table = snapshot.tables.get(self._entity)
        numbers = {} if table is None else {"version": table.version, "history": table.history}
        for kind, name in (("version", self._entity), ("history", HISTORY.format(self._entity))):
            versions_of_table = TableVersions(self._location.below(name), self._job, cuts_log=False)
            number = numbers.get(kind) if versions_of_table.version().number >= 0 else None
            if number is not None:  # None: no snapshot names the table, but a killed job may have begun it
                versions_of_table.restore(number)
            erasures.append(TableErasure(name, versions_of_table, partial(replica_without, ids=ids), [PROGRESS]))
            counts["rows"] += erasures[-1].rewrite()
            if number is not None and number >= 0:
                versions[kind] = versions_of_table.version().number
        if table is not None:
            after, counts["listed"] = remaining_list(self._files, self._base, self._entity, table, ids)
            after = replace(after, **versions)
            if after != table:
                following = snapshot.next({}, {self._entity: after}, datetime.now(UTC))
                self._store.publish(replace(following, job=self._job))
        older, newest = self._store.divided(1)
        forget_snapshots(self._files, self._base, older, newest)
        self._store.prune(older, newest)
        remove_lists(self._files, self._base, self._entity, {each.dirty_list for each in newest[0].tables.values()})
        if QUARANTINE_TABLE in self._files.folders(self._base):
            quarantine = TableVersions(self._location.below(QUARANTINE_TABLE), self._job)
            without = partial(quarantine_without, ids=ids, entity=self._entity)
            erasures.append(TableErasure(QUARANTINE_TABLE, quarantine, without))
            counts["quarantined"] = erasures[-1].rewrite()
        self._files.delete(f"{self._base}/{REFRESH}")
        self._remove_reports()
        counts["files"] = sum(_clean_all(self._base, erasures))
        return dict(counts)

    def _remove_reports(self) -> None:
        """Remove the reports of the object's comparisons, and all metrics: a range may be that of one record."""
        self._files.delete(f"{self._base}/{METRICS}")
        folder = f"{self._base}/{RECONCILIATIONS}"
        for refresh_id in self._files.folders(folder):
            self._files.delete(f"{folder}/{refresh_id}/{self._entity}.json")


def _has_headers(version: TableVersion) -> bool:
    """Return whether a table has columns with headers of change events."""
    return any(is_header(field["name"]) for field in json.loads(version.schema_json)["fields"])
