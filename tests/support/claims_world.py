"""State of one random scenario (bus, landing, replay store and tables), and the runs that change it."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, cast

import pyarrow.parquet as pq

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.replay_windows.incremental import (
    WindowOutcome,
    WindowRequest,
    commit_window,
    drain_window,
)
from airflow_provider_sfstream.replay_windows.interval import IntervalOutcome, IntervalRequest, drain_interval
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.managed_windows import drain_managed_window, landed_but_uncommitted
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Span, Stream
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.managed.source import ManagedSource
from airflow_provider_sfstream.streams.recovery import OnInvalidReplay
from airflow_provider_sfstream.streams.source import StartFrom
from airflow_provider_sfstream.tables.delta.landed_windows import reading_order
from tests.support.claims_bus import HOUR, MIDNIGHT, Bus, BusEvent, WorldTime
from tests.support.claims_managed import ManagedRecord
from tests.support.claims_server import Weather
from tests.support.claims_source import SimulatedSource
from tests.support.claims_triggerer import wait_for_end
from tests.support.replay_stores import DictVariables

BEFORE_ALL = MIDNIGHT - timedelta(days=5)


@dataclass(frozen=True)
class Row:
    """A landed event, and the time that decides in which interval it counts."""

    event: BusEvent
    counts_at: datetime


@cache
def _new_database() -> bytes:
    """Return the database file of an empty table store. It is cached: a migration takes longer than a scenario."""
    with tempfile.TemporaryDirectory() as folder:
        store = TableReplayStore(f"sqlite:///{folder}/store.db")
        store.read(Stream("org", "pubsub", "/event/A__e"))
        store.close()
        return Path(folder, "store.db").read_bytes()


@dataclass
class SparkTable:
    """Model of the event log's job: its ``reading_order``, its ``find_duplicates``, then its filter by interval."""

    partitions: dict[tuple[str, Span | None, bool], list[BusEvent]] = field(default_factory=dict)

    def load(
        self, windows: dict[str, list[Row]], interval: Span | None, late_before: Mapping[str, datetime | None]
    ) -> None:
        """Run the job on windows.

        :param windows: rows by window ID, in reading order.
        :param interval: load only the rows that count in it; ``None`` for all.
        :param late_before: ``late_before`` of each window that the run of the interval landed.
        """
        names = {window_id: (window_id, interval, window_id in late_before) for window_id in windows}
        mine = set(names.values())
        others = {event for name, events in self.partitions.items() if name not in mine for event in events}
        owners: dict[BusEvent, str] = {}
        for window_id in windows:
            had = set(self.partitions.get(names[window_id], ()))
            for row in windows[window_id]:
                if row.event not in owners or (row.event in had):
                    owners[row.event] = window_id
        for window_id, rows in windows.items():
            kept: dict[BusEvent, None] = {}
            for row in rows:
                is_read = _is_read(row, interval, late_before.get(window_id))
                if is_read and row.event not in others and owners[row.event] == window_id:
                    kept[row.event] = None
            self.partitions[names[window_id]] = list(kept)

    def rows(self) -> Counter[BusEvent]:
        return Counter(event for events in self.partitions.values() for event in events)


def _is_read(row: Row, interval: Span | None, late_before: datetime | None) -> bool:
    """Return whether the job reads a row for an interval, by the rule of ``tables/rows/event_batches.py``."""
    if interval is None or interval.start <= row.counts_at < interval.end:
        return True
    return late_before is not None and row.counts_at < late_before


class World:
    """One stream with its bus, landing, store and tables.

    Times of the bus are seconds; times of workers are ``datetime`` objects with a time zone.
    """

    def __init__(
        self, folder: Path, random: Random, *, store_kind: str, streaming: bool, topic: str, standard_volume: bool
    ) -> None:
        self.random, self.folder, self.streaming = random, folder, streaming
        self.time = WorldTime()
        hours_kept = 24 if standard_volume or topic.startswith("/topic/") else 72
        self.triggerer_skew = 0.0
        self.managed: ManagedRecord | None = None
        self.bus = Bus(self.time, retention=hours_kept * HOUR)
        self.catalog = LandingCatalog(Landing.from_url(str(folder / "landing")))
        self.stream = Stream("00Dxx0000001gPLEAY", "streaming" if streaming else "pubsub", topic)
        self.weather = Weather()
        self.answers: list[float] = []
        self.source: SimulatedSource | None = None
        self.table = SparkTable()
        self._rows: dict[str, list[Row]] = {}
        self._variables = DictVariables()
        self._databases = 0
        self.store_kind = store_kind
        self.store: Any = None
        self.new_store()

    def new_store(self) -> None:
        """Replace the store by an empty one."""
        self.close()
        self._variables = DictVariables()
        self._databases += 1
        self._database.write_bytes(_new_database())
        self._open_store()

    @property
    def landed(self) -> LandedStream:
        return LandedStream(self.stream, self.catalog, self.store, self._retention)

    def _retention(self) -> timedelta | None:
        """Return the retention of the topic's events; sometimes ``None``, as for a user without access to it."""
        return timedelta(seconds=self.bus.retention) if self.random.random() < 0.9 else None

    @property
    def _database(self) -> Path:
        return self.folder / f"store-{self._databases}.db"

    def _open_store(self) -> None:
        if self.store_kind == "table":
            self.store = TableReplayStore(f"sqlite:///{self._database}", clock=self.time.now, migrate=False)
        else:
            self.store = DocumentReplayStore(self.catalog, self._variables, clock=self.time.now)

    def copy_of_store(self) -> Callable[[], None]:
        """Copy the store and return a function that restores the copy."""
        kind, values, copy = self.store_kind, dict(self._variables.values), self.folder / f"copy-{self.time.seconds}.db"
        self.store.close()
        shutil.copy(self._database, copy)

        def restore() -> None:
            self.new_store()
            self.store_kind, self._variables.values = kind, dict(values)
            shutil.copy(copy, self._database)
            self._open_store()

        return restore

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    @contextmanager
    def simulated_time(self) -> Iterator[None]:
        """Run drains with this world's simulated clock, sleep and random numbers for a ``with`` block."""
        replacements = {"clock": self.time.clock, "sleep": self.time.sleep, "random": self.random.random}
        before = {name: Drain.__init__.__kwdefaults__[name] for name in replacements}
        Drain.__init__.__kwdefaults__.update(replacements)
        try:
            yield
        finally:
            Drain.__init__.__kwdefaults__.update(before)

    @contextmanager
    def open_source(self) -> Iterator[SimulatedSource]:
        self.time.sleep(self.random.uniform(0.05, 2.0))  # the login
        source = self.source = SimulatedSource(
            self.bus, self.random, self.weather, not self.streaming, self.answers, self.managed
        )
        yield source
        self.source = source  # a concurrent run has replaced it by its own

    def window(self, run: RunIdentity, **more: Any) -> WindowOutcome:
        """Drain incrementally, and load the window into the table if it is committed."""
        with self.open_source() as source:
            if self.managed is None:
                request = WindowRequest(run=run, **more)
                outcome = drain_window(self.landed, request, source=source, now=self.time.now)
            else:
                outcome = self._managed_window(run, self.managed, source, more["limits"])
        if outcome.committed:
            self.load([outcome.manifest], None)
        return outcome

    def _managed_window(
        self, run: RunIdentity, record: ManagedRecord, client: Any, limits: DrainLimits
    ) -> WindowOutcome:
        """Drain the managed subscription, as the operator does."""
        source = ManagedSource(
            client,
            ManagedSubscription("Orders"),
            is_landed=landed_but_uncommitted(self.landed),
            clock=self.time.clock,
            sleep=self.time.sleep,
            random=self.random.random,
        )
        request = WindowRequest(
            run=run,
            limits=limits,
            start_from=StartFrom.COMMITTED,
            on_invalid_replay=cast("OnInvalidReplay", record.error_recovery.value),
        )
        with closing(source):
            return drain_managed_window(self.landed, request, source=source, now=self.time.now)

    def commit(self, manifest: Manifest) -> None:
        """Commit an uncommitted window, and load it into the table."""
        commit_window(manifest, store=self.store, catalog=self.catalog)
        self.load([manifest], None)

    def interval(self, run: RunIdentity, interval: Span, *, defers: bool, **more: Any) -> IntervalOutcome:
        """Run an interval drain, and load its windows into the table.

        :param defers: wait on the triggerer until the end of the stream is confirmed, and run the drain again with it.
        """
        request = IntervalRequest(run=run, interval=interval, **more)
        outcome = self._interval(request)
        position = self.store.read(self.stream).replay_id
        if defers and outcome.confirmed_at is None and position is not None:
            worker, self.time.skew = self.time.skew, self.triggerer_skew
            with self.open_source() as source:
                seen = wait_for_end(source, self.stream.topic, position)
            self.time.skew = worker
            outcome = self._interval(replace(request, confirmed_end=seen))
        own = [each.manifest for each in outcome.windows if each.origin == "bus"]
        late_before = {each.window.window_id: each.late_before for each in own if each.window.kind == "live"}
        self.load([window.manifest for window in outcome.windows], interval, late_before)
        return outcome

    def result(self, outcome: IntervalOutcome) -> set[BusEvent]:
        """Return the events that a reader of an interval's result reads."""
        table = SparkTable()
        windows = sorted((each.manifest.window for each in outcome.windows), key=reading_order)
        table.load({window.window_id: self.rows(window) for window in windows}, outcome.interval, {})
        return set(table.rows())

    def _interval(self, request: IntervalRequest) -> IntervalOutcome:
        return drain_interval(
            self.landed, request, open_source=self.open_source, now=self.time.now, sleep=self.time.sleep
        )

    def load(
        self,
        manifests: list[Manifest],
        interval: Span | None,
        late_before: Mapping[str, datetime | None] = MappingProxyType({}),
    ) -> None:
        """Load windows into the table."""
        windows = sorted((each.window for each in manifests), key=reading_order)
        self.table.load({window.window_id: self.rows(window) for window in windows}, interval, late_before)

    def rows(self, window: ReplayWindow) -> list[Row]:
        """Return the rows of a landed window, in order."""
        if window.window_id not in self._rows:
            known = {event.replay_id: event for event in self.bus.events}
            folder = Path(self.catalog.landing.window_folder(self.stream, window.window_id))
            manifest = self.catalog.read_manifest(self.stream, window.window_id)
            assert manifest is not None
            found = []
            for file in manifest.files:
                columns = pq.read_table(folder / file.name, columns=["replay_id", "received_at"])
                found += zip(columns["replay_id"].to_pylist(), columns["received_at"].to_pylist(), strict=True)
            self._rows[window.window_id] = [
                Row(known[id_], _counts_at(known[id_], received, window)) for id_, received in found
            ]
        return self._rows[window.window_id]

    def recorded(self) -> list[ReplayWindow]:
        """Return the windows that are recorded in the store: live windows in order, then backfill windows."""
        # The store finds a window without a contact time by its event times, which can be wrong by a year.
        end = self.time.now() + timedelta(days=800)
        return list(self.store.windows_overlapping(self.stream, BEFORE_ALL - timedelta(days=800), end))


def _counts_at(event: BusEvent, received_at: datetime, window: ReplayWindow) -> datetime:
    """Return the time at which an event counts, by the rule of ``tables/rows/event_batches.py``."""
    happened = MIDNIGHT + timedelta(milliseconds=event.event_time - MIDNIGHT.timestamp() * 1_000)
    time = happened if window.contact_at is None else min(happened, received_at)
    return time if window.counts_from is None else max(time, window.counts_from)
