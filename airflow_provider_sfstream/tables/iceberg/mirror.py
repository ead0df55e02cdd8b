"""Iceberg tables over the Parquet files of Delta tables: only metadata is written.

A mirror compares the files of the current Delta version with those of the current Iceberg snapshot, and commits the
difference as one snapshot. So each mirror also repairs what earlier ones missed. The metadata has no value of a column
but the partition's: no statistics that an erasure would have to remove.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles
from pyiceberg.typedef import Record
from pyiceberg.utils.datetime import date_to_days

from airflow_provider_sfstream.exceptions import ConfigurationError, PositionConflictError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.event_log.tables import find_tables
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.replica.delta_sink import versions_named
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.runner.engine import JobFiles

log = logging.getLogger(__name__)

METADATA = "_sfstream/iceberg"
"""Folder of the metadata. It is outside of the Delta tables, because a program that drops an Iceberg table may delete
the table's whole folder."""
DELTA_TABLE, DELTA_ID, DELTA_VERSION = "sfstream.delta-table", "sfstream.delta-table-id", "sfstream.delta-version"
"""Property of an Iceberg table, and two of its snapshots."""
READABLE = timedelta(hours=24)
"""Time for which older snapshots stay. Maintenance keeps the files of a Delta version for at least as long."""
_TRIES = 5
"""Attempts to commit, each lost to another program that committed first."""
_MANIFESTS, _MANIFEST_BYTES = 20, 8 << 20
"""Number of manifests from which they are merged, and the size of a merged one, which is pyiceberg's."""
_PROPERTIES = {
    # The files are Delta's: other programs must neither remove them with a snapshot nor with the table.
    "gc.enabled": "false",
    # A repeated commit of pyiceberg does not compare the files again.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
_NAMES = "schema.name-mapping.default"
"""Property that maps column names to Iceberg's field IDs, which Delta's files do not have."""
_EVENT_DATE = "event_date"
"""The only partition column of this package's tables."""


@dataclass(frozen=True)
class DeltaVersion:
    """Version of a Delta table.

    :param table_id: Delta's ID of the table.
    :param schema: all columns, nullable: Delta has no value for a column that a file lacks.
    :param files: files with rows, by URI, as in ``TableVersion``.
    :param partitions: the partition column, or none.
    """

    uri: str
    number: int
    table_id: str
    schema: pa.Schema
    files: Mapping[str, Mapping[str, Any]]
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
        schema = pa.schema([field.with_nullable(True) for field in pa.schema(table.schema().to_arrow())])
        files = {f"{uri}/{path}": file for path, file in version.files.items() if file["num_records"]}
        return cls(uri, version.number, str(table.metadata().id), schema, files, partitions)

    def changes_since(self, mirrored: Collection[str]) -> tuple[Sequence[str], Sequence[str]]:
        """Return the files that a snapshot with the files ``mirrored`` lacks, and those that it has too many."""
        added = [uri for uri in self.files if uri not in mirrored]
        return added, sorted(set(mirrored) - self.files.keys())


def storage_uri(location: str) -> str:
    """Return the URI by which other programs find a folder: that of delta-rs, with a scheme for a local folder."""
    return location if "://" in location else f"file://{location}"


@dataclass(frozen=True)
class Mirrored:
    """Delta version of a table, that of the newest mirror before (``None``: no table), and the numbers of files that
    the Iceberg snapshot lacked, and had too many."""

    delta_version: int
    mirrored_version: int | None
    missing_files: int
    removed_files: int

    @property
    def is_current(self) -> bool:
        return self.mirrored_version is not None and not self.missing_files and not self.removed_files


class IcebergTable:
    """Table of a catalog that mirrors a Delta table.

    :param identifier: namespace and name.
    :param location: URI of the folder of its metadata, outside of the Delta table's.
    :param read: returns the Delta version to mirror.
    :param oldest: the first Delta version whose files exist.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: tuple[str, ...],
        location: str,
        read: Callable[[], DeltaVersion],
        oldest: int = 0,
    ) -> None:
        self._catalog, self._identifier, self._location = catalog, identifier, location
        self._read, self._oldest = read, oldest
        self.name = ".".join(identifier)

    def state(self) -> Mirrored:
        """Compare the table with the Delta table, and change nothing."""
        table, version = self._load()
        if table is None:
            return Mirrored(version.number, None, len(version.files), 0)
        added, removed = version.changes_since(_files(table))
        return Mirrored(version.number, _mirrored_version(table), len(added), len(removed))

    def mirror(self) -> Mirrored:
        """Create the table if necessary, and commit the difference; return the state before.

        Snapshots of Delta versions whose files do not exist, and those older than :data:`READABLE`, are removed.

        :raises ConfigurationError: if the catalog's table is not a mirror of this Delta table; it was not changed.
        :raises PositionConflictError: if other programs committed first in each attempt.
        """
        for _ in range(_TRIES):
            with suppress(CommitFailedException, TableAlreadyExistsError):
                table, version = self._load()
                mirrored = None if table is None else _mirrored_version(table)
                table = table or self._create(version)
                files = _files(table)
                added, too_many = version.changes_since(files)
                if added or too_many or mirrored != version.number:
                    _commit(table, version, added, [files[uri] for uri in too_many])
                _expire(table, self._oldest)
                return Mirrored(version.number, mirrored, len(added), len(too_many))
        raise PositionConflictError(
            f"{self.name}: in {_TRIES} attempts, other programs committed to the catalog first. The "
            "Delta table is complete. The next mirror repairs the catalog's table."
        )

    def _load(self) -> tuple[Table | None, DeltaVersion]:
        """Return the table and then the Delta version: a version read later is not older than a mirrored one."""
        table = None
        with suppress(NoSuchTableError):
            table = self._catalog.load_table(self._identifier)
        version = self._read()
        if table is not None and table.properties.get(DELTA_TABLE) != version.uri:
            raise ConfigurationError(
                f"{self.name} exists in the catalog, and is not a mirror of {version.uri}. It was not "
                "changed. Use another catalog_namespace."
            )
        return table, version

    def _create(self, version: DeltaVersion) -> Table:
        self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        properties = {**_PROPERTIES, DELTA_TABLE: version.uri}
        with self._catalog.create_table_transaction(
            self._identifier, version.schema, self._location, properties=properties
        ) as transaction:
            with transaction.update_spec() as spec:
                for column in version.partitions:
                    spec.add_identity(column)
            transaction.set_properties({_NAMES: transaction.table_metadata.schema().name_mapping.model_dump_json()})
        return self._catalog.load_table(self._identifier)


class _MirrorFiles(_OverwriteFiles):
    """Snapshot that adds and removes files. Unlike pyiceberg's, it drops manifests without a live file, and merges
    small manifests as pyiceberg's appends do: else a table would have one more of them with each snapshot."""

    def _existing_manifests(self) -> list[ManifestFile]:
        return [each for each in super()._existing_manifests() if each.has_added_files() or each.has_existing_files()]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        return _ManifestMergeManager(_MANIFEST_BYTES, _MANIFESTS, True, self).merge_manifests(manifests)


def _commit(table: Table, version: DeltaVersion, added: Sequence[str], removed: Sequence[DataFile]) -> None:
    """Add columns, and add and remove files, in one commit; none if there is nothing to change."""
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.union_by_name(version.schema)
        if not added and not removed:
            return
        properties = {DELTA_ID: version.table_id, DELTA_VERSION: str(version.number)}
        operation = Operation.OVERWRITE if removed else Operation.APPEND
        snapshot = _MirrorFiles(operation, transaction, table.io, snapshot_properties=properties)
        for file in removed:
            snapshot.delete_data_file(file)
        for uri in added:
            snapshot.append_data_file(_data_file(uri, version.files[uri], table.spec()))
        snapshot.commit()


def _data_file(uri: str, file: Mapping[str, Any], spec: PartitionSpec) -> DataFile:
    date = file.get(f"partition.{_EVENT_DATE}")
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=Record(*([None if date is None else date_to_days(date)] if spec.fields else [])),
        record_count=file["num_records"],
        file_size_in_bytes=file["size_bytes"],
    )
    data_file.spec_id = spec.spec_id
    return data_file


def _expire(table: Table, oldest: int) -> None:
    """Remove older snapshots, and then their metadata files. A killed removal leaves small files behind."""
    expired = [snapshot for snapshot in table.snapshots() if _is_expired(snapshot, table, oldest)]
    if not expired:
        return
    files = {path for snapshot in expired for path in _metadata_files(snapshot, table)}
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in expired]).commit()
    table.refresh()
    for path in files.difference(*(_metadata_files(snapshot, table) for snapshot in table.snapshots())):
        with suppress(FileNotFoundError):
            table.io.delete(path)


def _is_expired(snapshot: Snapshot, table: Table, oldest: int) -> bool:
    if snapshot.snapshot_id in {ref.snapshot_id for ref in table.metadata.refs.values()}:
        return False
    age = datetime.now(UTC) - datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    return age > READABLE or int(_summary(snapshot).get(DELTA_VERSION, 0)) < oldest


def _metadata_files(snapshot: Snapshot, table: Table) -> set[str]:
    return {snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(table.io))}


def _files(table: Table) -> dict[str, DataFile]:
    """Return the data files of the current snapshot by URI."""
    return {task.file.file_path: task.file for task in table.scan().plan_files()}


def _mirrored_version(table: Table) -> int:
    """Return the Delta version of the newest snapshot that is a mirror, -1 if there is none."""
    snapshot = table.current_snapshot()
    return -1 if snapshot is None else int(_summary(snapshot).get(DELTA_VERSION, -1))


def _summary(snapshot: Snapshot) -> Mapping[str, Any]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


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
