"""A stream with one event per minute, and its drains into a landing and a replay store under test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_stores.base import ReplayStore
from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome, WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.interval import IntervalRequest, drain_interval
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.restoring import restore_from_landing
from airflow_provider_sfstream.salesforce.streams import Span, Stream
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from tests.support.replay_stores import StoreUnderTest, minute, new_stream, run_at
from tests.support.scripted_source import Event, ScriptedSource, avro_payload, replay_id, use_clock


def event(number: int) -> Event:
    return Event(replay_id(number), avro_payload(int(minute(number).timestamp() * 1000)))


@dataclass
class Minutes:
    """A stream with one event per minute, and runs that are due at minutes of this stream."""

    under_test: StoreUnderTest
    store: ReplayStore = field(init=False)
    stream: Stream = field(default_factory=new_stream)

    def __post_init__(self) -> None:
        self.store = self.under_test.store

    @property
    def landed_stream(self) -> LandedStream:
        return LandedStream(self.stream, self.under_test.catalog, self.store)

    def drain(self, due: int, source: ScriptedSource | None = None, try_number: int = 1, **more: Any) -> WindowOutcome:
        """Drain the events of all minutes up to ``due`` with a run that is due at this minute."""
        source = source or ScriptedSource([event(number) for number in range(1, due + 1)])
        request = WindowRequest(run_at(due, try_number), DrainLimits(), **more)
        with use_clock(source.time):
            return drain_window(self.landed_stream, request, source=source, now=lambda: minute(due))

    def backfill(self, end: int, *, at: int) -> Any:
        @contextmanager
        def opened() -> Iterator[ScriptedSource]:
            source = ScriptedSource([event(number) for number in range(1, at + 1)])
            with use_clock(source.time):
                yield source

        request = IntervalRequest(
            run=run_at(end + 0.5),
            interval=Span(minute(0), minute(end)),
            backfill=True,
            limits=DrainLimits(),
        )
        return drain_interval(self.landed_stream, request, open_source=opened, now=lambda: minute(at))

    def restore(self, last_window_id: str | None = None) -> None:
        restore_from_landing(
            LandedStream(self.stream, self.under_test.catalog, self.store),
            now=minute(99),
            updated_by="somebody",
            last_window_id=last_window_id,
        )

    def landed(self, *outcomes: WindowOutcome) -> list[bytes]:
        found: list[bytes] = []
        for manifest in (outcome.manifest for outcome in outcomes):
            folder = Path(self.under_test.catalog.landing.window_folder(self.stream, manifest.window.window_id))
            for file in manifest.files:
                found += pq.read_table(folder / file.name, columns=["replay_id"])["replay_id"].to_pylist()
        return found

    def windows(self) -> list[Manifest]:
        return self.under_test.catalog.windows_between(self.stream, minute(0).date(), minute(0).date())

    def die_before_recording(self, due: int) -> None:
        """Drain with a run that dies immediately before it advances the position in the store."""
        advance = self.store.advance

        def die(*_: Any) -> Any:
            raise KeyboardInterrupt

        self.store.advance = die  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            self.drain(due)
        self.store.advance = advance  # type: ignore[method-assign]
