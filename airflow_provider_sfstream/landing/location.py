"""Paths of a landing: folders of streams, windows and schemas below one base URL.

``{base}/{org}/{api}/{topic}/{subscription}/schemas/{schema_id}.avsc`` and
``.../windows/{yyyy}/{mm}/{dd}/{window_id}/manifest.json``, and ``.../intervals/{yyyy}/{mm}/{dd}/{interval_id}.json``.
In the same folder: ``recorded.json``, the last recorded position; ``pruned.json``, once windows were pruned; and
``index``, whose documents can be removed, and are written again from the manifests.
Erasures are recorded in ``{base}/erasures/{erasure_id}.json``.
Replay stores that store their records in the landing use ``{base}/positions/{key}.json``.
Every segment is a slug, so that no external name can point outside its folder.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
import secrets
import stat
from collections.abc import Collection
from datetime import date, datetime
from pathlib import Path
from typing import Any

import fsspec

from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.landing.storage import (
    is_bucket,
    is_local,
    make_folder,
    never_remember_listings,
    refuses_second_write,
    storage_errors,
)
from airflow_provider_sfstream.redaction import has_credentials
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import slug

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
PRUNED = "pruned.json"
RECORDED = "recorded.json"
_DATED_ID = re.compile(r"([0-9]{8})[A-Za-z0-9_-]{0,100}")
_OWNER_REMEDY = "Choose another landing, run the worker as that user, or grant the worker's user write permission"
_UNTOUCHED = "Nothing was read from Salesforce, and nothing was written."


class Landing:
    """Storage that windows are written to.

    The methods that name the file of an ID raise :class:`ConfigurationError` if the ID has unsafe characters, or does
    not begin with a date.

    :param filesystem: An fsspec filesystem, with the credentials it needs.
    :param base: The folder that contains all files of the landing, as a path of the filesystem.
    :param url: The same folder as a URL, for readers of manifests. It must contain no credentials.
    :raises ConfigurationError: if ``url`` contains a password or a signature.
    """

    def __init__(self, filesystem: Any, base: str, url: str) -> None:
        if has_credentials(url):
            raise ConfigurationError(
                "The landing URL contains a password or a signature, which would be written to manifests. Remove it "
                "from the URL, and store the credentials in the storage connection."
            )
        never_remember_listings(filesystem)
        self.filesystem = filesystem
        self.base = base.rstrip("/")
        self.url = url.rstrip("/")

    @classmethod
    def from_url(cls, url: str, **storage_options: Any) -> Landing:
        """Return the landing at ``url``, a local path or any URL that an installed fsspec filesystem supports.

        :raises ConfigurationError: if it is empty, or no installed filesystem supports it.
        """
        if not url.strip():
            raise ConfigurationError("The landing URL is empty. Set a folder, for example s3://lake/salesforce.")
        try:
            filesystem, base = fsspec.core.url_to_fs(url, **storage_options)
        except (ValueError, ImportError) as error:
            raise ConfigurationError(
                f"The landing URL cannot be used: {error}. Install the fsspec filesystem for it, or correct the URL."
            ) from error
        return cls(filesystem, base, filesystem.unstrip_protocol(base))

    def stream_folder(self, stream: Stream) -> str:
        return f"{self.base}/{stream.path}"

    def windows_folder(self, stream: Stream) -> str:
        """Return the folder of the stream's windows, which has one folder for each year."""
        return f"{self.stream_folder(stream)}/windows"

    def day_folder(self, stream: Stream, day: date) -> str:
        """Return the folder of the windows whose run was due on ``day`` (UTC)."""
        return f"{self.windows_folder(stream)}/{day:%Y/%m/%d}"

    def window_folder(self, stream: Stream, window_id: str) -> str:
        return f"{self.day_folder(stream, _day_of(window_id, 'window ID'))}/{window_id}"

    def manifest_path(self, stream: Stream, window_id: str) -> str:
        return f"{self.window_folder(stream, window_id)}/{MANIFEST}"

    def manifest_url(self, stream: Stream, window_id: str) -> str:
        """Return the URL that identifies the window outside of the landing."""
        return self.url + self.manifest_path(stream, window_id).removeprefix(self.base)

    def interval_path(self, stream: Stream, interval_id: str) -> str:
        """Return the path of the record of a run's result for an interval, by the day the interval begins (UTC)."""
        day = _day_of(interval_id, "interval ID")
        return f"{self.stream_folder(stream)}/intervals/{day:%Y/%m/%d}/{interval_id}.json"

    def pruned_path(self, stream: Stream) -> str:
        return f"{self.stream_folder(stream)}/{PRUNED}"

    def chain_index_path(self, stream: Stream, window_id: str, level: int) -> str:
        """Return the path of the index document of the segment of a level that begins at a live window."""
        day = _day_of(window_id, "window ID")
        return f"{self.stream_folder(stream)}/index/chain/{day:%Y/%m/%d}/{window_id}.{level}.json"

    def backfill_index_folder(self, stream: Stream) -> str:
        return f"{self.stream_folder(stream)}/index/backfills"

    def recorded_path(self, stream: Stream) -> str:
        return f"{self.stream_folder(stream)}/{RECORDED}"

    def erasure_path(self, erasure_id: str) -> str:
        _day_of(erasure_id, "erasure ID")
        return f"{self.base}/erasures/{erasure_id}.json"

    def position_path(self, key: str) -> str:
        """Return the path of the record of a stream's position, for a replay store that stores it in the landing."""
        if not re.fullmatch(r"[A-Za-z0-9_~][A-Za-z0-9_.~-]{0,254}", key):
            raise ConfigurationError(f"{key!r} is not a valid file name in the landing. Nothing was read or moved.")
        return f"{self.base}/positions/{key}.json"

    def position_url(self, key: str) -> str:
        return self.url + self.position_path(key).removeprefix(self.base)

    def schema_path(self, stream: Stream, schema_id: str) -> str:
        return f"{self.stream_folder(stream)}/schemas/{_schema_file(schema_id)}"

    @staticmethod
    def schema_reference(schema_id: str) -> str:
        """Return the path of a schema's file for a manifest: relative to the folder of the manifest."""
        return f"../../../../../schemas/{_schema_file(schema_id)}"

    def path_of(self, url: str) -> str:
        """Return the path of a URL below this landing.

        :raises LandingError: if the URL is outside of the landing.
        """
        if not url.startswith(self.url + "/") or "/../" in url:
            raise LandingError(
                f"{url} is not below the landing {self.url}. Use the landing that the window was written to."
            )
        return self.base + url.removeprefix(self.url)

    def check_writable(self) -> None:
        """Write and remove a small file, so that an unusable landing fails before a drain reads events.

        A missing local folder, and its content, is created for this user only. A folder of another user, who has not
        allowed this user to write there, is refused, also for root.

        Warns about an object store that would let a second writer overwrite a manifest.

        :raises ConfigurationError: if it would be in a folder of another user that is refused. Nothing was written.
        :raises LandingError: if it cannot be written; it names the remedy.
        """
        if is_local(self.filesystem):
            check_owner(self.base, self.url)
        path = f"{self.base}/.writable-{secrets.token_hex(8)}"
        remedy = "Check that the folder exists or may be created, and that the storage connection may write there"
        with storage_errors(f"The landing {self.url} cannot be written", remedy):
            make_folder(self.filesystem, self.base, private=True)
            if not is_bucket(self.filesystem):
                self.filesystem.pipe_file(path, b"writable")
            elif not refuses_second_write(self.filesystem, path):
                log.warning(
                    "The storage of the landing %s does not support conditional writes (If-None-Match). Two tries of a "
                    "run that write at the same time may both write the window's manifest, and events may be lost. "
                    "Update the storage, or choose another one.",
                    self.url,
                )
            self.filesystem.rm_file(path)


def _schema_file(schema_id: str) -> str:
    return f"{slug(schema_id)}.avsc"


def _day_of(dated_id: str, kind: str) -> date:
    match = _DATED_ID.fullmatch(dated_id)
    try:
        return datetime.strptime(match[1] if match else "", "%Y%m%d").date()  # noqa: DTZ007 (a day, not a time)
    except ValueError:
        raise ConfigurationError(
            f"Invalid {kind}: {dated_id!r}. It must begin with a date, as in 20260131T120000Z-0123456789abcdef. Copy "
            "it from a manifest or from the replay store."
        ) from None


def check_owner(folder: str, url: str) -> None:
    """Refuse a landing in a folder of another user who has not allowed this user to write there.

    The folder itself is checked, or the first of its parents that exists. It must belong to this user, or its mode or
    an access control list must let this user write to it: a shared folder of a group, a mounted volume. Root may write
    to any folder, so that for root only the mode counts: the owner of a folder can replace its landed files.

    :param folder: the local path; ``url``: that of the landing, for the error.
    """
    if folder.startswith("~"):
        raise ConfigurationError(
            f"The landing {url} cannot be used: this machine has no user with the home folder "
            f"{folder.partition('/')[0]}. Choose another landing. {_UNTOUCHED}"
        )
    path = Path(folder).absolute()
    for existing in (path, *path.parents):
        try:
            status = existing.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            continue  # below a folder that this user may not enter: the next iteration finds that folder
        break
    else:
        return
    if not stat.S_ISDIR(status.st_mode) or status.st_uid == os.geteuid():
        return
    if mode_lets_write(status, os.geteuid(), {os.getegid(), *os.getgroups()}):
        return
    if os.geteuid() != 0 and _access_lets_write(existing):
        return
    raise ConfigurationError(
        f"The landing {url} cannot be used: the folder {existing} belongs to the user {_user_name(status.st_uid)}, and "
        f"its mode ({stat.filemode(status.st_mode)}) does not allow the user {_user_name(os.geteuid())} to write. "
        f"{_OWNER_REMEDY} (chown, or chmod g+w for a group of both). {_UNTOUCHED}"
    )


def mode_lets_write(found: os.stat_result, user: int, groups: Collection[int]) -> bool:
    """Return whether the mode of a folder lets a user create files in it, without the extra rights of root."""
    if found.st_uid == user:
        required = stat.S_IWUSR | stat.S_IXUSR
    elif found.st_gid in groups:
        required = stat.S_IWGRP | stat.S_IXGRP
    else:
        required = stat.S_IWOTH | stat.S_IXOTH
    return found.st_mode & required == required


def _access_lets_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def _user_name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name!r} ({uid})"
    except KeyError:
        return str(uid)
