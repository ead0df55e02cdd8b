"""What a landing asks of an fsspec filesystem beyond reading: files that are there whole, once, and durably."""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from airflow_provider_sfstream.exceptions import LandingError, SalesforceStreamError

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def storage_errors(what: str, remedy: str = "Check the storage and its free space") -> Iterator[None]:
    """Turn whatever a filesystem raises into :class:`LandingError`; each filesystem has errors of its own."""
    try:
        yield
    except SalesforceStreamError:
        raise
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise LandingError(
            f"{what} ({type(error).__name__}: {reason}). {remedy}, then run the task again. The stored position was "
            "not moved and nothing is lost."
        ) from error


def is_local(filesystem: Any) -> bool:
    return isinstance(filesystem, LocalFileSystem)


def sync(file: Any) -> None:
    """Make what was written to an open local ``file`` survive a power cut."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: str) -> None:
    """Make the names in a local ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(filesystem: Any, folder: str) -> None:
    """Create ``folder`` with its parents; on local storage they survive a power cut."""
    if not is_local(filesystem):
        filesystem.makedirs(folder, exist_ok=True)
        return
    path = Path(folder)
    created = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in created:
        sync_folder(str(one.parent))


def write_once(filesystem: Any, path: str, data: bytes) -> bool:
    """Write the file ``path`` whole, unless it exists; return whether it was written.

    Of several writers at the same time, at most one is told that it wrote, and no reader sees half of the file.
    Local files: a temporary file, then a hard link, which fails where the name is taken. Elsewhere: the filesystem's
    own conditional write (``mode="create"`` of fsspec). A filesystem that has neither is asked whether the file is
    there, and then written: two writers within that moment would both be told that they wrote.
    """
    folder = posixpath.dirname(path)
    make_folder(filesystem, folder)
    if not is_local(filesystem):
        try:
            filesystem.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        return True
    temporary = Path(folder) / f".{posixpath.basename(path)}.{secrets.token_hex(8)}"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            sync(file)
        _link(temporary, Path(path))
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    sync_folder(folder)
    return True


def replace_file(filesystem: Any, path: str, data: bytes) -> None:
    """Write the file ``path`` whole, in the place of what is there. Readers see all of the old or all of the new.

    Local files: a temporary file, then a rename. Elsewhere: one write, which object stores make visible as a whole.
    """
    folder = posixpath.dirname(path)
    make_folder(filesystem, folder)
    if not is_local(filesystem):
        filesystem.pipe_file(path, data)
        return
    temporary = Path(folder) / f".{posixpath.basename(path)}.{secrets.token_hex(8)}"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            sync(file)
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    sync_folder(folder)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if target.exists():
            raise FileExistsError(target) from None
        source.replace(target)
