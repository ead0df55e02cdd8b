"""Who still needs landed windows: replicas that have not applied them, event logs that have no rows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_provider_sfstream.actions.delta_logs import LOG, newest_version, values_of
from airflow_provider_sfstream.actions.storage import storage_path
from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.actions.worker_files import WorkerFiles

if TYPE_CHECKING:
    from airflow_provider_sfstream.replay_windows.pruning import OldWindow
    from airflow_provider_sfstream.salesforce.streams import Stream


@dataclass(frozen=True)
class Readers:
    """What is known of the readers of one stream's windows.

    ``needed``: ids of the windows that replicas stand on or hold back, and which replica. ``not_begun``: a replica that
    has nothing of the stream yet, to which every window is new.
    """

    needed: Mapping[str, str]
    not_begun: str | None
    event_log_urls: tuple[str, ...]
    conn_id: str | None

    @classmethod
    def of(
        cls, stream: Stream, replica_urls: Sequence[str], event_log_urls: Sequence[str], conn_id: str | None
    ) -> Readers:
        """Read how far replicas are.

        :param conn_id: Airflow connection of their storage, where it needs one.
        :raises ConfigurationError: if a replica's newest snapshot cannot be understood.
        """
        needed: dict[str, str] = {}
        not_begun = None
        for url in replica_urls:
            states = [
                state
                for state in read_snapshot(url, conn_id).streams.values()
                if (state.org_id, state.api, state.topic, state.subscription) == tuple(vars(stream).values())
            ]
            if not states:
                not_begun = url
            for state in states:
                needed |= {each.window_id: f"the replica at {url}" for each in (*state.held, state.last)}
        return cls(needed, not_begun, tuple(event_log_urls), conn_id)

    def still_needed(self, windows: Sequence[OldWindow]) -> Mapping[str, str]:
        """Return the ids of those of ``windows`` that somebody has yet to read, and who."""
        if self.not_begun is not None:
            reason = f"the replica at {self.not_begun} has no window of the stream yet"
            return dict.fromkeys([window.window_id for window in windows], reason)
        return {
            window_id: f"the event log at {url} has no row of window {window_id}"
            for url in self.event_log_urls
            for window_id in self._without_rows(url, windows)
        }

    def _without_rows(self, url: str, windows: Sequence[OldWindow]) -> set[str]:
        days = {
            window.first_event_time.date() + timedelta(days=number)
            for window in windows
            if window.event_count and window.first_event_time and window.last_event_time
            for number in range((window.last_event_time.date() - window.first_event_time.date()).days + 1)
        }
        with_events = {window.window_id for window in windows if window.event_count}
        return with_events - self._with_rows(url.rstrip("/"), days) if with_events else set()

    def _with_rows(self, url: str, days: set[date]) -> set[str]:
        """Return the ids of the windows that have rows in a table, on one of ``days``, or in the quarantine."""
        files = WorkerFiles(self.conn_id)
        partitions: set[str] = set()
        for table in files.file_names(url):
            if table == "_quarantine" or not table.startswith(("_", ".")):
                names = files.file_names(f"{url}/{table}")
                found = self._in_delta if LOG in names else self._in_folders
                partitions |= found(f"{url}/{table}", names, days)
        # A part of a window is in a partition of its own: the window's id, a dot, and the bounds of its times.
        return {partition.partition(".")[0] for partition in partitions}

    def _in_delta(self, table: str, names: list[str], days: set[date]) -> set[str]:
        """Return the window partitions of a Delta table's live files: what a killed job has left is no row."""
        from airflow_provider_sfstream.tables.delta.partition_files import window_of

        folder = storage_path(table, self.conn_id)
        found: set[str] = set()
        for path, file in newest_version(folder).files.items():
            window = window_of(path)
            if window is not None:
                found.add(window)
            elif file.get("partition.event_date") in (None, *days):  # a compaction has merged it from several
                found |= values_of(folder / path, "window_id")
        return found

    def _in_folders(self, table: str, names: list[str], days: set[date]) -> set[str]:
        files = WorkerFiles(self.conn_id)
        dated = {f"event_date={day}" for day in days}.intersection(names)
        inner = [name for day in dated for name in files.file_names(f"{table}/{day}")]
        windows = [name for name in (*names, *inner) if name.startswith("window_id=")]
        return {unquote(name.removeprefix("window_id=")) for name in windows}
