"""Search for a text in all files below a folder, including the compressed values of Parquet files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq


def files_with(folder: Path, mark: str) -> list[str]:
    """Return the files below a folder that contain a text anywhere, also in statistics and footers."""
    return sorted(name for name, content in contents(folder) if mark.encode() in content)


def contents(folder: Path) -> Iterable[tuple[str, bytes]]:
    """Yield the relative path and the bytes of each file below a folder.

    The bytes of a Parquet file are followed by all of its values as text.
    """
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes() + b"".join(_values(path))


def _values(path: Path) -> Iterable[bytes]:
    if path.suffix == ".parquet":
        for batch in pq.ParquetFile(path).iter_batches():
            for value in (value for column in batch.columns for value in column.to_pylist()):
                yield b"\n" + (value if isinstance(value, bytes) else str(value).encode())
