"""What is done to a stream on purpose, by an operator or at the command line: its position reset, or restored from the
landing, and old windows removed.

Each is called with who does it, for the audit record, and returns what an operator gives as its result.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_sfstream.exceptions import ConfigurationError, ReplayStoreCorruptError
from airflow_provider_sfstream.hooks.event_api import event_hook
from airflow_provider_sfstream.hooks.replay_store import PositionStoreKind, open_replay_store
from airflow_provider_sfstream.salesforce.streams import Stream
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
    """Set a stream's position, or forget it; return what it was and what it is, ``before`` and ``after``, as hex text.

    :param replay_id: as hex text; ``None`` to forget the position.
    :raises ConfigurationError: if an argument cannot be used, or ``reason`` is empty. Nothing was moved.
    :raises SalesforceStreamError: if the login or the store fails.
    """
    from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_text, replay_id_to_integer

    topic = Topic.parse(names.topic, names.api)
    to = None if replay_id is None else replay_id_from_text(replay_id)
    if to is not None and topic.api == "streaming":
        replay_id_to_integer(to)
    if not str(reason).strip():
        raise ConfigurationError("reason is empty. Say why the position is reset; it was not moved.")
    store = open_replay_store(names.replay_store, names.replay_store_conn_id)
    org_id = event_hook(topic.api, names.salesforce_conn_id).org_id
    stream = Stream(org_id, topic.api, topic.name, names.subscription)
    before = _read(store, stream)
    after = store.reset(stream, to, reason=reason, updated_by=reset_by)
    log.warning("Position of %s reset from %s to %s: %s", stream, before, hex_of(after.replay_id), reason)
    return {"before": before, "after": hex_of(after.replay_id)}


def _read(store: ReplayStore, stream: Stream) -> str | None:
    """Return the position as hex text. A spoilt one does not stop the reset, which is its remedy."""
    try:
        return hex_of(store.read(stream).replay_id)
    except ReplayStoreCorruptError as error:
        log.warning("The position cannot be read and is replaced: %s", error)
        return None


def restore_position(landed: LandedStream, last_window_id: str | None, *, restored_by: str) -> dict[str, Any]:
    """Record the landed windows that the store lost, and move the position to the end of the last one.

    :return: ``before`` and ``after``, the positions as hex text, the ``window_id`` that the position stands on, and
        how many ``live_windows`` and ``backfill_windows`` were recorded.
    :raises SalesforceStreamError: see :func:`~airflow_provider_sfstream.replay_windows.restoring.restore_position`.
    """
    from airflow_provider_sfstream.replay_windows import restoring

    restored = restoring.restore_position(
        landed.stream,
        store=landed.store,
        catalog=landed.catalog,
        now=datetime.now(UTC),
        updated_by=restored_by,
        last_window_id=last_window_id or None,
    )
    log.warning(
        "%s: recorded %d windows and %d backfill windows of the landing; the position went from %s to %s.",
        landed.stream,
        restored.live_windows,
        restored.backfill_windows,
        restored.before,
        restored.after,
    )
    return {
        "before": hex_of(restored.before.replay_id),
        "after": hex_of(restored.after.replay_id),
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
    """Remove the old windows that nobody needs; the arguments are those of the operator.

    :return: what was removed, or would be, and what stays.
    :raises SalesforceStreamError: if landing, store or a reader's folder cannot be read.
    """
    from airflow_provider_sfstream.actions.readers import Readers
    from airflow_provider_sfstream.replay_windows import pruning

    stream = landed.stream
    readers = Readers.of(stream, replica_urls, event_log_urls, output_conn_id)
    request = pruning.PruneRequest(
        stream=stream,
        older_than=older_than,
        keep_last=keep_last,
        needed=readers.needed,
        still_needed=readers.still_needed,
        dry_run=dry_run,
    )
    outcome = pruning.prune_windows(request, store=landed.store, catalog=landed.catalog, pruned_by=pruned_by)
    removed = outcome.removed
    summary = {
        "stream": dict(vars(stream)),
        "dry_run": dry_run,
        "windows": len(removed),
        "events": sum(window.event_count for window in removed),
        "bytes": sum(window.bytes for window in removed),
        "first_window": removed[0].window_id if removed else None,
        "last_window": removed[-1].window_id if removed else None,
        "kept": outcome.kept,
        "kept_because": outcome.kept_because,
    }
    log.info(
        "%s: %s %d windows with %d events, %d bytes (%s to %s).",
        stream,
        "would remove" if dry_run else "removed",
        *(summary[name] for name in ("windows", "events", "bytes", "first_window", "last_window")),
    )
    if outcome.kept:
        log.warning("%s: %d windows as old stay: %s.", stream, outcome.kept, outcome.kept_because)
    return summary


def hex_of(replay_id: bytes | None) -> str | None:
    """Return a replay ID as hex text; ``None`` where there is none."""
    return None if replay_id is None else replay_id.hex()
