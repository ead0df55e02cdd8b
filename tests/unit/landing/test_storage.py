"""Single writes to a storage that is not local, with a filesystem in memory."""

from __future__ import annotations

from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from airflow_provider_sfstream.landing.storage import write_once


class LostResponses(MemoryFileSystem):
    """Filesystem whose response to each write is lost. Its retry finds the file in place, as with the S3 client."""

    cachable = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        super().pipe_file(path, value, mode=mode, **options)
        super().pipe_file(path, value, mode=mode, **options)


@pytest.fixture
def path(tmp_path: Any) -> str:
    """Return a path for this test alone, because all filesystems in memory share their files."""
    return f"{tmp_path}/once"


def test_write_with_a_lost_response_counts_as_written(path: str) -> None:
    assert write_once(LostResponses(), path, b"mine")
    assert not write_once(LostResponses(), path, b"another's")
    assert MemoryFileSystem().cat_file(path) == b"mine"
