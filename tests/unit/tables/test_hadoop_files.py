"""Small files that are created once, with simulated responses of Hadoop in place of Spark."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles


class LostResponses(HadoopFiles):
    """Bucket that loses the response to each write. Its connector writes again, and fails because the file exists.

    :param before: text that another job writes immediately before each write.
    """

    def __init__(self, before: str | None = None) -> None:
        self._before = before
        self.texts: dict[str, str] = {}

    def exists(self, url: str) -> bool:
        return url in self.texts

    def read_text(self, url: str) -> str:
        return self.texts[url]

    def _locate(self, url: str) -> tuple[Any, Any]:
        return url, self

    def _write(self, url: str, text: str, *, overwrite: bool) -> None:
        self.texts.setdefault(url, text if self._before is None else self._before)
        raise RuntimeError("org.apache.hadoop.fs.FileAlreadyExistsException: it is there")


def test_create_with_a_lost_response_succeeds() -> None:
    files = LostResponses()
    files.create_text("s3a://lake/1.json", "mine")
    assert files.texts == {"s3a://lake/1.json": "mine"}
    with pytest.raises(FileExistsError):
        files.create_text("s3a://lake/1.json", "mine")


def test_file_of_another_writer_is_not_replaced() -> None:
    files = LostResponses(before="another's")
    with pytest.raises(FileExistsError):
        files.create_text("s3a://lake/1.json", "mine")
    assert files.texts == {"s3a://lake/1.json": "another's"}
