"""Taking windows out of a landing for good."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.exceptions import LandingError
from airflow_provider_sfstream.landing.backfill_index import BackfillIndex
from airflow_provider_sfstream.landing.location import MANIFEST, Landing
from airflow_provider_sfstream.landing.storage import is_local, storage_errors, sync_folder
from airflow_provider_sfstream.landing.stretches import level_of
from airflow_provider_sfstream.salesforce.streams import Stream


def remove_windows(landing: Landing, stream: Stream, window_ids: Sequence[str]) -> None:
    """Remove windows with all that is in their folders. Removing them again does no harm.

    Their manifests go first, in the order given, so that there is never a manifest whose files are gone. What the index
    has of them goes last: without a manifest it is no window.

    :raises LandingError: if something cannot be removed. What is still there can be removed by calling this again. If a
        folder is a symbolic link, nothing was removed: what it leads to is not this landing's.
    """
    filesystem = landing.filesystem
    folders = [landing.window_folder(stream, window_id) for window_id in window_ids]
    with storage_errors(f"Pruned windows of {stream} could not be removed", "Check that they may be removed"):
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
    documents = [landing.chain_index_path(stream, window_id, level) for window_id, each in levels for level in each]
    _remove(landing.filesystem, documents)
    if is_local(landing.filesystem):
        for path in documents:
            _remove_empty(Path(path).parent, Path(landing.stream_folder(stream)))
    BackfillIndex(landing).remove(stream, window_ids)


def _refuse_links(folder: Path, base: Path) -> None:
    """Refuse a folder that is not where its path says it is; the base itself may be a link."""
    for each in (folder, *folder.parents):
        if each == base:
            return
        if each.is_symlink():
            raise LandingError(
                f"{each} is a symbolic link, and windows are not removed through it: they would be somebody else's. "
                "Look who made it, and put the folder itself in its place. Nothing was removed."
            )


def _files(filesystem: Any, folder: str) -> list[str]:
    """Return the paths of the files in ``folder``, as the storage has them now."""
    filesystem.invalidate_cache()
    try:
        entries = filesystem.ls(folder, detail=True)
    except FileNotFoundError:
        return []
    return [str(entry["name"]) for entry in entries if entry["type"] == "file" and entry["name"].rstrip("/") != folder]


def _remove(filesystem: Any, paths: list[str]) -> None:
    """Remove files, some of which may be gone already.

    One by one: asked for many at once, an object store answers for each, and its filesystem may look at none of that.
    """
    for path in paths:
        with suppress(FileNotFoundError):
            filesystem.rm_file(path)


def _remove_empty(folder: Path, below: Path) -> None:
    """Remove a folder, and those around it that it leaves empty, up to ``below``."""
    while folder != below and below in folder.parents:
        with suppress(FileNotFoundError):
            try:
                folder.rmdir()
            except OSError:  # something else is in it
                return
        folder = folder.parent
