"""Taking records out of a landed window: new files without their payloads, then a new manifest, then the old files go.

Each event keeps its row: place, replay ID, event id, schema id and time. So positions, counts and the chain of windows
stay as they were, and checksums are those of the new files. Killed at any line, a window is as it was or as it is to
be, beside files that no manifest names; the next erasure removes these.
"""

from __future__ import annotations

import logging
import secrets
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.columns import SCHEMA
from airflow_provider_sfstream.landing.manifest import Manifest, WindowFile
from airflow_provider_sfstream.landing.parts import PartWriter
from airflow_provider_sfstream.landing.storage import is_local, storage_errors, sync_folder
from airflow_provider_sfstream.privacy.record_ids import RecordIds, without_records

log = logging.getLogger(__name__)


@dataclass
class WindowErasure:
    """What was done to a window: ``emptied`` events lost their payload, ``shortened`` ones, of several records, some of
    their ids; ``mentions`` stay, which name one of the records without being of it."""

    emptied: int = 0
    shortened: int = 0
    mentions: int = 0
    files: int = 0


def erase_from_window(catalog: LandingCatalog, manifest: Manifest, ids: RecordIds, erasure_id: str) -> WindowErasure:
    """Erase records from a window, and remove what no manifest names from its folder.

    :raises LandingError: if something could not be read or written. Doing it again completes it.
    """
    done = WindowErasure()
    with storage_errors(f"Window {manifest.window.window_id} of {manifest.stream} could not be rewritten"):
        window = _Window(catalog, manifest, ids, done)
        files = tuple(map(window.file, manifest.files))
        changed = done.emptied + done.shortened
        if changed:
            if is_local(catalog.landing.filesystem):
                sync_folder(window.folder)
            erased = {**manifest.erased, erasure_id: manifest.erased.get(erasure_id, 0) + changed}
            before, manifest = manifest, replace(manifest, files=files, erased=erased)
            catalog.replace_manifest(before, manifest)
    catalog.remove_unlisted(manifest)
    return done


class _Window:
    """The files of one window."""

    def __init__(self, catalog: LandingCatalog, manifest: Manifest, ids: RecordIds, done: WindowErasure) -> None:
        landing, self._manifest, self._ids, self._done = catalog.landing, manifest, ids, done
        self._landing, self._filesystem = landing, landing.filesystem
        self.folder = landing.window_folder(manifest.stream, manifest.window.window_id)
        self._schemas: dict[str, str | None] = {}

    def file(self, file: WindowFile) -> WindowFile:
        """Return the file that stands for ``file`` from now on: itself if none of the records is in it."""
        with self._filesystem.open(f"{self.folder}/{file.name}", "rb") as opened:
            part = pq.ParquetFile(opened)
            changes = {number: self._changes(part, number) for number in range(part.num_row_groups)}
            if not any(changes.values()):
                return file
            writer = PartWriter(self._filesystem, self.folder, f"erased-{secrets.token_hex(8)}", sys.maxsize)
            try:
                for number, changed in changes.items():
                    writer.write(_Rows(part.read_row_group(number), changed))  # type: ignore[arg-type]
                (written,) = writer.finish()
            except BaseException:
                writer.abandon()
                raise
        self._done.files += 1
        return written

    def _changes(self, part: Any, number: int) -> dict[int, bytes]:
        """Return what is left of the payloads of a row group that change, by row."""
        found: dict[int, bytes] = {}
        columns = part.read_row_group(number, columns=["schema_id", "payload"])
        if not any(self._ids.are_in(chunk.buffers()[2] or b"") for chunk in columns["payload"].chunks):
            return found
        for row, payload in enumerate(columns["payload"]):
            payload = payload.as_py()
            if not self._ids.are_in(payload):
                continue
            schema = self._schema(columns["schema_id"][row].as_py())
            left = without_records(payload, self._ids, self._manifest.payload_encoding, schema)
            if left is None:
                self._done.mentions += 1
            else:
                found[row] = left
                self._done.shortened += bool(left)
                self._done.emptied += not left
        return found

    def _schema(self, schema_id: str) -> str | None:
        if schema_id not in self._schemas:
            self._schemas[schema_id] = None
            with suppress(FileNotFoundError):
                path = self._landing.schema_path(self._manifest.stream, schema_id)
                self._schemas[schema_id] = self._filesystem.cat_file(path).decode()
        return self._schemas[schema_id]


class _Rows:
    """A row group as it is written again, for :class:`PartWriter`."""

    def __init__(self, rows: pa.Table, changed: dict[int, bytes]) -> None:
        payloads = rows["payload"].to_pylist() if changed else []
        for row, left in changed.items():
            payloads[row] = left
        if changed:
            place = rows.schema.get_field_index("payload")
            rows = rows.set_column(place, "payload", pa.array(payloads, pa.binary()))
        self._rows = rows.select(SCHEMA.names).cast(SCHEMA)

    def __len__(self) -> int:
        return len(self._rows)

    def table(self) -> pa.Table:
        return self._rows
