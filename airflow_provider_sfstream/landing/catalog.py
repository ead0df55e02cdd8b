"""Windows of a landing: their manifests, read by path, checked against their files. Only erasures change a manifest."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from typing import Any

import pyarrow.parquet as pq

from airflow_provider_sfstream.exceptions import LandingError, ManifestError
from airflow_provider_sfstream.landing.backfill_index import BackfillIndex
from airflow_provider_sfstream.landing.location import MANIFEST, PRUNED, Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.pruned import PRUNED_DOCUMENT, read_pruned
from airflow_provider_sfstream.landing.storage import (
    abort_uploads,
    list_folder,
    newest_days,
    read_if_there,
    replace_file,
    storage_errors,
    write_once,
)
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import Api

log = logging.getLogger(__name__)


class LandingCatalog:
    """Reader and writer of the manifests of one landing.

    Guarantee: a window has one manifest, however many tries write it; the content of its first writer stays.
    ``backfills`` is the index of the backfill windows by time. Every method raises :class:`LandingError` if the storage
    cannot be used, and :class:`ManifestError` if a manifest that it reads is broken.
    """

    def __init__(self, landing: Landing) -> None:
        self.landing = landing
        self.backfills = BackfillIndex(landing)
        self._filesystem: Any = landing.filesystem

    def write_manifest(self, manifest: Manifest) -> Manifest:
        """Create the window by its manifest; return ``manifest``, or the one that an earlier try had written."""
        window_id = manifest.window.window_id
        path = self.landing.manifest_path(manifest.stream, window_id)
        if manifest.window.kind == "backfill":
            # Before the manifest: a kill between the two leaves an entry without a window, which searches ignore.
            self.backfills.add(manifest)
        with storage_errors(f"The manifest of window {window_id} of {manifest.stream} could not be written"):
            written = write_once(self._filesystem, path, manifest.to_json().encode())
        if written:
            return manifest
        existing = self.read_manifest(manifest.stream, window_id)
        if existing is None:
            raise LandingError(
                f"The manifest of window {window_id} of {manifest.stream} was removed while this run tried to write it."
                " The stored position was not moved. Run the task again."
            )
        log.info("Window %s was already finished by %s; its manifest remains valid.", window_id, existing.window.run)
        return existing

    def replace_manifest(self, before: Manifest, manifest: Manifest) -> None:
        """Replace the manifest of a window. Only for erasures, which have already written the new files.

        :raises LandingError: if the manifest is no longer ``before``, or it could not be written.
        """
        window_id = manifest.window.window_id
        if self.read_manifest(manifest.stream, window_id) != before:
            raise LandingError(
                f"The manifest of window {window_id} of {manifest.stream} was changed or removed by another task while "
                "this one wrote new files. This task did not change the manifest or the files that it lists. Run the "
                "task again."
            )
        with storage_errors(f"The manifest of window {window_id} of {manifest.stream} could not be replaced"):
            path = self.landing.manifest_path(manifest.stream, window_id)
            replace_file(self._filesystem, path, manifest.to_json().encode())

    def read_manifest(self, stream: Stream, window_id: str) -> Manifest | None:
        """Return the manifest of a window, ``None`` if the window does not exist. Never lists a folder.

        :raises ManifestError: also if the manifest belongs to another stream or window.
        """
        url = self.landing.manifest_url(stream, window_id)
        manifest = self._read(url)
        if manifest is not None and (manifest.stream, manifest.window.window_id) != (stream, window_id):
            raise ManifestError(
                f"{url} contains the manifest of window {manifest.window.window_id} of {manifest.stream}. The file was "
                "copied or moved; a manifest must remain where the drain wrote it. The stored position was not moved."
            )
        return manifest

    def read_manifest_url(self, url: str) -> Manifest:
        """Return the manifest at ``url``, which must be below this landing.

        :raises ManifestError: also if it does not exist.
        """
        manifest = self._read(url)
        if manifest is None:
            cause = f"or its manifest was removed{self._pruned_of(url)}"
            raise ManifestError(f"{url} does not exist: the window was never finished, {cause}.")
        return manifest

    def verify(self, manifest: Manifest, *, sha256: bool = False) -> None:
        """Check the size of every file of the window and, if requested, its SHA-256 (reads all of it).

        :raises LandingError: if a file is missing or differs from the manifest; it names the first one.
        """
        folder = self._folder_of(manifest)
        for file in manifest.files:
            path = f"{folder}/{file.name}"
            with storage_errors(f"{manifest.url_of(file.name)} could not be read", "Restore it, or check the storage"):
                size = self._filesystem.size(path)
                digest = self._sha256(path) if sha256 and size == file.bytes else file.sha256
            if size != file.bytes:
                change = f"{size} bytes now, {file.bytes} in the manifest"
            elif digest != file.sha256:
                change = f"SHA-256 {digest} now, {file.sha256} in the manifest"
            else:
                continue
            raise LandingError(
                f"{manifest.url_of(file.name)} has changed since it was written ({change}). Restore it, or drain the "
                "window again from a replay ID before it."
            )

    def replay_ids(self, manifest: Manifest) -> list[bytes]:
        """Return the replay IDs of the window's events, in order. Reads one column of its files."""
        folder, replay_ids = self._folder_of(manifest), []
        for file in manifest.files:
            with storage_errors(f"{manifest.url_of(file.name)} could not be read", "Restore it, or check the storage"):
                part = pq.read_table(f"{folder}/{file.name}", columns=["replay_id"], filesystem=self._filesystem)
            replay_ids += part["replay_id"].to_pylist()
        return replay_ids

    def remove_unlisted(self, manifest: Manifest) -> int:
        """Remove the remains of dead tries from the window's folder; return the number of files and uploads."""
        listed_names = {MANIFEST, *(file.name for file in manifest.files)}
        folder = self._folder_of(manifest)
        with storage_errors(f"Files of dead tries beside {manifest.window.manifest_url} could not be removed"):
            unlisted_names = [name for name in self._list(folder) if name not in listed_names]
            for name in unlisted_names:
                with suppress(FileNotFoundError):  # its own try removed it at the same time
                    self._filesystem.rm_file(f"{folder}/{name}")
            return len(unlisted_names) + abort_uploads(self._filesystem, folder)

    def windows_between(
        self, stream: Stream, start_day: date, end_day: date, *, without: Iterable[str] = ()
    ) -> list[Manifest]:
        """Return the finished windows of runs that were due from ``start_day`` to ``end_day`` (UTC, both included).

        In the order of their IDs, which is the order of their runs. Lists folders, so that the newest windows may be
        missing on a storage with delayed listings; :meth:`chain` never misses one. Skips the windows in ``without``.
        """
        manifests, skipped = [], frozenset(without)
        for offset in range((end_day - start_day).days + 1):
            folder = self.landing.day_folder(stream, start_day + timedelta(days=offset))
            with storage_errors(f"The windows of {stream} could not be listed"):
                ids = set(self._list(folder))
            for window_id in sorted(ids - skipped):
                manifest = self.read_manifest(stream, window_id)
                if manifest is not None:
                    manifests.append(manifest)
        return manifests

    def first_day(self, stream: Stream) -> date | None:
        """Return a day (UTC) before which no window's run was due, ``None`` if there is no window. Lists folders."""
        folder, parts = self.landing.windows_folder(stream), []
        with storage_errors(f"The windows of {stream} could not be listed"):
            for _ in ("year", "month", "day"):
                numbers = [name for name in self._list(folder) if name.isdecimal()]
                if not numbers:
                    break
                parts.append(min(numbers))
                folder = f"{folder}/{min(numbers)}"
        if not parts:
            return None
        year, month, day = (int(number) for number in (*parts, "1", "1")[:3])
        return date(year, month, day)

    def streams_of(self, api: Api, topic: str, subscription: str) -> list[Stream]:
        """Return the streams of a topic and consumer that have windows here: one for each org. Lists folders."""
        with storage_errors(f"The orgs of {topic} could not be listed"):
            streams = [Stream(org, api, topic, subscription) for org in self._list(self.landing.base)]
            return [stream for stream in streams if self._list(self.landing.windows_folder(stream))]

    def streams(self) -> list[Stream]:
        """Return every stream that has windows here, finished or not. Lists folders, and reads the newest manifest of
        each stream."""
        folders = [self.landing.base]
        with storage_errors(f"The streams of {self.landing.url} could not be listed"):
            for _ in ("org", "api", "topic", "subscription"):
                folders = self._subfolders(folders)
            streams = (self._stream_of(folder) for folder in folders)
            return [stream for stream in streams if stream is not None]

    def _stream_of(self, folder: str) -> Stream | None:
        """Return the stream of a folder that has windows: from the newest manifest, or from the folder's name."""
        stream = None
        for path in self._window_folders(f"{folder}/windows"):
            manifest = self._read(f"{self.landing.url}{path.removeprefix(self.landing.base)}/{MANIFEST}")
            if manifest is not None:
                return manifest.stream
            stream = Stream.from_path(folder.removeprefix(f"{self.landing.base}/"))
        return stream

    def _subfolders(self, folders: Iterable[str]) -> list[str]:
        return [f"{folder}/{name}" for folder in folders for name in sorted(self._list(folder))]

    def newest_live(self, stream: Stream) -> Manifest | None:
        """Return the live window of the run that was due last, ``None`` if there is none.

        Lists the folders of days from the last one back. It also reads the manifests of backfill windows whose runs
        were due later, and no others.
        """
        for window_id in self.window_ids(stream):
            manifest = self.read_manifest(stream, window_id)
            if manifest is not None and manifest.window.kind == "live":
                return manifest
        return None

    def window_ids(self, stream: Stream) -> Iterator[str]:
        """Yield the IDs of all window folders, starting with the run that was due last. Lists folders."""
        with storage_errors(f"The windows of {stream} could not be listed"):
            for path in self._window_folders(self.landing.windows_folder(stream)):
                yield path.rpartition("/")[2]

    def _window_folders(self, folder: str) -> Iterator[str]:
        """Yield the folders of all windows in the windows folder of a stream, as :meth:`window_ids`."""
        for _, day in newest_days(self._filesystem, folder):
            yield from (f"{day}/{name}" for name in sorted(self._list(day), reverse=True))

    def chain(self, stream: Stream, head_window_id: str) -> Iterator[Manifest]:
        """Yield the window ``head_window_id`` and the live windows before it, newest first.

        Follows ``previous_window_id`` by path, without listing a folder. Ends at the first window of the stream, or at
        a window without a manifest (logged, as a warning if no window was pruned). To find windows by time, use
        :class:`~airflow_provider_sfstream.landing.landed_windows.LandedWindows`, which reads less.

        :raises ManifestError: also if the links run in a circle.
        """
        passed_ids: set[str] = set()
        window_id: str | None = head_window_id
        while window_id is not None:
            if window_id in passed_ids:
                raise ManifestError(f"The chain of windows of {stream} contains a cycle at window {window_id}.")
            passed_ids.add(window_id)
            manifest = self.read_manifest(stream, window_id)
            if manifest is None:
                self.log_end(stream, window_id)
                return
            yield manifest
            window_id = manifest.window.previous_window_id

    def log_end(self, stream: Stream, window_id: str) -> None:
        """Log that a chain ends before a window without a manifest: a warning if no window was pruned."""
        try:
            pruned = read_pruned(self.landing, stream)
        except ManifestError as error:  # only the log message depends on this record, not the windows
            log.warning("%s", error)
            pruned = None
        if pruned is None:
            log.warning("Window %s of %s is missing; the windows before it cannot be found.", window_id, stream)
        else:
            log.info("The chain of windows of %s ends before window %s: %s.", stream, window_id, pruned)

    def _pruned_of(self, url: str) -> str:
        """Return the record of pruned windows of the stream that ``url`` belongs to, for a message."""
        stream_folder = "/".join(self.landing.path_of(url).split("/")[:-6])
        try:
            text = self._filesystem.cat_file(f"{stream_folder}/{PRUNED}")
            return f" ({PRUNED_DOCUMENT.from_json(text, url)})"
        except (OSError, ManifestError):  # the record only explains an error that is raised anyway
            return ""

    def _folder_of(self, manifest: Manifest) -> str:
        return self.landing.window_folder(manifest.stream, manifest.window.window_id)

    def _read(self, url: str) -> Manifest | None:
        path = self.landing.path_of(url)
        text = read_if_there(self._filesystem, path, url)
        return None if text is None else Manifest.from_json(text, url)

    def _list(self, folder: str) -> list[str]:
        return list_folder(self._filesystem, folder)

    def _sha256(self, path: str) -> str:
        with self._filesystem.open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
