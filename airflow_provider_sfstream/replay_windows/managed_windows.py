"""Windows of a managed event subscription: a run commits to Salesforce once its window is durable.

The order of writes is data files, manifest, record, commit. The record (in a replay store that may consist of files in
the landing) lists the windows of the stream. The position that Salesforce stores follows it and is never ahead of it.
Consequences:

- After a kill before the commit, or a lost acknowledgement, the next try or run finds the window recorded. Salesforce
  delivers its events again; they are skipped, and the commit is repeated.
- This package never commits a position after an event that is not stored.

Salesforce can drop the position that it stores, and others can move it. The recorded one is the source of truth: the
source compares the two, and reads after the recorded one.

Source of the protocol facts: Pub/Sub API guide, "ManagedSubscribe RPC Method".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.replaced_files import StoredDocument
from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome, WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.managed.source import ManagedSource

log = logging.getLogger(__name__)

LONGEST_DRAIN = 1500.0
"""Longest drain, in seconds: Salesforce ends a stream without a commit after 1,800 seconds."""


@dataclass(frozen=True)
class CommittedWindow:
    """The last window whose commit Salesforce has acknowledged, its end, and the record ID of the managed subscription,
    if it was read."""

    stream: Stream
    window_id: str
    replay_id: bytes
    subscription_id: str | None


_DOCUMENT = StoredDocument(
    CommittedWindow, format="sfstream-committed-window", version=1, noun="record of a commit", remedy="."
)


class CommittedWindows:
    """File in the landing that names the last window whose commit Salesforce has acknowledged.

    It only saves work. If it is outdated, missing or damaged, more windows are searched and committed again.
    """

    def __init__(self, stream: Stream, catalog: LandingCatalog) -> None:
        self._catalog = catalog
        self._stream = stream
        self._path = catalog.landing.position_path(f"sfstream_committed.{stream.key[:12]}")

    def last(self) -> CommittedWindow | None:
        """Return the last window whose commit was acknowledged, if known."""
        try:
            return _DOCUMENT.read(self._catalog.landing.filesystem, self._path)
        except ManifestError:
            return None

    def record(self, window_id: str, replay_id: bytes, subscription_id: str | None = None) -> None:
        """Record that Salesforce has acknowledged the end of a window. ``None`` keeps the subscription's ID."""
        if subscription_id is None and (last := self.last()) is not None:
            subscription_id = last.subscription_id
        committed = CommittedWindow(self._stream, window_id, replay_id, subscription_id)
        what = f"The last committed window of {self._stream}"
        _DOCUMENT.write(self._catalog.landing.filesystem, self._path, committed, what)

    def uncommitted_events(self, head: str | None) -> set[bytes]:
        """Return the replay IDs of the events in windows up to the recorded ``head`` that may not be committed yet."""
        last_committed, events = self.last(), set[bytes]()
        for manifest in () if head is None else self._catalog.chain(self._stream, head):
            if last_committed is not None and manifest.window.window_id == last_committed.window_id:
                break
            events.update(self._catalog.replay_ids(manifest))
        return events


def drain_managed_window(
    landed: LandedStream,
    request: WindowRequest,
    *,
    source: ManagedSource,
    subscription_id: str | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> WindowOutcome:
    """Return the window of this run, after draining it unless an earlier try did; commit its end to Salesforce.

    ``request.on_invalid_replay`` is the user's policy, or that of the subscription's ``errorRecoveryReplay``: a
    position that can no longer be read is then recorded as a gap. ``start_from`` must be ``COMMITTED``.

    :param subscription_id: record ID of the managed subscription, if it could be read.
    :raises CommitError: Salesforce did not accept the commit. The window is recorded, and none of its events is lost or
        will be landed again.
    """
    request = replace(request, limits=_with_time_limit(request.limits))
    outcome = drain_window(landed, request, source=source, now=now)
    commit_head(landed, source, subscription_id)
    return outcome


def _with_time_limit(limits: DrainLimits) -> DrainLimits:
    """Return ``limits`` that end before Salesforce ends a stream without a commit."""
    seconds = LONGEST_DRAIN if limits.max_seconds is None else min(LONGEST_DRAIN, limits.max_seconds)
    return replace(limits, max_seconds=seconds)


def commit_head(landed: LandedStream, source: ManagedSource, subscription_id: str | None = None) -> bytes | None:
    """Commit the end of the last recorded window to Salesforce, unless it is already committed; return its replay ID.

    If its position was dropped or moved and a commit cannot change that yet, the next run compares again.

    :raises CommitError: Salesforce did not accept the commit.
    :raises ServiceUnavailableError: no acknowledgement arrived in time. The commit may have been carried out.
    """
    head, committed = landed.position(), CommittedWindows(landed.stream, landed.catalog)
    last = committed.last()
    if head.window_id is None or head.replay_id is None:
        return head.replay_id
    if last is not None and (last.window_id, last.replay_id) == (head.window_id, head.replay_id):
        return head.replay_id
    # An empty window can end at the same position as the one before it.
    if last is None or last.replay_id != head.replay_id or source.differs:
        if not source.commit(head.replay_id, CONFIRM_TIMEOUT):
            return head.replay_id
        log.info("%s: committed %s to Salesforce (window %s).", landed.stream, head.replay_id.hex(), head.window_id)
    committed.record(head.window_id, head.replay_id, subscription_id)
    return head.replay_id


def landed_but_uncommitted(landed: LandedStream) -> Callable[[bytes], bool]:
    """Return a function that checks whether an event is landed in a window that may not be committed.

    The first call reads the landed events: until then, no window has been added since the drain began.
    """
    events: set[bytes] | None = None

    def is_landed(replay_id: bytes) -> bool:
        nonlocal events
        if events is None:
            committed = CommittedWindows(landed.stream, landed.catalog)
            events = committed.uncommitted_events(landed.position().window_id)
        return replay_id in events

    return is_landed
