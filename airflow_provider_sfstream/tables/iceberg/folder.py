"""Tables below an output folder, and their mirrors in a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pyiceberg.catalog import Catalog

from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.event_log.tables import find_tables
from airflow_provider_sfstream.tables.iceberg.mirror import DeltaVersion, IcebergTable, storage_uri
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.replica.delta_sink import versions_named
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.runner.engine import JobFiles

METADATA = "_sfstream/iceberg"
"""Folder of the metadata. It is outside of the Delta tables, because a program that drops an Iceberg table may delete
the table's whole folder."""


def iceberg_tables(files: JobFiles, base: str, catalog: Catalog, namespace: str) -> Iterator[IcebergTable]:
    """Yield the Iceberg table of each table of an event log and a replica, named in lower case, as Glue requires.

    The version of a replica's table is that of the current snapshot, so readers see no part of a run.
    """
    location, store = files.table_location(base), SnapshotStore(files, base)

    def version_of(name: str) -> DeltaVersion:
        (number,) = versions_named([store.current()]).get(name, {None})
        return DeltaVersion.read(DeltaTableLog(location.below(name)), number)

    oldest = {name: min(numbers) for name, numbers in versions_named(store.kept()).items()}
    current = versions_named([store.current()])
    events = find_tables(files, base)
    if "_delta_log" in files.folders(f"{base}/{QUARANTINE_TABLE}"):
        events.append(QUARANTINE_TABLE)
    for name in (*events, *sorted(current)):
        metadata = f"{storage_uri(location.uri)}/{METADATA}/{name}"
        identifier = (*namespace.split("."), name.lower())
        yield IcebergTable(catalog, identifier, metadata, partial(version_of, name), oldest.get(name, 0))
