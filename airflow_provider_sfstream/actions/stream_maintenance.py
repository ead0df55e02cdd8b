"""Maintenance of a stream, for operators and the command line: reset a position, restore it from the landing, and prune
old windows.

Each function takes the name of the user or task, for the audit record, and returns the result of the operator.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_sfstream.actions.object_storage_files import LOG, ObjectStorageFiles, newest_version, values_of
from airflow_provider_sfstream.actions.storage import storage_path
from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.exceptions import ConfigurationError, ReplayStoreCorruptError
from airflow_provider_sfstream.hooks.event_topics import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.replay_stores.kinds import PositionStoreKind
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_text, replay_id_to_integer, replay_id_to_text
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream
from airflow_provider_sfstream.salesforce.topics import Api, Topic

if TYPE_CHECKING:
    from airflow_provider_sfstream.replay_stores.base import ReplayStore
    from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream

log = logging.getLogger(__name__)


class RecordedStream(Protocol):
    """The arguments that name a stream, and the store that has its position."""

    topic: str
    api: Api | None
    subscription: str
    salesforce_conn_id: str
    replay_store: PositionStoreKind
    replay_store_conn_id: str


def reset_position(names: RecordedStream, replay_id: str | None, *, reason: str, reset_by: str) -> dict[str, Any]:
    """Set a stream's position, or remove it (``None``); return the replay IDs ``before`` and ``after``, as hex text.

    :raises ConfigurationError: if an argument cannot be used, or ``reason`` is empty. Nothing was moved.
    """
    topic = Topic.parse(names.topic, names.api)
    to = None if replay_id is None else replay_id_from_text(replay_id)
    if to is not None and topic.api == "streaming":
        replay_id_to_integer(to)
    if not str(reason).strip():
        raise ConfigurationError("reason is empty. Set the reason of the reset. The position was not moved.")
    store = open_replay_store(names.replay_store, names.replay_store_conn_id)
    org_id = event_hook(topic.api, names.salesforce_conn_id).org_id
    stream = Stream(org_id, topic.api, topic.name, names.subscription)
    before = _read(store, stream)
    after = store.reset(stream, to, reason=reason, updated_by=reset_by)
    log.warning("Position of %s reset from %s to %s: %s", stream, before, replay_id_to_text(after.replay_id), reason)
    return {"before": before, "after": replay_id_to_text(after.replay_id)}


def _read(store: ReplayStore, stream: Stream) -> str | None:
    """Return the position as hex text. A damaged position does not stop the reset, which repairs it."""
    try:
        return replay_id_to_text(store.read(stream).replay_id)
    except ReplayStoreCorruptError as error:
        log.warning("The position cannot be read, and is replaced: %s", error)
        return None


def restore_position(landed: LandedStream, last_window_id: str | None, *, restored_by: str) -> dict[str, Any]:
    """Record the landed windows that the store lost, and move the position to the end of the last one.

    :return: the positions ``before`` and ``after`` as hex text, the ``window_id`` of the latter, and how many
        ``live_windows`` and ``backfill_windows`` were recorded.
    """
    from airflow_provider_sfstream.replay_windows import restoring

    restored = restoring.restore_from_landing(
        landed, now=datetime.now(UTC), updated_by=restored_by, last_window_id=last_window_id or None
    )
    counts = restored.live_windows, restored.backfill_windows
    text = "%s: recorded %d windows and %d backfill windows of the landing; the position moved from %s to %s."
    log.warning(text, landed.stream, *counts, restored.before, restored.after)
    return {
        "before": replay_id_to_text(restored.before.replay_id),
        "after": replay_id_to_text(restored.after.replay_id),
        "window_id": restored.after.window_id,
        "live_windows": restored.live_windows,
        "backfill_windows": restored.backfill_windows,
    }


def prune_windows(
    landed: LandedStream,
    *,
    older_than: timedelta,
    replica_urls: Sequence[str],
    event_log_urls: Sequence[str],
    output_conn_id: str | None,
    keep_last: int,
    dry_run: bool,
    pruned_by: str,
) -> dict[str, Any]:
    """Remove old windows; return counts of removed and kept ones. The arguments are those of the operator."""
    from airflow_provider_sfstream.replay_windows import pruning

    stream = landed.stream
    readers = WindowConsumers.for_stream(stream, replica_urls, event_log_urls, output_conn_id)
    outcome = pruning.prune_stream(
        landed,
        older_than,
        keep_last=keep_last,
        needed=readers.needed,
        still_needed=readers.still_needed,
        dry_run=dry_run,
        pruned_by=pruned_by,
    )
    removed = outcome.removed
    summary = {
        "stream": dict(vars(stream)),
        "dry_run": dry_run,
        "windows": len(removed),
        "events": sum(old.window.event_count for old in removed),
        "bytes": sum(old.bytes for old in removed),
        "first_window": removed[0].window.window_id if removed else None,
        "last_window": removed[-1].window.window_id if removed else None,
        "kept": outcome.kept,
        "kept_because": outcome.kept_because,
    }
    facts = [summary[name] for name in ("windows", "events", "bytes", "first_window", "last_window")]
    removes = "would remove" if dry_run else "removed"
    log.info("%s: %s %d windows with %d events, %d bytes (%s to %s).", stream, removes, *facts)
    if outcome.kept:
        log.warning("%s: %d windows of the same age remain: %s.", stream, outcome.kept, outcome.kept_because)
    return summary


@dataclass(frozen=True)
class WindowConsumers:
    """Readers of one stream's windows.

    ``needed``: ids of the windows that replicas stand on or hold back, and which replica. ``not_begun``: a replica that
    has nothing of the stream yet, to which every window is new.
    """

    needed: Mapping[str, str]
    not_begun: str | None
    event_log_urls: tuple[str, ...]
    conn_id: str | None

    @classmethod
    def for_stream(
        cls, stream: Stream, replica_urls: Sequence[str], event_log_urls: Sequence[str], conn_id: str | None
    ) -> WindowConsumers:
        """Return the readers, after reading how far the replicas are."""
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

    def still_needed(self, windows: Sequence[ReplayWindow]) -> Mapping[str, str]:
        """Return the ids of unread ``windows``, with their readers."""
        if self.not_begun is not None:
            reason = f"the replica at {self.not_begun} has no window of the stream yet"
            return dict.fromkeys([window.window_id for window in windows], reason)
        return {
            window_id: f"the event log at {url} has no row of window {window_id}"
            for url in self.event_log_urls
            for window_id in self._without_rows(url, windows)
        }

    def _without_rows(self, url: str, windows: Sequence[ReplayWindow]) -> set[str]:
        days = {
            window.first_event_time.date() + timedelta(days=number)
            for window in windows
            if window.event_count and window.first_event_time and window.last_event_time
            for number in range((window.last_event_time.date() - window.first_event_time.date()).days + 1)
        }
        with_events = {window.window_id for window in windows if window.event_count}
        return with_events - self._with_rows(url.rstrip("/"), days) if with_events else set()

    def _with_rows(self, url: str, days: set[date]) -> set[str]:
        """Return the ids of the windows that have rows in a table, on one of ``days``, or in the quarantine.

        Rows that a replica has put into the quarantine do not show that the event log has read the window.
        """
        from airflow_provider_sfstream.tables.quarantine import is_of_replica

        files = ObjectStorageFiles(self.conn_id)
        partitions: set[str] = set()
        for table in files.file_names(url):
            if table != "_quarantine" and table.startswith(("_", ".")):
                continue
            if LOG in files.file_names(f"{url}/{table}"):
                partitions |= self._in_delta(f"{url}/{table}", days)
        # A part of a window is in a partition of its own: the window's id, a dot, and the bounds of its times.
        return {partition.partition(".")[0] for partition in partitions if not is_of_replica(partition)}

    def _in_delta(self, table: str, days: set[date]) -> set[str]:
        """Return the window partitions of a Delta table's live files: files of a killed job have no rows."""
        from airflow_provider_sfstream.tables.delta.table_files import window_of

        folder = storage_path(table, self.conn_id)
        windows: set[str] = set()
        version = newest_version(folder)
        if '"window_id"' not in version.schema_json:  # a table of a replica
            return windows
        for path, file in version.files.items():
            window = window_of(path)
            if window is not None:
                windows.add(window)
            elif file.get("partition.event_date") in (None, *days):  # a compaction has merged it from several
                windows |= values_of(folder / path, "window_id")
        return windows
