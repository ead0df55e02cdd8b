"""Lists of the rows that a refresh has to fetch: JSON lines of ``Id`` and ``sequence``.

A list has the dirty rows and, if requested, the rows whose computed columns must be fetched because an event changed
them, marked as ``changed``. Each run that changes a list writes a new one; a snapshot names it. A run reads only the
rows that it has rewritten, and copies the other entries of the former list.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.replica.rewritten_files import RewriteResult
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.arrow_rows import is_between
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame, JobFiles

Ranges = Sequence[tuple[str | None, str | None]]
"""ID ranges: greater than the first ID, at most the second; ``None``: no bound."""
FOLDER = "_sfstream/replica/dirty"
"""Folder of the lists, below the output folder."""


_ENTRIES = pa.schema([("Id", pa.string()), ("_sequence", pa.int64()), ("is_dirty", pa.bool_())])
"""ID of a record, sequence number of the last event that its row has seen, and whether the row is dirty."""
_BUFFER = 1 << 20
_WRITTEN = pa.schema([("name", pa.string()), ("dirty", pa.int64()), ("changed", pa.int64())])


class DirtyLists:
    """Lists of dirty rows below one output folder.

    :param read: returns the rows of some files of a table, or of all.
    """

    def __init__(
        self, engine: Engine, base: str, read: Callable[[str, TableState, Sequence[str] | None], Frame]
    ) -> None:
        self._engine, self._base, self._read = engine, base, read

    def update(
        self,
        name: str,
        before: TableState,
        table: TableState,
        rewritten: RewriteResult,
        *,
        changed_after: int | None = None,
        changed_since: int | None = None,
    ) -> TableState:
        """Return the table with its list after some file groups were rewritten.

        :param before: the table before, with the former list.
        :param changed_after: sequence number of the last event that was applied before; rewritten rows that have seen a
            later one are listed as changed. ``None``: no row was changed by an event.
        :param changed_since: former changed rows are omitted if their last event is before this sequence number.
        """
        on_change = table.computed.on_change
        if not rewritten.ranges and changed_since is None and before.computed.on_change == on_change:
            return table
        parts: list[Frame] = []
        if rewritten.dirty or (on_change and changed_after is not None):
            select_new = _new_entries(changed_after if on_change else None)
            rows = self._read(name, table, rewritten.files)
            parts.append(rows.select("Id", "_sequence", "_dirty").map_batches(select_new, _ENTRIES))
        if before.dirty_list is not None:
            url = f"{self._base}/{before.dirty_list}"
            names = [name for name in self._engine.files.file_names(url) if name.endswith(".json")]
            entries = self._engine.text_rows(url, names, ("Id", "sequence", "changed"))
            select_former = _former_entries(rewritten.ranges, (changed_since or 0) if on_change else None)
            parts.append(entries.map_batches(select_former, _ENTRIES))
        if not parts:
            return replace(table, dirty=0, dirty_list=None, computed=replace(table.computed, changed=0))
        folder = f"{FOLDER}/{name}/{uuid.uuid4().hex}"
        write = _write_list(self._engine.files.table_location(self._base), folder)
        lines = self._engine.shuffle(parts, ("Id",), 1).map_batches(write, _WRITTEN).collect()
        written_names = {line["name"] for line in lines}
        for file_name in self._engine.files.file_names(f"{self._base}/{folder}"):
            if file_name not in written_names:  # written by a task that was lost and run again
                self._engine.files.delete(f"{self._base}/{folder}/{file_name}")
        dirty, changed = (sum(line[key] for line in lines) for key in ("dirty", "changed"))
        computed = replace(table.computed, changed=changed)
        return replace(table, dirty=dirty, dirty_list=folder if dirty + changed else None, computed=computed)


def _new_entries(changed_after: int | None) -> Rows:
    """Return a function for ``mapInArrow`` that yields the dirty rows, and those that a later event changed."""

    def entries(batches: Batches) -> Batches:
        for batch in batches:
            is_dirty = pc.fill_null(batch["_dirty"], False)
            is_changed = False if changed_after is None else pc.greater(batch["_sequence"], changed_after)
            rows = pa.RecordBatch.from_arrays([batch["Id"], batch["_sequence"], is_dirty], schema=_ENTRIES)
            yield rows.filter(pc.or_(is_dirty, is_changed))

    return entries


def _former_entries(ranges: Ranges, changed_since: int | None) -> Rows:
    """Return a function for ``mapInArrow`` that yields the entries of a list to copy: dirty rows outside of
    the rewritten ID ranges, and changed rows, unless ``changed_since`` is ``None``."""

    def entries(batches: Batches) -> Batches:
        for batch in batches:
            is_rewritten = pa.repeat(False, len(batch))
            for after, through in ranges:
                is_rewritten = pc.or_(is_rewritten, is_between(batch["Id"], after, through))
            sequences = batch["sequence"].cast(pa.int64())
            is_changed = batch["changed"].is_valid()
            is_recent = False if changed_since is None else pc.greater_equal(sequences, changed_since)
            retained = pc.if_else(is_changed, is_recent, pc.invert(is_rewritten))
            arrays = [batch["Id"], sequences, pc.invert(is_changed)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_ENTRIES).filter(retained)

    return entries


def _write_list(location: TableLocation, folder: str) -> Rows:
    """Return a function for ``mapInArrow`` that writes a part of a list, dirty rows first, and yields its file name."""

    def write(batches: Batches) -> Batches:
        dirty: dict[str, int | None] = {}
        changed: dict[str, int | None] = {}
        for batch in batches:
            for id_, sequence, is_dirty in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                # A changed row can be in the former list and among the rewritten rows: use its later sequence number.
                sequences = dirty if is_dirty else changed
                sequences[id_] = max(
                    (number for number in (sequence, sequences.get(id_)) if number is not None), default=None
                )
        changed = {id_: sequence for id_, sequence in changed.items() if id_ not in dirty}
        if not dirty and not changed:
            return
        filesystem, name = location.filesystem(), f"{uuid.uuid4().hex}.json"
        filesystem.create_dir(folder, recursive=True)
        # The buffer also turns what is written into bytes, the only type that delta-rs takes.
        with pa.BufferedOutputStream(filesystem.open_output_stream(f"{folder}/{name}"), _BUFFER) as file:
            for entries, mark in ((dirty, {}), (changed, {"changed": "true"})):
                for id_, sequence in entries.items():
                    line = {"Id": id_} if sequence is None else {"Id": id_, "sequence": sequence}
                    file.write(f"{json.dumps(line | mark)}\n".encode())
        counts = {"name": name, "dirty": len(dirty), "changed": len(changed)}
        yield pa.RecordBatch.from_pylist([counts], schema=_WRITTEN)

    return write


def remove_lists(files: JobFiles, base: str, table: str, live: Collection[str | None]) -> None:
    """Remove the lists of a table that are not in ``live``."""
    for folder in files.folders(f"{base}/{FOLDER}/{table}"):
        if f"{FOLDER}/{table}/{folder}" not in live:
            files.delete(f"{base}/{FOLDER}/{table}/{folder}")
