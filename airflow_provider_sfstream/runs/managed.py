"""A run on a managed event subscription: Salesforce keeps the position, and is told of it once a window is durable.

The order of writes is data files, manifest, record, commit. The record (in a replay store that may be files in the
landing) says which windows make up the stream; the position that Salesforce keeps follows it and is never ahead of it.
Therefore

- killed before the commit, or with its acknowledgement lost, the next try or run finds the window recorded. Salesforce
  delivers its events again; they are left out, and the commit is repeated;
- Salesforce never goes on after an event that is not stored.

Source of the protocol facts: Pub/Sub API guide, "ManagedSubscribe RPC Method".
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Literal, Protocol

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.protocol.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.protocol.manifest import Manifest
from airflow_provider_sfstream.protocol.streams import Stream
from airflow_provider_sfstream.reading.source import EventSource
from airflow_provider_sfstream.runs.incremental import WindowOutcome, WindowRequest, drain_window
from airflow_provider_sfstream.stores.base import Position, ReplayStore
from airflow_provider_sfstream.stores.document.landing_files import LandingFiles

log = logging.getLogger(__name__)

LONGEST_DRAIN = 1500.0
"""Seconds that a drain may take: Salesforce ends a stream on which nothing was committed for 1,800."""


class ManagedEventSource(EventSource, Protocol):
    """A source on a managed subscription, which can also commit."""

    def commit(self, replay_id: bytes, timeout: float) -> None:
        """Tell Salesforce to go on after ``replay_id``, and wait for its acknowledgement."""
        ...


class CommittedWindows:
    """Up to which window Salesforce is known to have the position: a small file in the landing.

    It saves work and is no promise: where it is behind, or missing, more is looked through and committed again.
    """

    def __init__(self, stream: Stream, catalog: LandingCatalog) -> None:
        self._catalog = catalog
        self._stream = stream
        self._files = LandingFiles(catalog.landing)
        self._key = f"sfstream_committed.{stream.key[:12]}"

    def last(self) -> tuple[str, bytes] | None:
        """Return the id and the end of the last window whose commit was acknowledged, if that is known."""
        text = self._files.get(self._key)
        try:
            document = json.loads(text or "")
            return str(document["window_id"]), bytes.fromhex(document["replay_id"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def record(self, window_id: str, replay_id: bytes) -> None:
        """Note that Salesforce has acknowledged the end of a window."""
        document = {"stream": str(self._stream), "window_id": window_id, "replay_id": replay_id.hex()}
        self._files.set(self._key, json.dumps(document, indent=1), "")

    def later_windows(self, position: Position) -> Iterator[Manifest]:
        """Yield the windows that Salesforce may not know of yet, newest first."""
        known = self.last()
        if position.window_id is None:
            return
        for manifest in self._catalog.chain(self._stream, position.window_id):
            if known is not None and manifest.window.window_id == known[0]:
                return
            yield manifest

    def events_of_later_windows(self, position: Position) -> set[bytes]:
        """Return the replay IDs that those windows hold."""
        windows = self.later_windows(position)
        return {replay_id for manifest in windows for replay_id in self._catalog.replay_ids(manifest)}


ErrorRecovery = Literal["earliest", "latest"]


def drain_managed_window(
    request: WindowRequest,
    *,
    source: ManagedEventSource,
    store: ReplayStore,
    catalog: LandingCatalog,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> WindowOutcome:
    """Return the window of this run, draining it unless an earlier try did, and have Salesforce go on after it.

    ``request.on_invalid_replay`` is what the subscription's ``errorRecoveryReplay`` says: a position that can no longer
    be read is recorded as a gap. ``start_from`` has to be ``COMMITTED``.

    :raises CommitError: Salesforce did not take the commit. The window is recorded, and none of its events is lost or
        will be landed again.
    :raises SalesforceStreamError: as :func:`drain_window`.
    """
    outcome = drain_window(request, source=source, store=store, catalog=catalog, now=now)
    commit_head(request.stream, source=source, store=store, catalog=catalog)
    return outcome


def commit_head(
    stream: Stream, *, source: ManagedEventSource, store: ReplayStore, catalog: LandingCatalog
) -> bytes | None:
    """Have Salesforce go on after the last recorded window, unless it is known to; return the replay ID.

    :raises CommitError: Salesforce did not take the commit.
    :raises ServiceUnavailableError: it did not acknowledge it in time. The commit may have been carried out.
    """
    head, committed = store.read(stream), CommittedWindows(stream, catalog)
    last = committed.last()
    if head.window_id is None or head.replay_id is None or last == (head.window_id, head.replay_id):
        return head.replay_id
    if last is None or last[1] != head.replay_id:  # an empty window can end where the one before it did
        source.commit(head.replay_id, CONFIRM_TIMEOUT)
        log.info("%s: Salesforce goes on after %s (window %s).", stream, head.replay_id.hex(), head.window_id)
    committed.record(head.window_id, head.replay_id)
    return head.replay_id


def landed_but_uncommitted(stream: Stream, store: ReplayStore, catalog: LandingCatalog) -> Callable[[bytes], bool]:
    """Return a function that says of an event whether it is landed in a window that Salesforce may not know of.

    What is landed is read when it is first called: by then, no window has been added since the drain began.
    """
    landed: set[bytes] | None = None

    def is_landed(replay_id: bytes) -> bool:
        nonlocal landed
        if landed is None:
            landed = CommittedWindows(stream, catalog).events_of_later_windows(store.read(stream))
        return replay_id in landed

    return is_landed
