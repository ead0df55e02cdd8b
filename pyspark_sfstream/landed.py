"""Selection of the windows to read, on the Spark driver."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_windows.committed_order import newest_committed, windows_after
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream
from airflow_provider_sfstream.tables.delta.landed_windows import load_windows
from airflow_provider_sfstream.tables.source.files import SourceFiles
from airflow_provider_sfstream.tables.source.options import SourceOptions

if TYPE_CHECKING:
    from airflow_provider_sfstream.replay_stores.base import ReplayStore
    from airflow_provider_sfstream.replay_stores.kinds import ReplayStoreKind

Heads = dict[str, str]
"""The last window read from each stream, by :func:`key_of`. A missing stream has not been read yet."""


def key_of(stream: Stream) -> str:
    return json.dumps(list(vars(stream).values()))


class LandedSource:
    """The windows of a landing, or of the manifests in the options.

    :raises ConfigurationError: if the landing cannot be used.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.files = SourceFiles(options.storage)
        self._read: dict[str, tuple[str | None, list[Manifest]]] = {}
        if options.path:
            self._catalog = LandingCatalog(Landing.from_url(options.path, **options.storage))
            self._store = _store(options, self._catalog)

    def heads(self) -> Heads:
        """Return the newest committed window of each stream."""
        heads: Heads = {}
        for stream in [] if self._options.manifests else self._streams():
            position = None if self._store is None else self._store.read(stream).window_id
            head = newest_committed(self._catalog, stream, position)
            if head is not None:
                heads[key_of(stream)] = head
        return heads

    def windows(self, start: Heads, end: Heads) -> list[Manifest]:
        """Return the windows after ``start`` up to ``end``, in the order of each stream."""
        if self._options.manifests:
            return load_windows(self.files, self._options.manifests)
        return [window for key, head in sorted(end.items()) for window in self._between(key, start.get(key), head)]

    def up_to(self, start: Heads, end: Heads, most: int | None) -> Heads:
        """Return the end of a batch that begins at ``start``: ``end``, or an earlier one if ``most`` limits its events.

        A batch has at least one window. The result is never before ``start``, even if the landing has fewer committed
        windows than at the last call: without a replay store, a window counts only once another window follows it.
        """
        ordered = (
            [(key, manifest.window) for manifest in self._between(key, start.get(key), head)]
            for key, head in sorted(end.items())
        )
        reached, count = dict(start), 0
        for key, window in heapq.merge(*ordered, key=lambda keyed: keyed[1].window_id):
            count += window.event_count
            if most is not None and count > most and count > window.event_count:
                return reached
            reached[key] = window.window_id
        return reached

    def missing(self) -> ConfigurationError:
        """Return the error for a landing without windows to read."""
        topics = ", ".join(topic.name for topic in self._options.topics)
        return ConfigurationError(
            f"{topics}: {self._options.path} has no window of the subscription {self._options.subscription!r} that "
            "is certainly committed. Without the option replay_store, the newest window counts as committed only after "
            "another window follows it. Nothing was read."
        )

    def _streams(self) -> list[Stream]:
        options = self._options
        if options.org is not None:
            return [Stream(options.org, topic.api, topic.name, options.subscription) for topic in options.topics]
        topics = options.topics
        by_topic = (self._catalog.streams_of(topic.api, topic.name, options.subscription) for topic in topics)
        return [stream for streams in by_topic for stream in streams]

    def _between(self, key: str, start: str | None, head: str) -> list[Manifest]:
        """Return windows of a stream, from the windows read earlier if they contain them."""
        if key in self._read:
            first, windows = self._read[key]
            ids = [first, *(manifest.window.window_id for manifest in windows)]
            if start in ids and head in ids:
                return windows[ids.index(start) : ids.index(head)]
        stream = Stream(*json.loads(key))
        recorded = None if self._store is None else partial(_recorded, self._store, self._catalog, stream)
        windows = windows_after(self._catalog, stream, start, head, recorded)
        self._read[key] = start, windows
        return windows


def _store(options: SourceOptions, catalog: LandingCatalog) -> ReplayStore | None:
    if options.replay_store is None:
        return None
    try:
        from airflow_provider_sfstream.hooks.replay_store import open_replay_store
    except ImportError as error:
        raise ConfigurationError(
            f"The option replay_store requires airflow-provider-sfstream in the driver's Python, because the zip for "
            f"executors does not contain all of it ({error}). Nothing was read."
        ) from error
    kind = cast("ReplayStoreKind", options.replay_store)
    return open_replay_store(kind, options.replay_store_conn_id, catalog)


def _recorded(store: ReplayStore, catalog: LandingCatalog, stream: Stream) -> Sequence[ReplayWindow]:
    """Return the windows that the store has recorded, live windows in the order in which they were recorded."""
    first_day = catalog.first_day(stream)
    if first_day is None:
        return []
    start = datetime.combine(first_day, time(), UTC)
    return store.windows_overlapping(stream, start, datetime.now(UTC) + timedelta(days=1))


def offset_of(heads: Mapping[str, str]) -> dict[str, Any]:
    """Return the offset that Spark stores in its checkpoint for these windows."""
    return {"version": 1, "streams": dict(sorted(heads.items()))}


def heads_of(offset: Mapping[str, Any]) -> Heads:
    """Return the windows that an offset of a checkpoint refers to."""
    if offset.get("version") != 1 or not isinstance(offset.get("streams"), dict):
        raise ConfigurationError(
            f"The checkpoint has an offset of version {offset.get('version')!r}; this package reads version 1. Upgrade "
            "airflow-provider-sfstream, or start with another checkpoint. Nothing was read."
        )
    return dict(offset["streams"])
