"""Versions of a Delta table that an external document references: restore a version, find the last one with the same
rows, and remove the files of unreferenced ones, or their log."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.delta_table import MADE_BY, DeltaTableLog, TableVersion, commit_metadata

log = logging.getLogger(__name__)

_LOG = "_delta_log"
_LOG_FILE = re.compile(r"(\d{20})\.(.+)")
"""Version and kind of a file of the log: a commit, a checkpoint, or another program's file with values of these."""
_WITH_FILES = re.compile(r"json|checkpoint\..*parquet")
"""Kinds of files of the log that name the files of the table."""
_KEEPS_ROWS = "keeps_rows"
"""Key in a commit's metadata: the commit does not change the rows."""


class TableVersions(DeltaTableLog):
    """Log of a table whose versions are referenced elsewhere."""

    def restore(self, number: int, progress: Iterable[str] = ()) -> TableVersion:
        """Restore the files of a version, by a new commit if the current files differ; return the resulting version.

        :param number: -1 for none.
        :param progress: as for :meth:`version`.
        :raises ConfigurationError: if another writer has changed the table since; nothing was changed.
        """
        newest = self.version(progress=progress)
        if newest.number == number:
            return newest
        target = self.version(number) if number >= 0 else TableVersion(-1, {}, {})
        if newest.files.keys() == target.files.keys():
            return newest
        for entry in self.entries(number):
            if MADE_BY not in entry:
                raise ConfigurationError(
                    f"Another program changed {self.location.uri}: version {entry['version']} is "
                    f"{entry['operation']!r}, which this package did not commit. This package's last version is "
                    f"{number}. Nothing was written. Restore version {number} (deltalake: "
                    f"DeltaTable.restore({number})), or use another output folder."
                )
        log.warning("%s: reverting the commits of a job that ended before it completed.", self.location.uri)
        if number >= 0:
            from deltalake.transaction import CommitProperties

            properties = CommitProperties(custom_metadata=self.metadata(uuid.uuid4().hex))
            self.table().restore(number, commit_properties=properties)
        else:
            self.commit(newest, pa.schema(self.table().schema().to_arrow()), [], list(newest.files))
        return self.version(progress=progress)

    def forget(self, oldest: int, kept: Collection[int]) -> None:
        """Remove the files of versions from ``oldest`` to the first of ``kept`` that no later version has.

        The log names the files that each commit removes, so no version needs to be opened. Files that no commit has
        removed stay: another job may be about to commit them. Files removed by a commit that the log no longer has stay
        too; a vacuum deletes them.

        :param oldest: the first of the versions to forget.
        :param kept: versions to keep readable.
        """
        first, last = min(kept, default=oldest), max(kept, default=oldest)
        removed: set[str] = set()
        for number in range(oldest + 1, first + 1):
            added_there, removed_there = self._commit_files(number) or (set(), set())
            removed = (removed | removed_there) - added_there
        for number in range(first + 1, last + 1) if removed else ():
            commit = self._commit_files(number)
            if commit is None:
                return
            removed -= commit[0]  # added again by a restore
        if not removed:
            return
        live = {_name_of(uri) for uri in self.table().file_uris()}
        filesystem = self.location.filesystem()
        for path in removed:
            if _name_of(path) not in live:
                with suppress(FileNotFoundError):
                    filesystem.delete_file(path)

    def _commit_files(self, number: int) -> tuple[set[str], set[str]] | None:
        """Return the files that the commit of a version added and removed; ``None`` if the log no longer has it."""
        try:
            return _named_files(self.location.filesystem(), f"{_LOG}/{number:020d}.json")
        except FileNotFoundError:
            return None

    def logged_files(self) -> tuple[set[str], set[str]]:
        """Return the paths of all files that the commits and checkpoints of the log add, and of those that they
        remove."""
        filesystem, added, removed = self.location.filesystem(), set[str](), set[str]()
        for _, kind, path in _log_files(filesystem):
            if _WITH_FILES.fullmatch(kind):
                added_there, removed_there = _named_files(filesystem, path)
                added, removed = added | added_there, removed | removed_there
        return added, removed

    def restart_log(self) -> None:
        """Write a checkpoint of the newest version, and remove all files of the log before it: earlier versions can no
        longer be read."""
        table, filesystem = self.table(), self.location.filesystem()
        table.create_checkpoint()
        for number, _, path in _log_files(filesystem):
            if number < table.version():
                filesystem.delete_file(path)

    def compact(self, files: int, size: int) -> int:
        """Merge small files, if there are more than ``files``; return the newest version.

        :param size: bytes from which a file is not small.
        """
        version = self.version()
        if sum(file["size_bytes"] < size for file in version.files.values()) <= files:
            return version.number
        table = self.table()
        table.optimize.compact(target_size=size, max_concurrent_tasks=1, commit_properties=self.keeping_rows())
        return int(table.version())

    def keeping_rows(self) -> Any:
        """Return the ``CommitProperties`` of a commit that does not change the table's rows."""
        from deltalake.transaction import CommitProperties

        metadata = self.metadata(uuid.uuid4().hex)
        metadata[MADE_BY][_KEEPS_ROWS] = True
        return CommitProperties(custom_metadata=metadata)

    def same_rows_through(self, number: int) -> int:
        """Return the last version that certainly has the same rows as ``number``: all commits in between were made with
        :meth:`keeping_rows`."""
        for entry in reversed(self.entries(number)):
            if entry["version"] != number + 1 or not commit_metadata(entry).get(_KEEPS_ROWS):
                break
            number += 1
        return number


def _log_files(filesystem: Any) -> list[tuple[int, str, str]]:
    """Return version, kind and path of each file of a table's log that belongs to a version."""
    files = filesystem.get_file_info(fs.FileSelector(_LOG, allow_not_found=True))
    matches = ((_LOG_FILE.fullmatch(file.base_name), file.path) for file in files)
    return [(int(match[1]), match[2], path) for match, path in matches if match]


def _named_files(filesystem: Any, path: str) -> tuple[set[str], set[str]]:
    """Return the paths of the files that a commit or a checkpoint adds, and of those that it removes."""
    with filesystem.open_input_file(path) as source:
        if path.endswith(".json"):
            actions = [json.loads(line) for line in source.read().splitlines() if line.strip()]
        else:
            actions = pq.ParquetFile(source).read(columns=["add.path", "remove.path"]).to_pylist()
    files = ([action[kind] for action in actions if action.get(kind)] for kind in ("add", "remove"))
    added, removed = ({unquote(file["path"]) for file in each if file["path"]} for each in files)
    return added, removed


def _name_of(path: str) -> str:
    """Return the name of a file without its folder, decoded."""
    return unquote(path).rpartition("/")[2]
