"""Taking records out of the Delta tables of an event log, with all that older versions and the log keep of them.

A table gets new files in place of those with rows of the records, by one commit. Then its log begins anew with a
checkpoint, since the entries before tell the least and the greatest values of files that are gone. Then the files go
that no version has any longer. A kill leaves files behind that the next run finds by what is in them, so that it does
the rest. Readers of older versions have none any more.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from airflow_provider_sfstream.exceptions import ConfigurationError, PositionConflictError
from airflow_provider_sfstream.protocol.record_ids import RecordIds
from airflow_provider_sfstream.spark.engines.engine import JobFiles
from airflow_provider_sfstream.spark.event_log.formats import find_tables
from airflow_provider_sfstream.spark.event_log.kept_rules import KeptRules
from airflow_provider_sfstream.spark.event_log.tables import QUARANTINE_TABLE
from airflow_provider_sfstream.spark.rows.erased_rows import (
    HEADER,
    OUTCAST_COLUMNS,
    erased_events,
    erased_outcasts,
    is_header,
)
from airflow_provider_sfstream.spark.rows.hidden_values import coverage_of
from airflow_provider_sfstream.spark.storage.delta_table import DeltaTableLog, TableFile, TableVersion
from airflow_provider_sfstream.spark.storage.table_files import TableFileWriter

log = logging.getLogger(__name__)

YOUNG = timedelta(days=1)
"""A file of no version that is younger may be one that a job is about to commit."""
_LOG = "_delta_log"
_OWN = "part-erased-"
"""What the names of new files begin with. None of them ever has a row of what was erased."""
_ENTRY = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet)")


class EventLogErasure:
    """What is to be erased from the tables below one folder.

    :param files: those below it.
    :param event: the name of the object's change event.
    :param job: who erases, as the tables' history names it.
    :raises ConfigurationError: if a table cannot be searched: one of Parquet folders, or one whose events do not tell
        their records. Nothing was erased.
    """

    def __init__(self, files: JobFiles, output: str, event: str, job: str) -> None:
        self._files, self._base, self._job = files, files.url(output), job
        location = files.table_location(self._base)
        self._tables: list[tuple[str, DeltaTableLog]] = []
        try:
            names = find_tables(files, self._base, "delta")
        except ConfigurationError:
            raise ConfigurationError(
                f"{self._base} has tables that are folders of Parquet files, from which nothing is erased: make them "
                "anew in another folder, from the landing once it is erased from, and remove these. Nothing was erased."
            ) from None
        kept = KeptRules.read(files, self._base)
        for name in names:
            table = DeltaTableLog(location.below(name), job)
            if name != event and (name.endswith("ChangeEvent") or not _headers(table.version(bounds=False))):
                continue
            how = coverage_of(kept.of(name), name).of((HEADER, "recordIds"), is_opaque=True)
            if how is not None or not _headers(table.version(bounds=False)):
                raise ConfigurationError(
                    f"{self._base}/{name} does not tell of which record an event is, so nothing can be erased from it. "
                    "Make it anew in another folder, from the landing once it is erased from, and remove this one. "
                    "Nothing was erased."
                )
            self._tables.append((name, table))
        if QUARANTINE_TABLE in files.folders(self._base):
            self._tables.append((QUARANTINE_TABLE, DeltaTableLog(location.below(QUARANTINE_TABLE), job)))
        self._event = event

    @property
    def tables(self) -> list[str]:
        """The names of the tables that are searched."""
        return [name for name, _ in self._tables]

    def run(self, ids: RecordIds) -> dict[str, int]:
        """Erase records; return how many ``rows`` of how many ``tables`` changed or went, and how many ``files`` went.

        :raises PositionConflictError: if another job is at work on a table. Doing it again later completes it.
        """
        counted = Counter[str](dict.fromkeys(("tables", "rows", "files"), 0))
        busy: list[str] = []
        for name, table in self._tables:
            rows, removed, young = _Table(name, table, ids, self._event).erase()
            counted.update(tables=bool(rows or removed), rows=rows, files=removed)
            busy += young
        if busy:
            raise PositionConflictError(
                f"{self._base}: {len(busy)} files that no version of a table has, the first {busy[0]}, hold the "
                "records or cannot be read, and are younger than a day: a job is about to commit them, or was killed. "
                "All else below this folder is erased. Run this again once no job is at work, and a day after the last "
                "was killed."
            )
        return dict(counted)


class _Table:
    """One table."""

    def __init__(self, name: str, table: DeltaTableLog, ids: RecordIds, event: str) -> None:
        self._name, self._table, self._ids, self._event = name, table, ids, event
        self._filesystem = table.location.filesystem()
        self._partition_by = () if name == QUARANTINE_TABLE else ("event_date",)

    def erase(self) -> tuple[int, int, list[str]]:
        """Return how many rows changed, how many files were removed, and the files that others may be writing."""
        version = self._table.version(bounds=False)
        added, removed, rows = self._rewritten(version)
        if removed:
            version_number = self._table.commit(version, pa.schema([]), added, removed, self._partition_by)
            log.info("%s: version %d is without %d rows.", self._name, version_number, rows)
        added_once, removed_once = self._named()
        live = self._table.version(bounds=False).files
        dead = {path: moment for path, moment in self._parquet_files() if path not in live}
        gone, young = list[str](), list[str]()
        for path, moment in dead.items():
            known = path in added_once | removed_once
            own = not known and path.rpartition("/")[2].startswith(_OWN)  # of an erasure that was killed
            if own or self._holds(path):
                (gone if own or known or moment < datetime.now(UTC) - YOUNG else young).append(path)
        # What files that are gone already held is not known; the log has values of them.
        if removed or gone or added_once - live.keys() - dead.keys():
            self._begin_log_anew()
        for path in gone:
            self._remove(path)
        return rows, len(gone), [f"{self._name}/{path}" for path in young]

    def _rewritten(self, version: TableVersion) -> tuple[list[TableFile], list[str], int]:
        """Write what is left of the files that have rows of the records; return these, the files themselves, and how
        many rows are other than before."""
        added: list[TableFile] = []
        removed: list[str] = []
        changed = 0
        for path, file in version.files.items():
            if not self._holds(path):
                continue
            removed.append(path)
            values = {name: str(file[f"partition.{name}"]) for name in self._partition_by}
            writer: TableFileWriter | None = None
            try:
                for before, left in self._batches(path):
                    changed += before
                    if len(left):
                        writer = writer or self._writer(path, left.schema)
                        writer.append(left)
                if writer is not None:
                    added.append(writer.close(values))
            except BaseException:
                if writer is not None:
                    writer.abandon()
                raise
        return added, removed, changed

    def _writer(self, path: str, schema: pa.Schema) -> TableFileWriter:
        """Return the writer of a new file beside another one, whose folder tells its window."""
        folder = path[: path.rfind("/") + 1]
        return TableFileWriter(self._filesystem, f"{folder}{_OWN}{uuid.uuid4().hex}.parquet", schema)

    def _batches(self, path: str, *, narrow: bool = False) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield how many rows of each batch of a file change, and its rows without the records.

        :param narrow: only the columns that tell.
        """
        is_quarantine = self._name == QUARANTINE_TABLE
        with self._filesystem.open_input_file(path) as opened:
            file = pq.ParquetFile(opened)
            telling = (lambda name: name in OUTCAST_COLUMNS) if is_quarantine else is_header
            names = [name for name in file.schema_arrow.names if telling(name)]
            for batch in file.iter_batches(columns=names if narrow else None):
                if is_quarantine:
                    yield erased_outcasts(batch, self._ids, self._event)
                else:
                    yield erased_events(batch, self._ids)

    def _holds(self, path: str) -> bool:
        """Return whether a file has rows of the records; also if it cannot be read, as one that a kill cut off."""
        try:
            return any(changed for changed, _ in self._batches(path, narrow=True))
        except pa.ArrowInvalid:
            return True

    def _parquet_files(self) -> Iterator[tuple[str, datetime]]:
        for each in self._filesystem.get_file_info(fs.FileSelector("", recursive=True)):
            if each.is_file and each.path.endswith(".parquet") and not each.path.startswith(f"{_LOG}/"):
                yield each.path, each.mtime

    def _entries(self) -> list[tuple[int, str, str]]:
        """Return number, kind and path of each entry of the log and each checkpoint."""
        found = self._filesystem.get_file_info(fs.FileSelector(_LOG))
        matches = ((_ENTRY.fullmatch(each.base_name), each.path) for each in found)
        return [(int(match[1]), match[2], path) for match, path in matches if match]

    def _named(self) -> tuple[set[str], set[str]]:
        """Return the paths of the files that the log says were added, and were removed."""
        found: dict[str, set[str]] = {"add": set(), "remove": set()}
        for _, kind, path in self._entries():
            with self._filesystem.open_input_file(path) as opened:
                if kind == "json":
                    actions = [json.loads(line) for line in opened.read().splitlines()]
                else:
                    actions = pq.ParquetFile(opened).read(columns=["add.path", "remove.path"]).to_pylist()
            for action in actions:
                for name, paths in found.items():
                    if (one := action.get(name)) and one["path"]:
                        paths.add(unquote(one["path"]))
        return found["add"], found["remove"]

    def _begin_log_anew(self) -> None:
        """Write a checkpoint of the newest version, and remove the entries before it."""
        table = self._table.table()
        table.create_checkpoint()
        for number, _, path in self._entries():
            if number < table.version():
                self._remove(path)

    def _remove(self, path: str) -> None:
        self._filesystem.delete_file(path)


def _headers(version: TableVersion) -> Sequence[str]:
    """Return the columns of a table that tell the header of a change event."""
    fields = json.loads(version.schema_json)["fields"] if version.schema_json else []
    return [field["name"] for field in fields if is_header(field["name"])]
