"""Delta tables without a jar: tasks write immutable Parquet files, the driver commits them through delta-rs.

A commit atomically adds files, removes files and advances the job's progress marks, or has no effect. Delta's own check
detects concurrent commits: the commit is retried if the other one does not conflict with it.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    LandingError,
    PositionConflictError,
    SalesforceStreamError,
)
from airflow_provider_sfstream.tables.delta.table_location import TableLocation

log = logging.getLogger(__name__)

_TRIES = 20
"""Maximum attempts to commit, each lost to another job that committed first."""
MADE_BY = "sfstream"
"""Key of this package's entry in the metadata of a commit."""
_FILE_KEYS = ("path", "size_bytes", "num_records", "min.Id", "max.Id", "min.window_id", "max.window_id")
"""Keys of the files of a version, and those of their partitions. Wide tables have very many other statistics."""
_CONFIGURATION = {"delta.checkpointInterval": "10"}
"""Properties of new tables. Opening a log reads its commits since the last checkpoint; deltalake's default is 100."""
_CUTS_LOG = "delta.enableExpiredLogCleanup"
_NO_CAUSE = re.compile(r"\x1b\[\d+m|\n\s*0: .*", re.DOTALL)
"""Parts of a deltalake error that errors of this package omit: terminal colours, and Rust's numbered backtrace."""
_HARMLESS = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Table features that readers must support, but that do not affect the rows of the files."""


@dataclass(frozen=True)
class TableFile:
    """Parquet file of a table: ``path`` below the table's folder, ``size`` in bytes, ``stats`` in Delta's JSON form,
    and the value of each ``partition`` column, as Delta writes it."""

    path: str
    size: int
    rows: int
    stats: str = "{}"
    partition: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableVersion:
    """Table at one version; number -1 means that the table does not exist yet.

    :param files: live files by path, with ``size_bytes``, ``num_records``, the bounds of ``Id`` and ``window_id``
        (``min.Id`` and so on), and ``partition.*``.
    :param progress: the mark of each requested kind of progress, ``None`` if it has none yet.
    :param schema_json: its schema in Spark's JSON form; empty if there is no table.
    :param opened: deltalake's table at this version; ``None`` if there is no table.
    """

    number: int
    files: Mapping[str, Mapping[str, Any]]
    progress: Mapping[str, int | None]
    schema_json: str = ""
    opened: Any = field(default=None, repr=False, compare=False)


class DeltaTableLog:
    """Log of one table.

    :param location: the table's folder.
    :param job: name of the committing job, for the errors of other jobs.
    :param cuts_log: for a new table, whether a commit may remove log entries that the versions of the last 30 days do
        not need, which is Delta's default. ``False`` keeps older versions readable.
    """

    def __init__(self, location: TableLocation, job: str = "", *, cuts_log: bool = True) -> None:
        self.location, self._job, self._cuts_log = location, job, cuts_log

    def version(self, number: int | None = None, progress: Iterable[str] = ()) -> TableVersion:
        """Return the table at a version, the newest if ``None``.

        :raises ConfigurationError: if that version no longer exists, or the files alone do not determine its rows.
        :raises LandingError: if the log cannot be opened.
        """
        table = self._open(number)
        return TableVersion(-1, {}, dict.fromkeys(progress)) if table is None else self._read(table, progress)

    def _read(self, table: Any, progress: Iterable[str]) -> TableVersion:
        protocol = table.protocol()
        features = set(protocol.reader_features or ()) - _HARMLESS
        if features or protocol.min_reader_version == 2:
            raise ConfigurationError(
                f"{self.location.uri} uses features of Delta that this package cannot read: "
                f"{', '.join(sorted(features)) or 'column mapping'}. Another program enabled them. Nothing was "
                "written. Disable them, or use another output folder. Delta's own readers can read this table."
            )
        files = pa.table(table.get_add_actions(flatten=True))
        names = [name for name in files.column_names if name in _FILE_KEYS or name.startswith("partition.")]
        files_by_path = {file["path"]: file for file in files.select(names).to_pylist()}
        marks = {name: table.transaction_version(name) for name in progress}
        return TableVersion(table.version(), files_by_path, marks, table.schema().to_json(), table)

    def commit(
        self,
        read: TableVersion,
        schema: pa.Schema,
        added: Collection[TableFile],
        removed: Collection[str],
        partition_by: Collection[str] = (),
    ) -> int:
        """Commit a change to the table; return the committed version.

        Columns of ``schema`` that the table lacks are added to it first.

        :param read: the version that the change is based on. Its progress marks advance by one.
        :param removed: paths of live files.
        :raises PositionConflictError: if another job has advanced one of the marks, or removed one of the files; the
            error names it, and nothing of this change is committed.
        :raises LandingError: if the log cannot be opened, or lacks versions that it had.
        """
        from deltalake.exceptions import DeltaError

        commit_id, table = uuid.uuid4().hex, read.opened
        for _ in range(_TRIES):
            try:
                return self._try(commit_id, table, read, schema, added, removed, tuple(partition_by))
            except (OSError, DeltaError) as error:
                failure = error  # the storage may have written the commit although its response was lost
            if (version := self._find(commit_id, read.number)) is not None:
                return version
            if (newest := self._open()) is None and read.number >= 0:
                raise self._unusable(f"the table no longer exists; its last known version is {read.number}")
            self._compare(commit_id, newest, read, removed)
            if newest is None or (table is not None and newest.version() == table.version()):
                raise failure
            table = newest
            log.info("%s: another job committed first (%s); retrying the commit.", self.location.uri, failure)
        raise PositionConflictError(f"{self.location.uri}: in {_TRIES} attempts, other jobs committed first. {_RETRY}")

    def table(self, number: int | None = None) -> Any:
        """Return the deltalake table, for operations that only deltalake supports.

        :param number: of a version; ``None`` for the newest.
        """
        if (table := self._open(number)) is None:
            raise ConfigurationError(f"There is no Delta table at {self.location.uri}.")
        return table

    def _open(self, number: int | None = None) -> Any | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(self.location.uri, number, storage_options=dict(self.location.options))
        except (OSError, DeltaError) as error:
            if number is not None and isinstance(error, DeltaError):
                raise ConfigurationError(f"{self.location.uri} has no version {number}: {error}") from error
            if isinstance(error, TableNotFoundError):
                return None
            raise self._unusable(_NO_CAUSE.sub("", str(error))) from error

    def _try(
        self,
        commit_id: str,
        table: Any | None,
        read: TableVersion,
        schema: pa.Schema,
        added: Collection[TableFile],
        removed: Collection[str],
        partition_by: tuple[str, ...],
    ) -> int:
        """Commit the change as the next version of ``table``; return this version. Fail if the log has a newer one."""
        from deltalake import Schema, transaction

        delta_schema, now = Schema.from_arrow(schema), int(time.time() * 1000)
        adds = [
            transaction.AddAction(file.path, file.size, dict(file.partition), now, True, file.stats) for file in added
        ]
        marks = [transaction.Transaction(name, (mark or 0) + 1) for name, mark in read.progress.items()]
        properties = self._properties(commit_id, read.progress, marks)
        if table is None:
            transaction.create_table_with_add_actions(
                self.location.uri,
                delta_schema,
                adds,
                partition_by=list(partition_by),
                configuration=_CONFIGURATION | ({} if self._cuts_log else {_CUTS_LOG: "false"}),
                storage_options=dict(self.location.options),
                commit_properties=properties,
            )
            return 0
        self._add_columns(table, delta_schema, read, commit_id)
        removes = [
            transaction.RemoveAction(
                path,
                True,
                now,
                size=read.files[path]["size_bytes"],
                partition_values={name: str(read.files[path][f"partition.{name}"]) for name in partition_by},
            )
            for path in removed
        ]
        version = int(table.version()) + 1
        table.create_write_transaction(
            [*removes, *adds], "append", delta_schema, list(partition_by), commit_properties=properties
        )
        return version

    def _add_columns(self, table: Any, schema: Any, read: TableVersion, commit_id: str) -> None:
        """Add the columns, and the members of structs, that the table lacks: a commit of files does not."""
        columns = {column.name: column for column in table.schema().fields}
        missing = [column for column in schema.fields if columns.get(column.name) != column]
        if not missing:
            return
        names_read = {field["name"] for field in json.loads(read.schema_json)["fields"]} if read.schema_json else set()
        new_names = {name.lower() for name in columns if name not in names_read}
        if new_names.intersection(field.name.lower() for field in missing):
            raise self._conflict(commit_id, read)
        table.alter.add_columns(missing, commit_properties=self._properties(f"{commit_id} columns"))

    def _find(self, commit_id: str, since: int) -> int | None:
        """Return the version of a commit, even if its response was lost."""
        return next((entry["version"] for entry in self.entries(since) if _id_of(entry) == commit_id), None)

    def _compare(self, commit_id: str, table: Any | None, read: TableVersion, removed: Collection[str]) -> None:
        """Check that ``table`` has the marks and files that a change is based on."""
        if table is None or table.version() == read.number:
            return
        newest = self._read(table, read.progress)
        changed_marks = [name for name, mark in read.progress.items() if newest.progress[name] != mark]
        if changed_marks or any(path not in newest.files for path in removed):
            raise self._conflict(commit_id, read, changed_marks)

    def _conflict(self, commit_id: str, read: TableVersion, marks: Collection[str] = ()) -> SalesforceStreamError:
        """Return the error that names a job which committed after ``read``, if possible one that advanced ``marks``."""
        entries = [entry for entry in self.entries(read.number) if not str(_id_of(entry)).startswith(commit_id)]
        if not entries:
            return self._unusable(f"it has no version after {read.number}, but differs from version {read.number}")
        advancing = [entry for entry in entries if set(marks).intersection(commit_metadata(entry).get("progress", ()))]
        winner = (advancing or entries)[0]
        job = commit_metadata(winner).get("job") or winner.get("operation")
        return PositionConflictError(
            f"Another job committed to {self.location.uri} first: version {winner.get('version')}, {job}. "
            f"The commit of this job was rejected. {_RETRY}"
        )

    def _unusable(self, cause: str) -> LandingError:
        uri, cause = self.location.uri, " ".join(cause.split()).rstrip(".")
        return LandingError(
            f"The Delta log of {uri} cannot be used: {cause}. Check the storage and the files in {uri}/_delta_log, "
            "then run the job again: this is safe even if this run has committed."
        )

    def entries(self, since: int) -> list[dict[str, Any]]:
        """Return the log entries of the versions after ``since``, the newest first."""
        while True:
            table = self._open()
            if table is None or table.version() <= since:
                return []
            number = table.version()
            entries: list[dict[str, Any]] = table.history(number - since)
            # deltalake counts versions down from the table's; a commit in between makes them one too low.
            table.update_incremental()
            if table.version() == number:
                return [entry for entry in entries if entry["version"] > since]

    def _properties(self, commit: str, progress: Iterable[str] = (), marks: list[Any] | None = None) -> Any:
        """Return the ``CommitProperties`` of a commit that is the next version of the opened table, or fails. The log
        need not be read after it."""
        from deltalake.transaction import CommitProperties

        return CommitProperties(self.metadata(commit, progress), max_commit_retries=0, app_transactions=marks)

    def metadata(self, commit: str, progress: Iterable[str] = ()) -> dict[str, Any]:
        return {MADE_BY: {"commit": commit, "job": self._job, "progress": list(progress)}}


_RETRY = "Run the job again. Let one job at a time write a stream's tables (max_active_runs=1, or a pool of one slot)."


def commit_metadata(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = entry.get(MADE_BY)
    return metadata if isinstance(metadata, dict) else {}


def _id_of(entry: Mapping[str, Any]) -> str | None:
    return commit_metadata(entry).get("commit")
