"""What a landing asks of an fsspec filesystem beyond reading: files that are there whole, once, and durably."""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fsspec.dircache import DirCache
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile

from airflow_provider_sfstream.exceptions import LandingError, SalesforceStreamError

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss"})
_CONFLICT_PAUSES = (0.1, 0.2, 0.4, 0.8)
"""Seconds before another try, each, where a storage says that two conditional writes met and neither was decided."""


@contextmanager
def storage_errors(
    what: str,
    remedy: str = "Check the storage and its free space",
    kept: str = "The stored position was not moved and nothing is lost.",
) -> Iterator[None]:
    """Turn whatever a filesystem raises into :class:`LandingError`; each filesystem has errors of its own."""
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
    """Return the content of a file, ``None`` only if there certainly is none.

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
    """Return whether names with slashes are all that ``filesystem`` has of folders, as object stores."""
    return not _BUCKETS.isdisjoint(_protocols(filesystem))


def never_remember_listings(filesystem: Any) -> None:
    """Make ``filesystem`` ask the storage each time.

    Filesystems of fsspec remember what they listed for as long as the process lives, and also answer with it whether
    a file is there and how large it is; what others have written since would not be seen.
    """
    remembered = getattr(filesystem, "dircache", None)
    if isinstance(remembered, DirCache):
        remembered.use_listings_cache = False
        remembered.clear()


def list_folder(filesystem: Any, folder: str) -> list[str]:
    """Return the paths in ``folder`` as the storage has them now, not as an earlier listing remembered them."""
    filesystem.invalidate_cache()
    try:
        paths = [str(path).rstrip("/") for path in filesystem.ls(folder, detail=False)]
    except FileNotFoundError:
        return []
    return [path for path in paths if path != folder]  # some object stores list an empty folder in itself


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


def make_folder(filesystem: Any, folder: str, *, private: bool = False) -> None:
    """Create ``folder`` with its parents; on local storage they survive a power cut.

    :param private: make what is not there yet on local storage for this user alone (mode 0700).

    Object stores have none. Asked for one, their filesystems look for the bucket, and create it if they do not find
    it: also where its name is mistyped, or the storage just did not answer.
    """
    if is_bucket(filesystem):
        return
    if not is_local(filesystem):
        filesystem.makedirs(folder, exist_ok=True)
        return
    path = Path(folder)
    created = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(created):
        one.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
    path.mkdir(exist_ok=True)  # which a file of that name prevents
    for one in created:
        sync_folder(str(one.parent))


def write_once(filesystem: Any, path: str, data: bytes) -> bool:
    """Write the file ``path`` whole, unless it exists; return whether it was written.

    Of several writers at the same time, at most one is told that it wrote, unless they write the same bytes; and no
    reader sees half of the file. Local files: a temporary file, then a hard link, which fails where the name is taken.
    Elsewhere: the filesystem's own conditional write (``mode="create"`` of fsspec; ``If-None-Match`` of S3). When it is
    refused, the bytes that are there tell whether they are this writer's own: it may have written, lost the answer and
    tried again. A filesystem that has neither is asked whether the file is there, and then written: two writers within
    that moment would both be told that they wrote.
    """
    folder = posixpath.dirname(path)
    make_folder(filesystem, folder)
    if not is_local(filesystem):
        return _create(filesystem, path, data)
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
    """Write the new file ``path``, try to create it once more, and return whether that was refused, as it has to be."""
    return write_once(filesystem, path, b"first") and not write_once(filesystem, path, b"second")


def discard(file: Any) -> None:
    """Close a ``file`` opened for writing, so that nothing of it appears where the storage can still prevent it.

    Closing a file of an object store publishes what was written so far; its unfinished upload is aborted instead, also
    that of a file whose closing failed.
    """
    if isinstance(file, AbstractBufferedFile):
        file.forced = True  # closing it flushes nothing, now or when it is collected
        try:
            file.discard()
        finally:
            file.closed = True
    else:
        file.close()


def abort_uploads(filesystem: Any, folder: str) -> int:
    """Abort the uploads into ``folder`` that dead tries left unfinished, and return how many there were.

    S3 shows them in no listing of files, but keeps their parts, and bills them, until somebody aborts them. Where the
    storage does not allow to look for them (``s3:ListBucketMultipartUploads``), none are found.
    """
    if not {"s3", "s3a"} & _protocols(filesystem):
        return 0
    bucket, prefix, _ = filesystem.split_path(f"{folder}/")
    try:
        uploads = filesystem.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix).get("Uploads", [])
    except PermissionError:
        return 0
    for upload in uploads:
        with suppress(FileNotFoundError):  # it was aborted meanwhile
            filesystem.call_s3("abort_multipart_upload", Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    return len(uploads)


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


def _protocols(filesystem: Any) -> set[str]:
    protocol = getattr(filesystem, "protocol", ())
    return {protocol} if isinstance(protocol, str) else set(protocol)


def _s3_error_code(error: Exception) -> str | None:
    """Return what S3 called the error that s3fs has translated, ``None`` if it is not such an error."""
    response = getattr(error.__cause__, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return code if isinstance(code, str) else None
