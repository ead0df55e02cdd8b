"""Erasure of records from one Delta table, its older versions and its log; and removal of records from batches.

One commit replaces the files with rows of the records. Then the log is restarted with a checkpoint, since earlier
entries contain the least and the greatest values of removed files. Then the files that no version has any longer are
removed. A kill leaves files that the next run finds by their content, so that it completes the erasure. Older versions
are no longer readable.

The functions below :class:`TableErasure` remove the records from a batch of rows: of a replica's table, of an event
log, or of a quarantine.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from airflow_provider_sfstream.erasure.record_ids import RecordIds
from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.salesforce.topics import can_carry_changes
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile
from airflow_provider_sfstream.tables.delta.table_files import TableFileWriter
from airflow_provider_sfstream.tables.rows.replica_columns import HEADER

log = logging.getLogger(__name__)

YOUNG = timedelta(days=1)
"""Age below which a file that belongs to no version may be one that a job is about to commit."""
_LOG = "_delta_log"
_OWN = "part-erased-"
"""Prefix of the names of new files. They never contain a row of an erased record."""
_REASON = "erased: the payload contained the ID of an erased record"
_ENTRY = re.compile(r"(\d{20})\.(.+)")
"""Number and kind of a file of the log: a commit, a checkpoint, or another program's file that repeats their values."""
_CHECKPOINT = re.compile(r"checkpoint\..*parquet")
_PARQUET = re.compile(r".*\.parquet(#\d+)?")
"""Data file; with the suffix, the unfinished file of a deltalake that was killed, on a local disk."""


class TableErasure:
    """Rows to erase from one Delta table.

    :param rows: returns the number of changed rows of a batch, and the rows that remain.
    :param is_searched: returns whether ``rows`` finds the records by a column.
    :param progress: the progress marks that each commit of the table advances.
    """

    def __init__(
        self,
        name: str,
        table: DeltaTableLog,
        rows: Callable[[pa.RecordBatch], tuple[int, pa.RecordBatch]],
        is_searched: Callable[[str], bool],
        partition_by: Sequence[str] = (),
        progress: Sequence[str] = (),
    ) -> None:
        self._name, self._table, self._rows, self._is_searched = name, table, rows, is_searched
        self._filesystem = table.location.filesystem()
        self._partition_by, self._progress = partition_by, progress

    def rewrite(self) -> int:
        """Commit new files in place of those with rows of the records; return the number of changed rows.

        :raises PositionConflictError: if another job has changed the table meanwhile.
        """
        version = self._table.version(progress=self._progress)
        removed = [path for path in version.files if self._has_records(path)]
        added: list[TableFile] = []
        changed = 0
        for path in removed:
            partition = {name: str(version.files[path][f"partition.{name}"]) for name in self._partition_by}
            rows, file = self._rewrite_file(path, partition)
            changed += rows
            added += [file] if file is not None else []
        if removed:
            number = self._table.commit(version, pa.schema([]), added, removed, self._partition_by)
            log.info("%s: committed version %d, with the records erased from %d rows.", self._name, number, changed)
        return changed

    def clean(self) -> tuple[int, list[str]]:
        """Remove the records from older versions and from the log; return the number of removed files, and the paths of
        files that stay because a job may be about to commit them."""
        added_once, removed_once = self._logged_paths()
        live = self._table.version().files
        dead = {
            file.path: file.mtime
            for file in self._filesystem.get_file_info(fs.FileSelector("", allow_not_found=True, recursive=True))
            if file.is_file and _PARQUET.fullmatch(file.path) and not file.path.startswith(f"{_LOG}/")
            if file.path not in live
        }
        removable, young = list[str](), list[str]()
        for path, moment in dead.items():
            is_logged = path in added_once | removed_once
            is_own = not is_logged and path.rpartition("/")[2].startswith(_OWN)  # file of a killed erasure
            if is_own or self._has_records(path):
                (removable if is_own or is_logged or moment < datetime.now(UTC) - YOUNG else young).append(path)
        # The content of files that are already removed is not known, but the log has values of them.
        if added_once and (removable or added_once - live.keys() - dead.keys()):
            self._restart_log()
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
            names = [name for name in file.schema_arrow.names if self._is_searched(name)]
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

    def _entries(self) -> list[tuple[int, str, str]]:
        """Return number, kind and path of each file of the log that belongs to a version."""
        files = self._filesystem.get_file_info(fs.FileSelector(_LOG, allow_not_found=True))
        matches = ((_ENTRY.fullmatch(file.base_name), file.path) for file in files)
        return [(int(match[1]), match[2], path) for match, path in matches if match]

    def _logged_paths(self) -> tuple[set[str], set[str]]:
        """Return the paths of the files that the log adds, and of those that it removes."""
        paths: dict[str, set[str]] = {"add": set(), "remove": set()}
        for _, kind, entry in self._entries():
            if kind != "json" and not _CHECKPOINT.fullmatch(kind):
                continue
            with self._filesystem.open_input_file(entry) as source:
                if kind == "json":
                    actions = [json.loads(line) for line in source.read().splitlines()]
                else:
                    actions = pq.ParquetFile(source).read(columns=["add.path", "remove.path"]).to_pylist()
            for action in actions:
                for name, paths_of_action in paths.items():
                    if (file := action.get(name)) and file["path"]:
                        paths_of_action.add(unquote(file["path"]))
        return paths["add"], paths["remove"]

    def _restart_log(self) -> None:
        """Write a checkpoint of the newest version, and remove the entries before it."""
        table = self._table.table()
        table.create_checkpoint()
        for number, _, path in self._entries():
            if number < table.version():
                self._filesystem.delete_file(path)


def clean_all(base: str, erasures: Iterable[TableErasure]) -> list[int]:
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


def is_header(column: str) -> bool:
    """Return whether a column of a table has headers of change events, of any type."""
    return column.partition("__")[0] == HEADER


def is_of_quarantine(column: str) -> bool:
    """Return whether :func:`erased_quarantine` reads a column of the quarantine."""
    return column in ("reason", "payload", "topic")


def erased_records(batch: pa.RecordBatch, ids: RecordIds) -> tuple[int, pa.RecordBatch]:
    """Return the number of rows of a replica's table that belong to the records, and the other rows."""
    erased = [record_id in ids for record_id in batch.column("Id").to_pylist()]
    return sum(erased), batch.filter(pa.array([not is_erased for is_erased in erased])) if any(erased) else batch


def erased_events(batch: pa.RecordBatch, ids: RecordIds) -> tuple[int, pa.RecordBatch]:
    """Return the number of changed rows of change events, and the rows that remain: those of other records, and those
    of several records, without the erased IDs."""
    changed: set[int] = set()
    erased: set[int] = set()
    for name in batch.schema.names:
        if not is_header(name):
            continue
        column = batch.column(name)
        is_struct = pa.types.is_struct(column.type)
        if is_struct and column.type.get_field_index("recordIds") < 0:
            continue
        values = (column.field("recordIds") if is_struct else column).to_pylist()
        for row, value in enumerate(values):
            record_ids = value if is_struct else _record_ids(value)
            remaining = [record_id for record_id in record_ids or () if record_id not in ids]
            if record_ids and len(remaining) < len(record_ids):
                changed.add(row)
                values[row] = remaining if is_struct else json.dumps({**json.loads(value), "recordIds": remaining})
                if not remaining:
                    erased.add(row)
        if changed:
            new = _with_ids(column, values) if is_struct else pa.array(values, column.type)
            batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), new)
    mask = pa.array([row not in erased for row in range(len(batch))], pa.bool_())
    return len(changed), batch.filter(mask) if erased else batch


def erased_quarantine(batch: pa.RecordBatch, ids: RecordIds, entity: str) -> tuple[int, pa.RecordBatch]:
    """Return the number of changed rows of the quarantine, and all rows. An event of the object's topic or of a channel
    loses its payload, and the reason that may quote it, if its bytes contain one of the IDs."""
    payloads, reasons = batch.column("payload").to_pylist(), batch.column("reason").to_pylist()
    changed = 0
    for row, topic in enumerate(batch.column("topic").to_pylist()):
        if can_carry_changes(topic, entity) and payloads[row] is not None and ids.are_in(payloads[row]):
            payloads[row], reasons[row] = None, _REASON
            changed += 1
    if changed:
        for name, values in (("payload", payloads), ("reason", reasons)):
            field = batch.schema.field(name)
            batch = batch.set_column(batch.schema.get_field_index(name), field, pa.array(values, field.type))
    return changed, batch


def _record_ids(text: str | None) -> Any:
    """Return the record IDs of a header in JSON; ``None`` if it has none."""
    header = json.loads(text) if text else None
    return header.get("recordIds") if isinstance(header, dict) else None


def _with_ids(headers: pa.StructArray, values: list[Any]) -> pa.StructArray:
    fields = list(headers.type)
    members = [
        pa.array(values, field.type) if field.name == "recordIds" else headers.field(number)
        for number, field in enumerate(fields)
    ]
    return pa.StructArray.from_arrays(members, fields=fields, mask=headers.is_null())
