"""Lists of the rows that a refresh has to fetch: JSON lines of ``Id`` and ``sequence``.

A list has the dirty rows and, if requested, the rows whose computed columns must be fetched because an event changed
them, marked as ``changed``. Each run that changes a list writes a new one; a snapshot names it. A run reads only the
rows that it has rewritten, and copies the other entries of the former list.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Container, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.arrow_rows import is_between
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.runner.engine import JobFiles

Ranges = Sequence[tuple[str | None, str | None]]
"""ID ranges: greater than the first ID, at most the second; ``None``: no bound."""
FOLDER = "_sfstream/replica/dirty"
"""Folder of the lists, below the output folder."""
ENTRIES = pa.schema([("Id", pa.string()), ("_sequence", pa.int64()), ("is_dirty", pa.bool_())])
"""ID of a record, sequence number of the last event that its row has seen, and whether the row is dirty."""
_BUFFER = 1 << 20
LIST_FILES = pa.schema([("name", pa.string()), ("dirty", pa.int64()), ("changed", pa.int64())])
"""File of a list, and its numbers of dirty and of changed rows."""


def new_entries(changed_after: int | None) -> Rows:
    """Return a function for ``mapInArrow`` that yields the dirty rows, and those that a later event changed."""

    def entries(batches: Batches) -> Batches:
        for batch in batches:
            is_dirty = pc.fill_null(batch["_dirty"], False)
            is_changed = False if changed_after is None else pc.greater(batch["_sequence"], changed_after)
            rows = pa.RecordBatch.from_arrays([batch["Id"], batch["_sequence"], is_dirty], schema=ENTRIES)
            yield rows.filter(pc.or_(is_dirty, is_changed))

    return entries


def former_entries(ranges: Ranges, changed_since: int | None) -> Rows:
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
            yield pa.RecordBatch.from_arrays(arrays, schema=ENTRIES).filter(retained)

    return entries


def write_list(location: TableLocation, folder: str) -> Rows:
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
        yield pa.RecordBatch.from_pylist([counts], schema=LIST_FILES)

    return write


def remaining_list(
    files: JobFiles, base: str, name: str, table: TableState, erased: Container[str]
) -> tuple[TableState, int]:
    """Return a table with its list of rows to fetch without erased records, and the number of removed rows."""
    if table.dirty_list is None:
        return table, 0
    folder = f"{base}/{table.dirty_list}"
    file_names = [each for each in files.file_names(folder) if each.endswith(".json")]
    lines = [line for each in file_names for line in files.read_text(f"{folder}/{each}").splitlines()]
    remaining = [line for line in lines if json.loads(line)["Id"] not in erased]
    if len(remaining) == len(lines):
        return table, 0
    changed = sum("changed" in json.loads(line) for line in remaining)
    list_path = f"{FOLDER}/{name}/{uuid.uuid4().hex}" if remaining else None
    if list_path is not None:
        files.replace_text(f"{base}/{list_path}/{file_names[0]}", "".join(f"{line}\n" for line in remaining))
    computed, dirty = replace(table.computed, changed=changed), len(remaining) - changed
    return replace(table, dirty=dirty, dirty_list=list_path, computed=computed), len(lines) - len(remaining)


def remove_lists(files: JobFiles, base: str, table: str, live: Collection[str | None]) -> None:
    """Remove the lists of a table that are not in ``live``."""
    for folder in files.folders(f"{base}/{FOLDER}/{table}"):
        if f"{FOLDER}/{table}/{folder}" not in live:
            files.delete(f"{base}/{FOLDER}/{table}/{folder}")
