"""The versions of a Delta table that a document elsewhere names: back to one, on to one with the same rows, and without
those that nothing names any longer."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.delta_table import MADE_BY, DeltaTableLog, TableVersion, said_in

log = logging.getLogger(__name__)

_KEEPS_ROWS = "keeps_rows"
"""In what a commit says of itself: it changes nothing about the rows."""


class TableVersions(DeltaTableLog):
    """The log of a table whose versions are named elsewhere."""

    def restore(self, number: int, progress: Iterable[str] = ()) -> TableVersion:
        """Make the table have again the files that it had at a version, by a commit of its own if it has others; return
        the version that it has then.

        :param number: -1 for none.
        :param progress: as for :meth:`version`.
        :raises ConfigurationError: if somebody else has changed it since; nothing was changed.
        """
        newest = self.version(progress=progress)
        if newest.number == number:
            return newest
        wanted = self.version(number) if number >= 0 else TableVersion(-1, {}, {})
        if newest.files.keys() == wanted.files.keys():
            return newest
        for entry in self.entries(number):
            if MADE_BY not in entry:
                raise ConfigurationError(
                    f"{self.location.uri} was changed by others: version {entry['version']} is "
                    f"{entry['operation']!r}, and not of this package, which had left it at version {number}. Restore "
                    f"that version (deltalake: DeltaTable.restore({number})), or give another output folder. Nothing "
                    "was written."
                )
        log.warning("%s: taking back what a job that ended too early has left.", self.location.uri)
        if number >= 0:
            from deltalake.transaction import CommitProperties

            properties = CommitProperties(custom_metadata=self.said(uuid.uuid4().hex))
            self.table().restore(number, commit_properties=properties)
        else:
            self.commit(newest, pa.schema(self.table().schema().to_arrow()), [], list(newest.files))
        return self.version(progress=progress)

    def forget(self, oldest: int, kept: Collection[int]) -> None:
        """Remove the files of versions that neither the newest version nor one of ``kept`` has.

        Files that no version names stay, and so do those of versions after ``kept``: another job may be at work.

        :param oldest: the first of the versions to forget.
        """
        old: set[str] = set()
        for number in set(range(oldest, max(kept, default=oldest))) - set(kept):
            with suppress(ConfigurationError):  # Delta has removed its old log: a vacuum removes the files
                old.update(self.version(number).files)
        if not old:
            return
        live = set(self.version().files).union(*(self.version(number).files for number in kept))
        filesystem = self.location.filesystem()
        for path in old - live:
            with suppress(FileNotFoundError):
                filesystem.delete_file(path)

    def compact(self, files: int, size: int) -> int:
        """Merge small files, if there are more than so many; return the newest version.

        :param size: bytes of a file that is small no longer.
        """
        version = self.version()
        if sum(each["size_bytes"] < size for each in version.files.values()) <= files:
            return version.number
        table = self.table()
        table.optimize.compact(target_size=size, max_concurrent_tasks=1, commit_properties=self.keeping_rows())
        return int(table.version())

    def keeping_rows(self) -> Any:
        """Return the ``CommitProperties`` of a commit that changes nothing about the table's rows."""
        from deltalake.transaction import CommitProperties

        said = self.said(uuid.uuid4().hex)
        said[MADE_BY][_KEEPS_ROWS] = True
        return CommitProperties(custom_metadata=said)

    def same_rows_through(self, number: int) -> int:
        """Return the last version that certainly has the rows of another: the commits after that one, up to this, were
        all made with :meth:`keeping_rows`."""
        for entry in reversed(self.entries(number)):
            if entry["version"] != number + 1 or not said_in(entry).get(_KEEPS_ROWS):
                break
            number += 1
        return number
