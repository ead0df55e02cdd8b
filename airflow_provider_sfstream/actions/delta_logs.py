"""Which files a Delta table has, read by a worker with an Airflow connection: delta-rs knows no such connections."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_sfstream.tables.delta.delta_table import TableVersion

LOG = "_delta_log"
_NUMBERED = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet)")


def newest_version(table: ObjectStoragePath) -> TableVersion:
    """Return the newest version of a table.

    Its log is copied and read here: the last checkpoint, and the commits since.

    :param table: the table's folder, which has a log.
    :raises ConfigurationError: if its files alone do not tell its rows.
    """
    from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
    from airflow_provider_sfstream.tables.delta.table_location import TableLocation

    names = [(_NUMBERED.fullmatch(path.name), path) for path in (table / LOG).iterdir()]
    found = [(match[1], match[2], path) for match, path in names if match]
    since = max((number for number, kind, _ in found if kind != "json"), default="")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, LOG)
        log.mkdir()
        for number, kind, path in found:
            if number >= since and (kind == "json" or number == since):
                (log / path.name).write_bytes(path.read_bytes())
        return DeltaTableLog(TableLocation(folder)).version()


def values_of(file: ObjectStoragePath, column: str) -> set[Any]:
    """Return the values of a column of a Parquet file."""
    import pyarrow.parquet as pq

    with file.open("rb") as stream:  # type: ignore[no-untyped-call]
        values = pq.ParquetFile(stream).read(columns=[column]).column(column)
    return set(values.unique().to_pylist())
