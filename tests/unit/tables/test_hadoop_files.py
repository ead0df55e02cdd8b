"""Small files that are created once, without a Spark: what Hadoop answers is said here."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles


class LosesAnswers(HadoopFiles):
    """A bucket that loses the answer to each write, whose connector writes again and is refused for what is there.

    :param before: what another job writes in the moment before each write.
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


def test_a_file_that_was_written_and_refused_is_the_writers_own() -> None:
    files = LosesAnswers()
    files.create_text("s3a://lake/1.json", "mine")
    assert files.texts == {"s3a://lake/1.json": "mine"}
    with pytest.raises(FileExistsError):
        files.create_text("s3a://lake/1.json", "mine")


def test_a_file_of_another_writer_stands() -> None:
    files = LosesAnswers(before="another's")
    with pytest.raises(FileExistsError):
        files.create_text("s3a://lake/1.json", "mine")
    assert files.texts == {"s3a://lake/1.json": "another's"}
