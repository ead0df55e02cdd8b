"""Looks for a text in every file below a folder: in its bytes, and in the values that Parquet files hold compressed."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq


def files_with(folder: Path, mark: str) -> list[str]:
    """Return the files below a folder that hold a text somewhere, statistics and footers included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and _has(path, mark))


def _has(path: Path, mark: str) -> bool:
    if mark.encode() in path.read_bytes():
        return True
    if path.suffix != ".parquet":
        return False
    file = pq.ParquetFile(path)
    columns = (column for batch in file.iter_batches() for column in batch.columns)
    texts = (value if isinstance(value, bytes) else str(value).encode() for c in columns for value in c.to_pylist())
    return any(mark.encode() in text for text in texts)
