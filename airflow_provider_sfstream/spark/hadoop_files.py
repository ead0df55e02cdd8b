"""Small files through Spark's own Hadoop FileSystem: whatever Spark can read and write, this can."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_BUCKET_SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs")


class HadoopFiles:
    """Reads, writes, lists and deletes at Hadoop URLs.

    :param spark: a running ``SparkSession`` (not Spark Connect, which has no Hadoop at hand).
    """

    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm
        self._configuration = spark._jsc.hadoopConfiguration()

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

        :raises FileExistsError: if it is there.
        """
        path, filesystem = self._locate(url)
        if filesystem.exists(path):
            raise FileExistsError(url)
        try:
            self._write(url, text, overwrite=False)
        except Exception as error:
            if "FileAlreadyExistsException" in str(error):
                raise FileExistsError(url) from error
            raise

    def _write(self, url: str, text: str, *, overwrite: bool) -> None:
        path, filesystem = self._locate(url)
        folder, _, name = url.rpartition("/")
        temporary, _ = self._locate(f"{folder}/.{name}.{uuid.uuid4().hex}")
        stream = filesystem.create(temporary, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._jvm.java.lang.reflect.Array.newInstance(rename.OVERWRITE.getClass(), 1)
        options[0] = rename.OVERWRITE if overwrite else rename.NONE
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(path.toUri(), self._configuration)
        context.rename(temporary, path, options)

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

    def files_below(self, url: str) -> list[str]:
        """Return the paths, relative to a folder, of all files below it, none if it does not exist."""
        path, filesystem = self._locate(url)
        if not filesystem.exists(path):
            return []
        root, found = filesystem.makeQualified(path).toUri().getPath(), []
        statuses = filesystem.listFiles(path, True)
        while statuses.hasNext():
            found.append(statuses.next().getPath().toUri().getPath()[len(root) + 1 :])
        return sorted(found)

    def delete(self, url: str) -> None:
        """Delete a file, or a folder and all that is in it."""
        path, filesystem = self._locate(url)
        filesystem.delete(path, True)

    def make_folder(self, url: str) -> None:
        path, filesystem = self._locate(url)
        filesystem.mkdirs(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a folder.

        :raises OSError: if the storage does not do it.
        """
        path, filesystem = self._locate(old)
        if not filesystem.rename(path, self._locate(new)[0]):
            raise OSError(f"{old} could not be renamed to {new}")

    def local_path(self, url: str) -> str | None:
        """Return the path of a URL of the local file system, ``None`` for any other."""
        path, filesystem = self._locate(url)
        location = filesystem.makeQualified(path).toUri()
        return str(location.getPath()) if location.getScheme() == "file" else None

    def _locate(self, url: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(url)
        return path, path.getFileSystem(self._configuration)
