"""What the Spark source asks of Airflow's connections, on the driver: where positions are, and to land what is new."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import Any

from airflow_provider_sfstream.drain.limits import DrainLimits
from airflow_provider_sfstream.hooks.event_api import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.protocol.streams import ReplayWindow, RunIdentity, Stream
from airflow_provider_sfstream.runs.incremental import WindowRequest, drain_window
from airflow_provider_sfstream.runs.landed_stream import LandedStream
from airflow_provider_sfstream.spark.source.options import SourceOptions
from airflow_provider_sfstream.tasks.parts import start_from_text

_QUERY = "pyspark_sfstream"
"""Stands for the DAG in the windows that a query has drained."""


class LiveLanding:
    """A landing with its replay store.

    :raises ConfigurationError: if the store cannot be used.
    """

    def __init__(self, options: SourceOptions, catalog: LandingCatalog) -> None:
        kind: Any = options.replay_store
        self._options, self._catalog = options, catalog
        self._store = open_replay_store(kind, options.replay_store_conn_id, catalog)

    def position(self, stream: Stream) -> str | None:
        """Return the id of the window that the position stands on, ``None`` if it stands on none."""
        return self._store.read(stream).window_id

    def recorded(self, stream: Stream) -> Sequence[ReplayWindow]:
        """Return the windows that the store has, live ones in the order in which they were recorded."""
        first = self._catalog.first_day(stream)
        if first is None:
            return []
        beginning = datetime.combine(first, time(), UTC)
        return self._store.windows_overlapping(stream, beginning, datetime.now(UTC) + timedelta(days=1))

    def drain(self) -> list[Stream]:
        """Land what is new on each topic as a window, move the position over it, and return the streams.

        Killed at any line, the next call makes it good: a window over which the position did not move is never read.

        :raises SalesforceStreamError: as a drain does. No position was moved over events that are not stored.
        """
        self._catalog.landing.check_writable()
        return [self._drain_topic(topic.api, topic.name) for topic in self._options.topics]

    def _drain_topic(self, api: Any, topic: str) -> Stream:
        options, now = self._options, datetime.now(UTC)
        hook = event_hook(api, options.salesforce_conn_id)
        stream = Stream(hook.org_id, api, topic, options.subscription)
        landed = LandedStream(stream, self._catalog, self._store, partial(hook.event_retention, topic))
        # The first window of a stream that was finished and not recorded: only the run that made it may adopt it.
        unknown = landed.newest_unknown(landed.position())
        run = RunIdentity(_QUERY, "live", f"live__{now.isoformat()}", now)
        if unknown is not None and unknown.window.run.dag_id == _QUERY:
            run = unknown.window.run
        limits = DrainLimits(
            max_events=options.max_events, max_seconds=options.max_seconds, idle_timeout=options.idle_timeout
        )
        request = WindowRequest(run, limits, start_from=start_from_text(options.start_from))
        with hook.get_conn() as client:
            drain_window(landed, request, source=client)
        return landed.stream
