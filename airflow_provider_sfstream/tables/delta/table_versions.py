"""Versions of a Delta table that an external document references: restore a version, find the last one with the same
rows, and remove the files of unreferenced ones."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.delta_table import MADE_BY, DeltaTableLog, TableVersion, commit_metadata

log = logging.getLogger(__name__)

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
            with self.location.filesystem().open_input_stream(f"_delta_log/{number:020d}.json") as stream:
                lines = stream.read().splitlines()
        except FileNotFoundError:
            return None
        actions = [json.loads(line) for line in lines if line.strip()]
        added = {unquote(action["add"]["path"]) for action in actions if "add" in action}
        return added, {unquote(action["remove"]["path"]) for action in actions if "remove" in action}

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


def _name_of(path: str) -> str:
    """Return the name of a file without its folder, decoded."""
    return unquote(path).rpartition("/")[2]
