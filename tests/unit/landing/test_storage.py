"""What a landing asks of a storage that is not local, on one in memory."""

from __future__ import annotations

from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from airflow_provider_sfstream.landing.storage import write_once


class LosesAnswers(MemoryFileSystem):
    """Loses the answer to each write, and is told by its second try that the file is there, as S3's client is."""

    cachable = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        super().pipe_file(path, value, mode=mode, **options)
        super().pipe_file(path, value, mode=mode, **options)


@pytest.fixture
def path(tmp_path: Any) -> str:
    """Where one test may write: all filesystems in memory are one."""
    return f"{tmp_path}/once"


def test_a_write_whose_answer_was_lost_is_the_writers_own(path: str) -> None:
    assert write_once(LosesAnswers(), path, b"mine")
    assert not write_once(LosesAnswers(), path, b"another's")
    assert MemoryFileSystem().cat_file(path) == b"mine"
