"""Erasure of records from a landing, and the record of an erasure.

:class:`Erasure` is one JSON document below the landing, written before any record is erased. It holds no record ID. It
holds an HMAC-SHA-256 of each, and their random key: once finished, they prove that an ID was erased. Every reader of
the document can also try IDs until one matches, so protect it like the IDs themselves.

An erasure writes new files of a window without the payloads of the records, then a new manifest, then removes the old
files. Each event keeps its row: place, replay ID, event ID, schema ID and time. Positions, counts and the chain of
windows therefore do not change, and checksums are those of the new files. After a kill at any line, a window is in its
old or its new state, possibly with files that no manifest names; the next erasure removes these.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_sfstream.erasure.records import RecordIds, without_records
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest, WindowFile
from airflow_provider_sfstream.landing.pruned import read_pruned
from airflow_provider_sfstream.landing.replaced_files import StoredDocument
from airflow_provider_sfstream.landing.row_groups import SCHEMA, PartWriter
from airflow_provider_sfstream.landing.storage import is_local, list_folder, storage_errors, sync_folder
from airflow_provider_sfstream.salesforce.streams import RunIdentity, window_id_for
from airflow_provider_sfstream.salesforce.topics import can_carry_changes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Erasure:
    """The record of an erasure: the request of a task run, and the result of its last try.

    :param erasure_id: equal for all tries of the run; manifests name it.
    :param salt: key of the hashes, as hex.
    :param hashes: hashes of the IDs, as hex: HMAC-SHA-256 of the 18 characters.
    :param finished_at: ``None`` until a try has searched everything, so also while folders of windows are unfinished.
    :param result: counts, as the operator returns them.
    """

    erasure_id: str
    entity: str
    erased_by: str
    began_at: datetime
    salt: str
    hashes: tuple[str, ...]
    finished_at: datetime | None = None
    result: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, landing: Landing, run: RunIdentity, entity: str, ids: Iterable[str], now: datetime) -> Erasure:
        """Write the record of an erasure of IDs of 18 characters, or continue that of an earlier try of the run."""
        erasure_id = window_id_for(run, "live", b"erasure")
        existing = ERASURE_DOCUMENT.read(landing.filesystem, landing.erasure_path(erasure_id))
        before = existing or cls(erasure_id, entity, str(run), now, secrets.token_hex(32), ())
        key = bytes.fromhex(before.salt)
        hashes = {hmac.new(key, record_id.encode(), hashlib.sha256).hexdigest() for record_id in ids}
        hashes.update(before.hashes)
        erasure = cls(erasure_id, entity, str(run), before.began_at, before.salt, tuple(sorted(hashes)))
        erasure.write(landing)
        return erasure

    def finish(self, landing: Landing, result: dict[str, Any], now: datetime) -> None:
        """Record the result of a try, and that all records are erased, unless windows were not searched."""
        finished_at = None if result["landing"]["unfinished"] else now
        replace(self, finished_at=finished_at, result=result).write(landing)

    def write(self, landing: Landing) -> None:
        """Write the document, which replaces the earlier one."""
        path = landing.erasure_path(self.erasure_id)
        ERASURE_DOCUMENT.write(landing.filesystem, path, self, "The record of an erasure")


ERASURE_DOCUMENT = StoredDocument(
    Erasure,
    format="sfstream-erasure",
    version=1,
    noun="record of an erasure",
    remedy=". Nothing was erased. Move the file to another folder, do not delete it, and run the task again.",
)


class LandingErasure:
    """Erasure of an object's records from a landing: from the streams of its change events, and those of channels.

    :raises ConfigurationError: if a stream is being pruned. Nothing was erased.
    """

    def __init__(self, catalog: LandingCatalog, entity: str) -> None:
        self._catalog = catalog
        self.streams = [stream for stream in catalog.streams() if can_carry_changes(stream.topic, entity)]
        for stream in self.streams:
            pruned = read_pruned(catalog.landing, stream)
            if pruned is not None and pruned.removing:
                raise ConfigurationError(
                    f"{stream}: a prune is running, or was interrupted. Nothing was erased. Wait until the prune ends, "
                    "or run it again; then run the erasure again."
                )

    def run(self, ids: RecordIds, erasure_id: str) -> dict[str, int]:
        """Erase records from all finished windows; return counts.

        ``events`` counts the events that this erasure has changed in all of its tries. ``emptied`` events lost their
        payload in this one; ``shortened`` ones, of several records, lost some of their IDs. ``mentions`` belong to
        other records but name one of these, and stay. ``files`` were rewritten. ``unfinished`` counts the window
        folders that have files but no manifest: they are not searched, since a drain may be writing them.

        :raises LandingError: if the storage could not be read or written. A repeated call completes the erasure.
        """
        counts = Counter[str](dict.fromkeys(("windows", "events", "emptied", "shortened", "files", "mentions"), 0))
        counts.update(streams=len(self.streams), unfinished=0)
        if not self.streams:
            log.warning("%s has no windows to search. Check landing_url.", self._catalog.landing.url)
        for stream in self.streams:
            for window_id in self._catalog.window_ids(stream):
                manifest = self._catalog.read_manifest(stream, window_id)
                if manifest is None:
                    folder = self._catalog.landing.window_folder(stream, window_id)
                    with storage_errors(f"The files of window {window_id} of {stream} could not be listed"):
                        counts["unfinished"] += bool(list_folder(self._catalog.landing.filesystem, folder))
                    continue
                changed_events = _Window(self._catalog, manifest, ids, counts).erase(erasure_id)
                counts.update(windows=bool(changed_events), events=changed_events)
        if counts["unfinished"]:
            log.warning(
                "%d window folders have no manifest and were not searched: drains write to them, or were killed. Run "
                "the erasure again when no drain is running. No run will finish the folders that have no manifest then;"
                " remove them by hand.",
                counts["unfinished"],
            )
        return dict(counts)


class _Window:
    """One window, and the counts of the erasure."""

    def __init__(self, catalog: LandingCatalog, manifest: Manifest, ids: RecordIds, counts: Counter[str]) -> None:
        self._catalog, self._manifest, self._ids, self._counts = catalog, manifest, ids, counts
        self._landing, self._filesystem = catalog.landing, catalog.landing.filesystem
        self._folder = catalog.landing.window_folder(manifest.stream, manifest.window.window_id)
        self._schemas: dict[str, str | None] = {}
        self._changed_events = 0

    def erase(self, erasure_id: str) -> int:
        """Erase records, and remove the files from the folder that no manifest names; return the number of events that
        this erasure has changed."""
        manifest = self._manifest
        changed_events = manifest.erased.get(erasure_id, 0)
        with storage_errors(f"Window {manifest.window.window_id} of {manifest.stream} could not be rewritten"):
            files = tuple(map(self._file, manifest.files))
            if self._changed_events:
                if is_local(self._filesystem):
                    sync_folder(self._folder)
                changed_events += self._changed_events
                manifest = replace(manifest, files=files, erased={**manifest.erased, erasure_id: changed_events})
                self._catalog.replace_manifest(self._manifest, manifest)
        self._catalog.remove_unlisted(manifest)
        return changed_events

    def _file(self, file: WindowFile) -> WindowFile:
        """Write a file without the records and return it; return ``file`` itself if it contains none of them."""
        with self._filesystem.open(f"{self._folder}/{file.name}", "rb") as source:
            part = pq.ParquetFile(source)
            changes = {number: self._changes(part, number) for number in range(part.num_row_groups)}
            if not any(changes.values()):
                return file
            writer = PartWriter(self._filesystem, self._folder, f"erased-{secrets.token_hex(8)}", sys.maxsize)
            try:
                for number, payloads in changes.items():
                    writer.write(_with_payloads(part.read_row_group(number), payloads))
                (written,) = writer.finish()
            except BaseException:
                writer.abandon()
                raise
        self._changed_events += sum(map(len, changes.values()))
        self._counts["files"] += 1
        return written

    def _changes(self, part: Any, number: int) -> dict[int, bytes]:
        """Return the new payloads of a row group, by row, for the rows that change."""
        new_payloads: dict[int, bytes] = {}
        columns = part.read_row_group(number, columns=["schema_id", "payload"])
        if not any(self._ids.are_in(chunk.buffers()[2] or b"") for chunk in columns["payload"].chunks):
            return new_payloads
        for row, payload in enumerate(columns["payload"]):
            payload = payload.as_py()
            if not self._ids.are_in(payload):
                continue
            schema = self._schema(columns["schema_id"][row].as_py())
            new_payload = without_records(payload, self._ids, self._manifest.payload_encoding, schema)
            if new_payload is None:
                self._counts["mentions"] += 1
            else:
                new_payloads[row] = new_payload
                self._counts["shortened" if new_payload else "emptied"] += 1
        return new_payloads

    def _schema(self, schema_id: str) -> str | None:
        if schema_id not in self._schemas:
            self._schemas[schema_id] = None
            with suppress(FileNotFoundError):
                path = self._landing.schema_path(self._manifest.stream, schema_id)
                self._schemas[schema_id] = self._filesystem.cat_file(path).decode()
        return self._schemas[schema_id]


def _with_payloads(rows: pa.Table, new_payloads: dict[int, bytes]) -> pa.Table:
    """Return a row group with the columns of :data:`SCHEMA` and the new payloads in the changed rows."""
    if new_payloads:
        payloads = rows["payload"].to_pylist()
        for row, payload in new_payloads.items():
            payloads[row] = payload
        rows = rows.set_column(rows.schema.get_field_index("payload"), "payload", pa.array(payloads, pa.binary()))
    every_column = pa.concat_tables([SCHEMA.empty_table(), rows], promote_options="default")
    return every_column.select(SCHEMA.names).cast(SCHEMA)
