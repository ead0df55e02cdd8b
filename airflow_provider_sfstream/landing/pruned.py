"""Permanent removal of windows, and its record: one small JSON document for each stream.

The record is written before any removal, so that a reader who misses a window can see that it was removed on purpose,
and so that the next removal completes an interrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.exceptions import LandingError
from airflow_provider_sfstream.landing.backfill_index import BackfillIndex
from airflow_provider_sfstream.landing.location import MANIFEST, Landing
from airflow_provider_sfstream.landing.replaced_files import StoredDocument
from airflow_provider_sfstream.landing.storage import is_local, storage_errors, sync_folder
from airflow_provider_sfstream.landing.window_bounds import level_of
from airflow_provider_sfstream.salesforce.streams import Stream


@dataclass(frozen=True)
class PrunedWindows:
    """Pruned windows of a stream: their number over all prunes, and the time and the run that removed the last of them.

    Every one was finished before ``finished_before``. The removal of those in ``removing`` may not be complete.
    ``published_until`` is an upper bound of the time at which the events of removed live windows were published;
    ``None`` if these had none.
    """

    stream: Stream
    finished_before: datetime
    pruned_at: datetime
    pruned_by: str
    windows: int
    removing: tuple[str, ...] = ()
    published_until: datetime | None = None

    def __str__(self) -> str:
        return (
            f"windows finished before {self.finished_before.isoformat()} were pruned, last at "
            f"{self.pruned_at.isoformat()} by {self.pruned_by}"
        )

    def finished(self) -> PrunedWindows:
        """Return the record after the removal of all announced windows."""
        return replace(self, removing=())


PRUNED_DOCUMENT = StoredDocument(
    PrunedWindows,
    format="sfstream-pruned",
    version=1,
    noun="record of pruned windows",
    remedy=", or a newer version of this package wrote it. No window was changed. Restore or remove the file; without "
    "it, errors no longer report that missing windows were pruned.",
)


def read_pruned(landing: Landing, stream: Stream) -> PrunedWindows | None:
    """Return the record of pruned windows of ``stream``, ``None`` if no window was ever pruned."""
    return PRUNED_DOCUMENT.read(landing.filesystem, landing.pruned_path(stream))


def write_pruned(landing: Landing, pruned: PrunedWindows) -> None:
    """Write the record of pruned windows, which replaces the earlier one."""
    what = f"The record of pruned windows of {pruned.stream}"
    PRUNED_DOCUMENT.write(landing.filesystem, landing.pruned_path(pruned.stream), pruned, what)


def remove_windows(landing: Landing, stream: Stream, window_ids: Sequence[str]) -> None:
    """Remove windows with all files in their folders. A repeated call has no effect.

    Manifests are removed first, in the order of ``window_ids``, so that no manifest ever lacks its files. Index entries
    are removed last: without a manifest they are no windows.

    :raises LandingError: if a file cannot be removed. A repeated call removes the remaining ones. If a folder is a
        symbolic link, nothing was removed: its target does not belong to this landing.
    """
    filesystem = landing.filesystem
    folders = [landing.window_folder(stream, window_id) for window_id in window_ids]
    with storage_errors(f"Pruned windows of {stream} could not be removed", "Check the permission to delete them"):
        if is_local(filesystem):
            for folder in folders:
                _refuse_links(Path(folder), Path(landing.base))
        _remove(filesystem, [f"{folder}/{MANIFEST}" for folder in folders])
        if is_local(filesystem):
            for folder in filter(lambda name: Path(name).is_dir(), folders):
                sync_folder(folder)
        for folder in folders:
            _remove(filesystem, _files(filesystem, folder))
            if is_local(filesystem):
                _remove_empty(Path(folder), Path(landing.windows_folder(stream)))
        _remove_from_index(landing, stream, window_ids)


def _remove_from_index(landing: Landing, stream: Stream, window_ids: Sequence[str]) -> None:
    levels = ((window_id, range(1, level_of(window_id) + 1)) for window_id in window_ids)
    documents = [
        landing.chain_index_path(stream, window_id, level) for window_id, numbers in levels for level in numbers
    ]
    _remove(landing.filesystem, documents)
    if is_local(landing.filesystem):
        for path in documents:
            _remove_empty(Path(path).parent, Path(landing.stream_folder(stream)))
    BackfillIndex(landing).remove(stream, window_ids)


def _refuse_links(folder: Path, base: Path) -> None:
    """Refuse a folder that is reached through a symbolic link; only the base itself may be a link."""
    for parent in (folder, *folder.parents):
        if parent == base:
            return
        if parent.is_symlink():
            raise LandingError(
                f"{parent} is a symbolic link. Windows are not removed through a link: its target does not belong to "
                "this landing. Nothing was removed. Find out who created the link, and replace it with the folder."
            )


def _files(filesystem: Any, folder: str) -> list[str]:
    """Return the paths of the files in ``folder``, from a fresh listing."""
    filesystem.invalidate_cache()
    try:
        entries = filesystem.ls(folder, detail=True)
    except FileNotFoundError:
        return []
    return [str(entry["name"]) for entry in entries if entry["type"] == "file" and entry["name"].rstrip("/") != folder]


def _remove(filesystem: Any, paths: list[str]) -> None:
    """Remove files; missing ones are ignored.

    One by one: an object store reports the result of each file of a bulk removal, and its filesystem may ignore these.
    """
    for path in paths:
        with suppress(FileNotFoundError):
            filesystem.rm_file(path)


def _remove_empty(folder: Path, below: Path) -> None:
    """Remove an empty folder, and the parents that become empty with it, up to ``below``."""
    while folder != below and below in folder.parents:
        with suppress(FileNotFoundError):
            try:
                folder.rmdir()
            except OSError:  # the folder is not empty
                return
        folder = folder.parent
