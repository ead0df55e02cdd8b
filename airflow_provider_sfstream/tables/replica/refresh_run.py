"""A run of the ``replica`` job that merges fetched records: from what was fetched to the next snapshot."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.replica.refresh import flag_after
from airflow_provider_sfstream.tables.replica.refresh_document import RefreshDocument, TableRefresh
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, StreamState, TableState
from airflow_provider_sfstream.tables.runner.engine import JobFiles

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.replica.config import ReplicaMetrics
    from airflow_provider_sfstream.tables.replica.tables import ReplicaTables


class RefreshRun:
    """Merges the records of one refresh.

    :param snapshot: the replica as it is now, which may be later than the one that the refresh began with.
    :param url: of the refresh's document.
    :param max_deleted_fraction: the share of a table's rows that may be gone from the org.
    """

    def __init__(
        self, files: JobFiles, tables: ReplicaTables, snapshot: Snapshot, url: str, max_deleted_fraction: float
    ) -> None:
        self._files, self._tables, self._snapshot = files, tables, snapshot
        self._url, self._max_deleted_fraction = files.url(url), max_deleted_fraction

    def run(self, metrics: ReplicaMetrics) -> Snapshot:
        """Return the snapshot that follows.

        :raises ConfigurationError: if the refresh is not of this replica, or cannot be found or read, or too many
            records are gone; nothing was published.
        """
        document = self._document()
        changed: dict[str, TableState] = {}
        for name, refresh in sorted(document.tables.items()):
            table, stream = self._table(name, refresh)
            folder = self._url.rpartition("/")[0]
            if refresh.mode == "compare":
                changed[name], metrics.of_table(name).reconciliation = self._tables.reconcile(
                    name, table, refresh, folder, document.refresh_id
                )
                continue
            moved_on = stream.applied_sequence > refresh.applied_sequence
            applied = self._tables.refresh(
                name, table, refresh, folder, moved_on=moved_on, max_deleted_fraction=self._max_deleted_fraction
            )
            changed[name] = replace(applied.table, flag=flag_after(table.flag, refresh, stream))
            of_table = metrics.of_table(name)
            of_table.rows += applied.rows
            of_table.deleted += applied.deleted
            of_table.differed += applied.differed
        return self._snapshot.next({}, changed, datetime.now(UTC))

    def _document(self) -> RefreshDocument:
        try:
            return RefreshDocument.from_json(self._files.read_text(self._url), self._url)
        except FileNotFoundError:
            raise ConfigurationError(
                f"There is no refresh at {self._url}: another one has begun since, and removed it. Let one refresh at "
                "a time work on a replica, and run it again. Nothing was published."
            ) from None

    def _table(self, name: str, refresh: TableRefresh) -> tuple[TableState, StreamState]:
        table = self._snapshot.tables.get(name)
        if table is None or table.stream != refresh.stream:
            raise ConfigurationError(
                f"{self._url} has records of {name} made from the stream {refresh.stream}; the replica has no such "
                "table any longer. Run the refresh again. Nothing was published."
            )
        self._tables.check(name, table)
        return table, self._snapshot.streams[table.stream]
