"""Write operations of a landing on an fsspec filesystem: complete files, written once, durably."""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

from fsspec.dircache import DirCache
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile

from airflow_provider_sfstream.exceptions import LandingError, SalesforceStreamError

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss"})
_CONFLICT_PAUSES = (0.1, 0.2, 0.4, 0.8)
"""Seconds before each retry, if a storage reports that two conditional writes conflicted and neither succeeded."""


@contextmanager
def storage_errors(
    what: str,
    remedy: str = "Check the storage and its free space",
    kept: str = "The stored position was not moved and nothing is lost.",
) -> Iterator[None]:
    """Convert any error of a filesystem to :class:`LandingError`; each filesystem has its own error classes."""
    try:
        yield
    except SalesforceStreamError:
        raise
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise LandingError(
            f"{what} ({type(error).__name__}: {reason}). {remedy}, then run the task again. {kept}"
        ) from error


def read_if_there(filesystem: Any, path: str, name: str | None = None) -> bytes | None:
    """Return the content of a file; ``None`` only if it certainly does not exist.

    :param name: the file's name in the error, its path by default.
    :raises LandingError: if the storage could not be read.
    """
    with storage_errors(f"{name or path} could not be read", "Check the storage connection"):
        try:
            content: bytes = filesystem.cat_file(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return content


def is_local(filesystem: Any) -> bool:
    return isinstance(filesystem, LocalFileSystem)


def is_bucket(filesystem: Any) -> bool:
    """Return whether ``filesystem`` is an object store, where folders are only name prefixes."""
    return not _BUCKETS.isdisjoint(_protocols(filesystem))


def never_remember_listings(filesystem: Any) -> None:
    """Disable the listings cache of ``filesystem``, so that it asks the storage each time.

    Filesystems of fsspec cache listings for the lifetime of the process, and use them to check whether a file exists
    and how large it is; they would miss the later writes of other processes.
    """
    cache = getattr(filesystem, "dircache", None)
    if isinstance(cache, DirCache):
        cache.use_listings_cache = False
        cache.clear()


def list_folder(filesystem: Any, folder: str) -> list[str]:
    """Return the names in ``folder`` from a fresh listing, without the cache."""
    filesystem.invalidate_cache()
    try:
        paths = [str(path).rstrip("/") for path in filesystem.ls(folder, detail=False)]
    except FileNotFoundError:
        return []
    # Some object stores include an empty folder in its own listing.
    return [path.rpartition("/")[2] for path in paths if path != folder]


def newest_days(
    filesystem: Any, base: str, first: date = date.min, last: date = date.max
) -> Iterator[tuple[date, str]]:
    """Yield each day from ``first`` to ``last`` that has a folder ``{base}/yyyy/mm/dd``, with it, the newest first."""
    for year in _numbers(filesystem, base, first.year, last.year):
        for month in _numbers(filesystem, f"{base}/{year}", 1, 12):
            if not (first.year, first.month) <= (int(year), int(month)) <= (last.year, last.month):
                continue
            for number in _numbers(filesystem, f"{base}/{year}/{month}", 1, 31):
                day = date(int(year), int(month), int(number))
                if first <= day <= last:
                    yield day, f"{base}/{year}/{month}/{number}"


def _numbers(filesystem: Any, folder: str, minimum: int, maximum: int) -> list[str]:
    names = list_folder(filesystem, folder)
    return sorted((name for name in names if name.isdecimal() and minimum <= int(name) <= maximum), reverse=True)


def sync(file: Any) -> None:
    """Write an open local ``file`` to disk, so that it survives a power cut."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: str) -> None:
    """Write the names in a local ``folder`` to disk, so that they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(filesystem: Any, folder: str, *, private: bool = False) -> None:
    """Create ``folder`` with its parents; on local storage they survive a power cut.

    :param private: create missing local folders for this user only (mode 0700).

    Does nothing on object stores. Their filesystems would look for the bucket, and create it if they do not find it:
    also if its name is mistyped, or the storage did not respond.
    """
    if is_bucket(filesystem):
        return
    if not is_local(filesystem):
        filesystem.makedirs(folder, exist_ok=True)
        return
    path = Path(folder)
    missing = [ancestor for ancestor in (path, *path.parents) if not ancestor.exists()]
    for ancestor in reversed(missing):
        ancestor.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
    path.mkdir(exist_ok=True)  # raises if a file has this name
    for ancestor in missing:
        sync_folder(str(ancestor.parent))


def write_once(filesystem: Any, path: str, data: bytes) -> bool:
    """Write the complete file ``path``, unless it exists; return whether it was written.

    Of several writers at the same time, at most one gets ``True``, unless they write the same bytes; and no reader sees
    a partial file. Local files: a temporary file, then a hard link, which fails if the name exists. Elsewhere: the
    filesystem's own conditional write (``mode="create"`` of fsspec; ``If-None-Match`` of S3). After a refusal, the
    stored bytes are compared with those of this writer: it may have written, lost the answer and retried. If a
    filesystem has neither, it checks that the file is missing, and then writes it: two writers within that moment would
    both get ``True``.
    """
    make_folder(filesystem, posixpath.dirname(path))
    if not is_local(filesystem):
        return _create(filesystem, path, data)
    try:
        _write_local(Path(path), data, _link)
    except FileExistsError:
        return False
    return True


def _write_local(path: Path, data: bytes, publish: Callable[[Path, Path], object]) -> None:
    """Write a temporary file, and let ``publish`` name it ``path``; both survive a power cut."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            sync(file)
        publish(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    sync_folder(str(path.parent))


def _create(filesystem: Any, path: str, data: bytes) -> bool:
    pauses = iter(_CONFLICT_PAUSES)
    while True:
        try:
            filesystem.pipe_file(path, data, mode="create")
            return True
        except Exception as error:
            code = _s3_error_code(error)
            if isinstance(error, FileExistsError) or code in ("PreconditionFailed", "412"):
                return bool(filesystem.cat_file(path) == data)
            pause = next(pauses, None) if code == "ConditionalRequestConflict" else None
            if pause is None:
                raise
            time.sleep(pause)


def refuses_second_write(filesystem: Any, path: str) -> bool:
    """Write the new file ``path``, try to create it again, and return whether the storage refused that, as it must."""
    return write_once(filesystem, path, b"first") and not write_once(filesystem, path, b"second")


def discard(file: Any) -> None:
    """Close a ``file`` opened for writing, so that no partial file appears if the storage can prevent it.

    Closing a file of an object store publishes the data written so far. This aborts its unfinished upload instead, also
    after a failed close.
    """
    if isinstance(file, AbstractBufferedFile):
        file.forced = True  # prevents a flush at close or at garbage collection
        try:
            file.discard()
        finally:
            file.closed = True
    else:
        file.close()


def abort_uploads(filesystem: Any, folder: str) -> int:
    """Abort the unfinished uploads of dead tries into ``folder``, and return their number.

    S3 lists them in no listing of files, but stores their parts, and bills them, until they are aborted. If the storage
    does not allow listing them (``s3:ListBucketMultipartUploads``), none are found.
    """
    if not {"s3", "s3a"} & _protocols(filesystem):
        return 0
    bucket, prefix, _ = filesystem.split_path(f"{folder}/")
    try:
        uploads = filesystem.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix).get("Uploads", [])
    except PermissionError:
        return 0
    for upload in uploads:
        with suppress(FileNotFoundError):  # another process has aborted it
            filesystem.call_s3("abort_multipart_upload", Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    return len(uploads)


def replace_file(filesystem: Any, path: str, data: bytes) -> None:
    """Write the complete file ``path``, which replaces the existing one. Readers see either the old or the new content.

    Local files: a temporary file, then a rename. Elsewhere: one write, which object stores publish atomically.
    """
    make_folder(filesystem, posixpath.dirname(path))
    if is_local(filesystem):
        _write_local(Path(path), data, Path.replace)
    else:
        filesystem.pipe_file(path, data)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if target.exists():
            raise FileExistsError(target) from None
        source.replace(target)


def _protocols(filesystem: Any) -> set[str]:
    protocol = getattr(filesystem, "protocol", ())
    return {protocol} if isinstance(protocol, str) else set(protocol)


def _s3_error_code(error: Exception) -> str | None:
    """Return the S3 error code of an error that s3fs has translated, ``None`` if it is another error."""
    response = getattr(error.__cause__, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return code if isinstance(code, str) else None
