"""Delta version to mirror: its files, and the difference to the files of an Iceberg snapshot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog

_EVENT_DATE = "event_date"
"""The only partition column of this package's tables."""


@dataclass(frozen=True)
class MirroredFile:
    """Parquet file: its URI, size in bytes, number of rows, and value of the partition column, if there is one."""

    uri: str
    size: int
    rows: int
    event_date: Any = None


@dataclass(frozen=True)
class DeltaVersion:
    """Version of a Delta table.

    :param table_id: Delta's ID of the table.
    :param schema: all columns, nullable: Delta has no value for a column that a file lacks.
    :param files: files with rows, by URI.
    :param partitions: the partition column, or none.
    """

    uri: str
    number: int
    table_id: str
    schema: pa.Schema
    files: Mapping[str, MirroredFile]
    partitions: tuple[str, ...] = ()

    @classmethod
    def read(cls, log: DeltaTableLog, number: int | None = None) -> DeltaVersion:
        """Return a version, the newest if ``None``.

        :raises ConfigurationError: if it does not exist, or its files alone do not determine its rows.
        """
        version = log.version(number)
        table = version.opened or log.table(number)
        uri, partitions = storage_uri(log.location.uri), tuple(table.metadata().partition_columns)
        is_counted = all(file["num_records"] is not None for file in version.files.values())
        if partitions not in ((), (_EVENT_DATE,)) or not is_counted:
            raise ConfigurationError(
                f"{uri} cannot be published in a catalog: another program changed its partition columns, or wrote "
                "files without their number of rows. The Delta table is complete, and the catalog was not changed."
            )
        files = (
            MirroredFile(f"{uri}/{path}", file["size_bytes"], file["num_records"], file.get(f"partition.{_EVENT_DATE}"))
            for path, file in version.files.items()
            if file["num_records"]
        )
        schema = pa.schema([field.with_nullable(True) for field in pa.schema(table.schema().to_arrow())])
        by_uri = {file.uri: file for file in files}
        return cls(uri, version.number, str(table.metadata().id), schema, by_uri, partitions)

    def changes_since(self, mirrored: Collection[str]) -> tuple[Sequence[MirroredFile], Sequence[str]]:
        """Return the files that a snapshot with the files ``mirrored`` lacks, and those that it has too many."""
        added = [file for uri, file in self.files.items() if uri not in mirrored]
        return added, sorted(set(mirrored) - self.files.keys())


def storage_uri(location: str) -> str:
    """Return the URI by which other programs find a folder: that of delta-rs, with a scheme for a local folder."""
    return location if "://" in location else f"file://{location}"
