"""Small files through Spark's own Hadoop FileSystem: whatever Spark can read and write, this can."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from airflow_provider_sfstream.tables.delta.table_location import TableLocation, storage_options

_BUCKET_SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs")
_CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Hadoop's option for a file that is created only where there is none, by the store itself (S3A: If-None-Match)."""


class HadoopFiles:
    """Reads, writes, lists and deletes at Hadoop URLs.

    :param spark: a running ``SparkSession`` (not Spark Connect, which has no Hadoop at hand).
    """

    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm
        self._configuration = spark._jsc.hadoopConfiguration()
        self._session: list[tuple[str, str]] = spark.sparkContext.getConf().getAll()

    def url(self, url: str) -> str:
        """Return ``url`` as Hadoop names it: ``s3://`` is ``s3a://`` where Hadoop has nothing else for it.

        The name of an Airflow connection (``s3://connection@bucket/...``) is left out.
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

        :raises FileNotFoundError: if there is none.
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
        """Write a UTF-8 file, so that a reader sees the old or the new one, never half of one."""
        self._write(url, text, overwrite=True)

    def create_text(self, url: str, text: str) -> None:
        """Write a UTF-8 file that must not be there yet, so that a reader sees none or all of it.

        Of several jobs at once, one writes it: on S3A of Hadoop 3.4.2 and later the store decides, on HDFS the rename.
        Local files, and a store whose connector knows no conditional create, are asked first: two jobs within that
        moment would both write.

        :raises FileExistsError: if it is there.
        """
        path, filesystem = self._locate(url)
        if filesystem.exists(path):
            raise FileExistsError(url)
        try:
            self._write(url, text, overwrite=False)
        except Exception as error:
            if not any(name in str(error) for name in ("FileAlreadyExistsException", "RemoteFileChangedException")):
                raise
            # A write whose answer was lost is repeated, and refused for the file that it wrote itself.
            if self.read_text(url) != text:
                raise FileExistsError(url) from error

    def _write(self, url: str, text: str, *, overwrite: bool) -> None:
        path, filesystem = self._behind_mounts(url)
        if path.toUri().getScheme() in _BUCKET_SCHEMES:
            self._put(path, filesystem, text, overwrite=overwrite)
        else:
            self._rename_to(path, filesystem, text, overwrite=overwrite)

    def _put(self, path: Any, filesystem: Any, text: str, *, overwrite: bool) -> None:
        """Write an object, which a store makes visible as a whole when it is closed. A rename would copy there."""
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
            with suppress(Exception):  # not every file system can
                stream.abort()  # an object store would publish on closing what was written so far
            raise
        finally:
            stream.close()

    def _behind_mounts(self, url: str) -> tuple[Any, Any]:
        """Return the path and its file system as :meth:`_locate` does, behind the links of a mount table."""
        path, filesystem = self._locate(url)
        if "ViewFileSystem" not in filesystem.getClass().getSimpleName():
            return path, filesystem
        filesystem.mkdirs(path.getParent())
        resolved = self._jvm.org.apache.hadoop.fs.Path(filesystem.resolvePath(path.getParent()), path.getName())
        return resolved, resolved.getFileSystem(self._configuration)

    def folders(self, url: str) -> list[str]:
        """Return the names of the folders in a folder, none if it does not exist."""
        path, filesystem = self._locate(url)
        if not filesystem.exists(path):
            return []
        return sorted(status.getPath().getName() for status in filesystem.listStatus(path) if status.isDirectory())

    def file_names(self, url: str) -> list[str]:
        """Return the names of the files in a folder, none if it does not exist."""
        path, filesystem = self._locate(url)
        if not filesystem.exists(path):
            return []
        return sorted(status.getPath().getName() for status in filesystem.listStatus(path) if status.isFile())

    def delete(self, url: str) -> None:
        """Delete a file, or a folder and all that is in it."""
        path, filesystem = self._locate(url)
        filesystem.delete(path, True)

    def table_location(self, url: str) -> TableLocation:
        """Return a folder as tasks and delta-rs reach it, with the credentials that Hadoop has for it."""
        path, filesystem = self._locate(self.url(url))
        location = filesystem.makeQualified(path).toUri()
        if location.getScheme() == "file":
            return TableLocation(str(location.getPath()))
        qualified = str(location.toString()).rstrip("/")
        uri = qualified.replace("s3a://", "s3://", 1) if qualified.startswith("s3a://") else qualified
        return TableLocation(uri, storage_options(qualified, self._setting, self._session))

    def _setting(self, name: str) -> str | None:
        """Return a setting of Hadoop, from its credential providers too."""
        secret = self._configuration.getPassword(name)
        return "".join(secret) if secret is not None else self._configuration.get(name)

    def _locate(self, url: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(url)
        return path, path.getFileSystem(self._configuration)
