"""Taking rows out of a Delta table, with all that older versions and the log keep of them.

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
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile, TableVersion
from airflow_provider_sfstream.tables.delta.table_files import TableFileWriter

log = logging.getLogger(__name__)

YOUNG = timedelta(days=1)
"""A file of no version that is younger may be one that a job is about to commit."""
_LOG = "_delta_log"
_OWN = "part-erased-"
"""What the names of new files begin with. None of them ever has a row of what was erased."""
_ENTRY = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet)")


class TableErasure:
    """Rows to be erased from one Delta table.

    :param name: of the table, for the log.
    :param rows: returns how many rows of a batch are other than before, and the rows that are left.
    :param telling: tells whether a column is one by which ``rows`` tells that.
    :param progress: the marks that each commit of the table moves on.
    """

    def __init__(
        self,
        name: str,
        table: DeltaTableLog,
        rows: Callable[[pa.RecordBatch], tuple[int, pa.RecordBatch]],
        telling: Callable[[str], bool],
        partition_by: Sequence[str] = (),
        progress: Sequence[str] = (),
    ) -> None:
        self._name, self._table, self._rows, self._telling = name, table, rows, telling
        self._filesystem = table.location.filesystem()
        self._partition_by, self._progress = partition_by, progress

    def rewrite(self) -> int:
        """Commit new files in place of those with rows of the records; return how many rows are other than before.

        :raises PositionConflictError: if another job has changed the table meanwhile.
        """
        version = self._table.version(progress=self._progress, bounds=False)
        added, removed, rows = self._rewritten(version)
        if removed:
            number = self._table.commit(version, pa.schema([]), added, removed, self._partition_by)
            log.info("%s: version %d is without %d rows.", self._name, number, rows)
        return rows

    def clean(self) -> tuple[int, list[str]]:
        """Remove what older versions and the log have of the records; return how many files were removed, and the paths
        of those that stay because a job may be about to commit them."""
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
        if gone or added_once - live.keys() - dead.keys():
            self._begin_log_anew()
        for path in gone:
            self._remove(path)
        return len(gone), [f"{self._name}/{path}" for path in young]

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
        with self._filesystem.open_input_file(path) as opened:
            file = pq.ParquetFile(opened)
            names = [name for name in file.schema_arrow.names if self._telling(name)]
            for batch in file.iter_batches(columns=names if narrow else None):
                yield self._rows(batch)

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


def check_not_busy(base: str, files: Sequence[str]) -> None:
    """Make sure that nothing was left below a folder.

    :param files: what :meth:`TableErasure.clean` has left.
    :raises PositionConflictError: if something was.
    """
    if files:
        raise PositionConflictError(
            f"{base}: {len(files)} files that no version of a table has, the first {files[0]}, hold the records or "
            "cannot be read, and are younger than a day: a job is about to commit them, or was killed. All else below "
            "this folder is erased. Run this again once no job is at work, and a day after the last was killed."
        )
