"""Lists of the rows that a refresh has to fetch: JSON lines of ``Id`` and ``sequence``.

A list has the dirty rows and, if requested, the rows whose computed columns must be fetched because an event changed
them. Each run that changes a list writes a new one; a snapshot names it. Without such changed rows, a run reads only
the rows that it has rewritten, and copies the other entries of the former list.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame, JobFiles

Ranges = Sequence[tuple[str | None, str | None]]
"""ID ranges: greater than the first ID, at most the second; ``None``: no bound."""
FOLDER = "_sfstream/replica/dirty"
"""Folder of the lists, below the output folder."""


LISTED = pa.schema([("Id", pa.string()), ("_sequence", pa.int64())])
"""ID of a record, and sequence number of the last event that its row has seen."""
_KEYS = pa.schema([*LISTED, ("is_dirty", pa.bool_())])
_BUFFER = 1 << 20
_WRITTEN = pa.schema([("name", pa.string()), ("dirty", pa.int64()), ("changed", pa.int64())])


class DirtyLists:
    """Lists of dirty rows below one output folder.

    :param base: the output folder, as the engine names it.
    """

    def __init__(self, engine: Engine, base: str) -> None:
        self._engine, self._base = engine, base

    def listed(self, table: TableState) -> Frame | None:
        """Return the rows of the table's list (:data:`LISTED`); ``None`` if the table does not list changed rows."""
        return self._entries(table) if table.computed.on_change else None

    def _entries(self, table: TableState) -> Frame:
        url = f"{self._base}/{table.dirty_list}"
        names = (
            [] if table.dirty_list is None else [n for n in self._engine.files.file_names(url) if n.endswith(".json")]
        )
        return self._engine.text_rows(url, names, ("Id", "sequence")).made(_as_listed, LISTED)

    def written(self, name: str, table: TableState, rows: Frame | None, changed: Sequence[Frame]) -> TableState:
        """Return the table with a new list of its dirty rows, and of the rows that an event changed.

        :param rows: rows of the table; ``None`` if no row can be dirty and no row is changed.
        :param changed: :data:`LISTED` of rows whose computed columns must be fetched.
        """
        keys = [] if rows is None else [rows.select("Id", "_sequence", "_dirty").made(_dirty_keys, _KEYS)]
        return self._written(name, table, [*keys, *(each.made(_keys(is_dirty=False), _KEYS) for each in changed)])

    def updated(
        self, name: str, before: TableState, table: TableState, rewritten: Frame | None, ranges: Ranges
    ) -> TableState:
        """Return the table with its list after some file groups were rewritten. No changed rows are listed.

        :param before: the table before, with the former list.
        :param rewritten: the rewritten rows; ``None`` if none of them is dirty.
        :param ranges: ID ranges of the file groups.
        """
        if not ranges:
            return table
        keys = [] if rewritten is None else [rewritten.select("Id", "_sequence", "_dirty").made(_dirty_keys, _KEYS)]
        if before.dirty_list is not None:
            others = self._entries(before).made(_outside(ranges), LISTED)
            keys.append(others.made(_keys(is_dirty=True), _KEYS))
        return self._written(name, table, keys)

    def _written(self, name: str, table: TableState, keys: Sequence[Frame]) -> TableState:
        if not keys:
            return replace(table, dirty=0, dirty_list=None, computed=replace(table.computed, changed=0))
        place = f"{FOLDER}/{name}/{uuid.uuid4().hex}"
        write = _write_list(self._engine.files.table_location(self._base), place)
        lines = self._engine.shuffled(keys, ("Id",), 1).made(write, _WRITTEN).collected()
        written = {line["name"] for line in lines}
        for other in self._engine.files.file_names(f"{self._base}/{place}"):
            if other not in written:  # written by a task that was lost and run again
                self._engine.files.delete(f"{self._base}/{place}/{other}")
        dirty, also = (sum(line[key] for line in lines) for key in ("dirty", "changed"))
        computed = replace(table.computed, changed=also)
        return replace(table, dirty=dirty, dirty_list=place if dirty + also else None, computed=computed)


def _as_listed(batches: Batches) -> Batches:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column("Id"), batch.column("sequence").cast(pa.int64())], schema=LISTED)


def _dirty_keys(batches: Batches) -> Batches:
    for batch in batches:
        rows = batch.filter(pc.fill_null(batch.column("_dirty"), False))
        yield pa.RecordBatch.from_arrays(rows.columns, schema=_KEYS)


def _keys(*, is_dirty: bool) -> Rows:
    """Return a function for ``mapInArrow`` that marks listed rows as dirty or as changed."""

    def keys(batches: Batches) -> Batches:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.repeat(is_dirty, len(batch))], schema=_KEYS)

    return keys


def _outside(ranges: Ranges) -> Rows:
    """Return a function for ``mapInArrow`` that omits listed rows with an ID in one of the ranges."""

    def outside(batches: Batches) -> Batches:
        for batch in batches:
            inside = pa.repeat(False, len(batch))
            for after, through in ranges:
                follows = True if after is None else pc.greater(batch["Id"], after)
                within = pc.and_(follows, True if through is None else pc.less_equal(batch["Id"], through))
                inside = pc.or_(inside, within)
            yield batch.filter(pc.invert(inside))

    return outside


def _write_list(location: TableLocation, place: str) -> Rows:
    """Return a function for ``mapInArrow`` that writes a part of a list, dirty rows first, and yields its file name."""

    def write(batches: Batches) -> Batches:
        dirty: dict[str, int | None] = {}
        changed: dict[str, int] = {}
        for batch in batches:
            for id_, sequence, is_dirty in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if is_dirty:
                    dirty[id_] = sequence
                elif id_ not in dirty:
                    changed[id_] = max(sequence, changed.get(id_, sequence))
        if not dirty and not changed:
            return
        filesystem, name = location.filesystem(), f"part-{uuid.uuid4().hex}.json"
        filesystem.create_dir(place, recursive=True)
        # The buffer also turns what is written into bytes, the only type that delta-rs takes.
        with pa.BufferedOutputStream(filesystem.open_output_stream(f"{place}/{name}"), _BUFFER) as file:
            for id_, sequence in (*dirty.items(), *changed.items()):
                line = {"Id": id_} if sequence is None else {"Id": id_, "sequence": sequence}
                file.write(f"{json.dumps(line)}\n".encode())
        counts = {"name": name, "dirty": len(dirty), "changed": len(changed)}
        yield pa.RecordBatch.from_pylist([counts], schema=_WRITTEN)

    return write


def remove_lists(files: JobFiles, base: str, table: str, live: Collection[str | None]) -> None:
    """Remove the lists of a table that are not in ``live``.

    :param base: the output folder, as ``files`` names it.
    """
    for folder in files.folders(f"{base}/{FOLDER}/{table}"):
        if f"{FOLDER}/{table}/{folder}" not in live:
            files.delete(f"{base}/{FOLDER}/{table}/{folder}")
