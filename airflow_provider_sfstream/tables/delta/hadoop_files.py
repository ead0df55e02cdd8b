"""Small files through Spark's own Hadoop FileSystem: it supports every storage that Spark can read and write."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from airflow_provider_sfstream.tables.delta.table_location import TableLocation, storage_options

_BUCKET_SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs")
_CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Hadoop option: the store itself creates the file only if it does not exist (S3A: If-None-Match)."""


class HadoopFiles:
    """File access at Hadoop URLs: read, write, list and delete.

    :param spark: a running ``SparkSession`` (not Spark Connect, which has no access to Hadoop).
    """

    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm
        self._configuration = spark._jsc.hadoopConfiguration()
        self._session: list[tuple[str, str]] = spark.sparkContext.getConf().getAll()

    def url(self, url: str) -> str:
        """Return ``url`` as Hadoop names it: ``s3://`` becomes ``s3a://`` if Hadoop has no other implementation for it.

        The name of an Airflow connection (``s3://connection@bucket/...``) is removed.
        """
        parts = urlsplit(url)
        if parts.scheme not in _BUCKET_SCHEMES:
            return url.rstrip("/")
        scheme = {"gcs": "gs", "s3n": "s3a"}.get(parts.scheme, parts.scheme)
        if scheme == "s3" and not self._configuration.get("fs.s3.impl"):
            scheme = "s3a"
        return urlunsplit((scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")).rstrip("/")

    def read_text(self, url: str) -> str:
        """Return the text of a UTF-8 file.

        :raises FileNotFoundError: if the file does not exist.
        """
        path, filesystem = self._locate(url)
        if not filesystem.exists(path):
            raise FileNotFoundError(url)
        stream = filesystem.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def replace_text(self, url: str, text: str) -> None:
        """Write a UTF-8 file atomically: a reader sees the old or the new one, never a part of it."""
        self._write(url, text, overwrite=True)

    def create_text(self, url: str, text: str) -> None:
        """Write a UTF-8 file that must not exist yet, so that a reader sees none or all of it.

        Of several jobs at the same time, one succeeds: on S3A of Hadoop 3.4.2 and later the store decides, on HDFS the
        rename. Elsewhere the file is only checked before the write, and two jobs could both write.

        :raises FileExistsError: if the file exists.
        """
        path, filesystem = self._locate(url)
        if filesystem.exists(path):
            raise FileExistsError(url)
        try:
            self._write(url, text, overwrite=False)
        except Exception as error:
            if not any(name in str(error) for name in ("FileAlreadyExistsException", "RemoteFileChangedException")):
                raise
            # A write whose response was lost is repeated, and refused because of the file that it wrote itself.
            if self.read_text(url) != text:
                raise FileExistsError(url) from error

    def _write(self, url: str, text: str, *, overwrite: bool) -> None:
        path, filesystem = self._behind_mounts(url)
        if path.toUri().getScheme() in _BUCKET_SCHEMES:
            self._put(path, filesystem, text, overwrite=overwrite)
        else:
            self._rename_to(path, filesystem, text, overwrite=overwrite)

    def _put(self, path: Any, filesystem: Any, text: str, *, overwrite: bool) -> None:
        """Write an object, which a store publishes as a whole when it is closed. A rename would copy the object."""
        builder = filesystem.createFile(path).overwrite(overwrite).recursive()
        if not overwrite and filesystem.hasPathCapability(path, _CONDITIONAL):
            builder = builder.must(_CONDITIONAL, True)
        self._fill(builder.build(), text)

    def _rename_to(self, path: Any, filesystem: Any, text: str, *, overwrite: bool) -> None:
        temporary = self._jvm.org.apache.hadoop.fs.Path(path.getParent(), f".{path.getName()}.{uuid.uuid4().hex}")
        self._fill(filesystem.create(temporary, True), text)
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._jvm.java.lang.reflect.Array.newInstance(rename.OVERWRITE.getClass(), 1)
        options[0] = rename.OVERWRITE if overwrite else rename.NONE
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(path.toUri(), self._configuration)
        context.rename(temporary, path, options)

    @staticmethod
    def _fill(stream: Any, text: str) -> None:
        try:
            stream.write(bytearray(text.encode()))
        except Exception:
            with suppress(Exception):  # not every file system supports abort
                stream.abort()  # on close, an object store would publish the part written so far
            raise
        finally:
            stream.close()

    def _behind_mounts(self, url: str) -> tuple[Any, Any]:
        """Return the path and its file system as :meth:`_locate` does, with the links of a mount table resolved."""
        path, filesystem = self._locate(url)
        if "ViewFileSystem" not in filesystem.getClass().getSimpleName():
            return path, filesystem
        filesystem.mkdirs(path.getParent())
        resolved = self._jvm.org.apache.hadoop.fs.Path(filesystem.resolvePath(path.getParent()), path.getName())
        return resolved, resolved.getFileSystem(self._configuration)

    def folders(self, url: str) -> list[str]:
        """Return the names of the folders in a folder, none if it does not exist."""
        return [name for name, is_folder in self._inside(url) if is_folder]

    def file_names(self, url: str) -> list[str]:
        """Return the names of the files in a folder, none if it does not exist."""
        return [name for name, is_folder in self._inside(url) if not is_folder]

    def _inside(self, url: str) -> list[tuple[str, bool]]:
        path, filesystem = self._locate(url)
        if not filesystem.exists(path):
            return []
        return sorted((status.getPath().getName(), status.isDirectory()) for status in filesystem.listStatus(path))

    def delete(self, url: str) -> None:
        """Delete a file, or a folder with its contents."""
        path, filesystem = self._locate(url)
        filesystem.delete(path, True)

    def table_location(self, url: str) -> TableLocation:
        """Return the location of a folder for tasks and delta-rs, with the credentials that Hadoop has for it."""
        path, filesystem = self._locate(self.url(url))
        location = filesystem.makeQualified(path).toUri()
        if location.getScheme() == "file":
            return TableLocation(str(location.getPath()))
        qualified = str(location.toString()).rstrip("/")
        uri = qualified.replace("s3a://", "s3://", 1) if qualified.startswith("s3a://") else qualified
        return TableLocation(uri, storage_options(qualified, self._setting, self._session))

    def _setting(self, name: str) -> str | None:
        """Return a Hadoop setting, also from its credential providers."""
        secret = self._configuration.getPassword(name)
        return "".join(secret) if secret is not None else self._configuration.get(name)

    def _locate(self, url: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(url)
        return path, path.getFileSystem(self._configuration)
