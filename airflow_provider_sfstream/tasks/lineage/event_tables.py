"""What tables of events have in them, read by a worker as far as it may."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_sfstream.tasks.delta_logs import newest_version
from airflow_provider_sfstream.tasks.storage import storage_path


@dataclass(frozen=True)
class TableContents:
    """A table as it is now.

    :param columns: column type by name, in order.
    :param files: how many it has of the windows that were asked for, of ``size`` bytes together; ``None`` where that is
        not known.
    :param version: the newest.
    """

    columns: dict[str, Any] = field(default_factory=dict)
    files: int | None = None
    size: int | None = None
    version: int | None = None


def table_contents(url: str, conn_id: str | None, windows: Collection[str]) -> TableContents:
    """Return what is in a table of events.

    :param conn_id: Airflow connection of the storage, where it needs one.
    :param windows: ids of those whose files are counted.
    :raises Exception: whatever the storage raises, where the table cannot be read here.
    """
    from airflow_provider_sfstream.spark.storage.column_registry import type_of_spark
    from airflow_provider_sfstream.spark.storage.partition_files import window_of

    table = newest_version(storage_path(url, conn_id))
    fields = json.loads(table.schema_json)["fields"] if table.schema_json else []
    # A part of a window is in a partition of its own: the window's id, a dot, and the bounds of its times.
    partitions = {path: (window_of(path) or "").split(".")[0] for path in table.files}
    sizes = [int(file["size_bytes"]) for path, file in table.files.items() if partitions[path] in windows]
    columns = {each["name"]: type_of_spark(each["type"]) for each in fields}
    return TableContents(columns, len(sizes), sum(sizes), table.number)


def event_columns(columns: dict[str, Any]) -> dict[str, str]:
    """Return the columns that have the values of one field or landed column unchanged, and which that is.

    A field whose type has changed is written to a column named after the new type, ``Amount__c__string``: both are of
    one field.
    """
    from airflow_provider_sfstream.spark.rows.event_batches import ENVELOPE, PARTITIONS
    from airflow_provider_sfstream.spark.storage.column_registry import kind_of

    origins = {f"_{name}": name for name in ("replay_id", "event_id", "schema_id", "received_at", "ordinal")}
    origins = {column: name for column, name in origins.items() if column in columns}
    for column, type_ in columns.items():
        if column not in ENVELOPE | PARTITIONS:
            first = column.removesuffix(f"__{kind_of(type_)}")
            origins[column] = first if first in columns else column
    return origins
