"""Locations of Delta tables for delta-rs: a URI, and the options to access the storage.

The driver reads the options from the session's Hadoop configuration and passes them to the tasks, so executors need no
second configuration. delta-rs itself reads the environment (``AWS_*``, ``AZURE_*``, ``GOOGLE_*``);
``spark.sfstream.storage.NAME`` of the session is the option ``NAME``, for any storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

OPTION_PREFIX = "spark.sfstream.storage."
_S3_SCHEMES = ("s3", "s3a", "s3n")
_S3_SETTINGS = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint.region": "AWS_REGION",
}
"""Settings of Hadoop's S3A connector after ``fs.s3a.``, and the equivalent option."""
Setting = Callable[[str], str | None]


@dataclass(frozen=True)
class TableLocation:
    """Folder of tables.

    :param uri: without a slash at the end; a path for a local folder.
    :param options: options of the storage. They may be secret, so they are excluded from ``repr``.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def below(self, name: str) -> TableLocation:
        """Return the location of a folder in this one."""
        return TableLocation(f"{self.uri}/{name}", self.options)

    def filesystem(self) -> Any:
        """Return a ``pyarrow.fs.FileSystem`` whose root is this folder."""
        import pyarrow.fs as fs

        if "://" not in self.uri:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        from deltalake.fs.fs_handler import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))


def storage_options(url: str, setting: Setting, session: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Return the options of the storage that contains ``url``.

    :param url: as Hadoop names it.
    :param setting: returns a setting of Hadoop's configuration, ``None`` if it is not set.
    :param session: settings of the Spark session.
    """
    explicit = {name.removeprefix(OPTION_PREFIX): value for name, value in session if name.startswith(OPTION_PREFIX)}
    parts = urlsplit(url)
    return (_s3_options(parts.netloc, setting) if parts.scheme in _S3_SCHEMES else {}) | explicit


def _s3_options(bucket: str, setting: Setting) -> dict[str, str]:
    def setting_of(name: str) -> str | None:
        return setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}")

    options = {option: value for name, option in _S3_SETTINGS.items() if (value := setting_of(name))}
    if endpoint := setting_of("endpoint"):
        scheme = "http" if setting_of("connection.ssl.enabled") == "false" else "https"
        options["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        if options["AWS_ENDPOINT_URL"].startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
    if (path_style := setting_of("path.style.access")) is not None:
        options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false" if path_style == "true" else "true"
    # A commit is a file that must not exist yet: the store itself decides between two jobs.
    return options | {"aws_conditional_put": "etag"}
