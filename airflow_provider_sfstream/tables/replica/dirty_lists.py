"""The rows of a table that a refresh is to fetch, listed for it: JSON lines of ``Id`` and ``sequence``.

A list has the dirty rows and, where that is wanted, those whose computed columns are to be fetched because an event
changed them. It is written anew in each run that changes it; a snapshot names it.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace

from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame, JobFiles

FOLDER = "_sfstream/replica/dirty"
"""Below the output folder."""


class DirtyLists:
    """The lists below one output folder.

    :param base: the output folder, as the engine names it.
    """

    def __init__(self, engine: Engine, base: str) -> None:
        self._engine, self._base = engine, base

    def listed(self, table: TableState) -> Frame | None:
        """Return the rows that the table's list names (``Id`` and ``sequence``), if it names changed rows too."""
        if not table.computed.on_change:
            return None
        return self._engine.listed_rows(None if table.dirty_list is None else f"{self._base}/{table.dirty_list}")

    def written(self, name: str, table: TableState, rows: Frame | None, changed: Frame | None) -> TableState:
        """Return the table with the list of its dirty rows, and of those that an event changed.

        :param rows: of the table; ``None`` if none may be dirty and none is changed.
        :param changed: ids and sequences of rows whose computed columns are to be fetched, ``None`` if they are not.
        """
        if rows is None:
            return replace(table, dirty=0, dirty_list=None, computed=replace(table.computed, changed=0))
        place = f"{FOLDER}/{name}/{uuid.uuid4().hex}"
        dirty, also = self._engine.write_list(
            f"{self._base}/{place}", rows.select("Id", "_sequence", "_dirty"), changed
        )
        computed = replace(table.computed, changed=also)
        return replace(table, dirty=dirty, dirty_list=place if dirty + also else None, computed=computed)


def remove_lists(files: JobFiles, base: str, table: str, live: Collection[str | None]) -> None:
    """Remove the lists of a table that are not in ``live``.

    :param base: the output folder, as ``files`` names it.
    """
    for folder in files.folders(f"{base}/{FOLDER}/{table}"):
        if f"{FOLDER}/{table}/{folder}" not in live:
            files.delete(f"{base}/{FOLDER}/{table}/{folder}")
