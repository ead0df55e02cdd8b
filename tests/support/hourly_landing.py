"""A stream that was drained every hour for months, on a filesystem that counts reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome, WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.interval import IntervalOutcome, IntervalRequest, drain_interval
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Span, Stream
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from tests.support.counted_files import CountedFiles
from tests.support.replay_stores import MIDNIGHT, DictVariables, StoreUnderTest, minute, new_stream, run_at

HOUR = timedelta(hours=1)
LIMITS = DrainLimits(max_seconds=1, idle_timeout=1)


def hour(number: float) -> datetime:
    """Return the time ``number`` hours after midnight."""
    return MIDNIGHT + number * HOUR


@dataclass
class HourlyLanding:
    """A landing with one live window for each hour, drained at the end of the hour."""

    windows: int
    files: CountedFiles = field(default_factory=CountedFiles)
    variables: DictVariables = field(default_factory=DictVariables)
    stream: Stream = field(default_factory=new_stream)
    live: list[ReplayWindow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.catalog = LandingCatalog(Landing(self.files, "/lake", "memory://lake"))
        self.world = StoreUnderTest(self._store, self.catalog)
        for number in range(self.windows):
            self.land(number)
        self.files.counted()

    def _store(self) -> DocumentReplayStore:
        now: Callable[[], datetime] = lambda: hour(self.windows)  # noqa: E731
        return DocumentReplayStore(LandingCatalog(self.catalog.landing), self.variables, clock=now)

    def land(self, number: int) -> ReplayWindow:
        """Land the window of an hour and record it in the store."""
        begin, end = number * 60, (number + 1) * 60
        through, run = (number + 1).to_bytes(8, "big"), self.run_of(number)
        window = self.world.advance(self.stream, through, run, events=(begin, end - 1), covered=(begin, end))
        self.live.append(window)
        return window

    def run_of(self, number: int, try_number: int = 1) -> RunIdentity:
        """Return the run that drained an hour."""
        return run_at((number + 1) * 60, try_number)

    def landed(self) -> LandedStream:
        """Return the landed stream with a new catalog and store, as in a new task."""
        return LandedStream(self.stream, LandingCatalog(self.catalog.landing), self._store())

    def clear(self, number: int) -> WindowOutcome:
        """Run the drain of an hour again, as after clearing its task."""
        request = WindowRequest(self.run_of(number, try_number=2), LIMITS)
        return drain_window(self.landed(), request, source=_NoSource(), now=lambda: hour(self.windows))

    def backfill(self, number: int) -> IntervalOutcome:
        """Run a backfill of an hour."""
        interval = Span(minute(number * 60), minute((number + 1) * 60))
        run = RunIdentity("orders", "drain", f"backfill__{number}", hour(number + 1))
        request = IntervalRequest(run=run, limits=LIMITS, interval=interval, backfill=True)
        return drain_interval(
            self.landed(), request, open_source=_refuse, now=lambda: hour(self.windows), sleep=lambda seconds: None
        )

    def remove_index(self) -> None:
        """Delete the index of the landing. Earlier versions of this package did not write one."""
        for path in [path for path in self.files.store if "/index/" in path]:
            self.files.rm_file(path)


class _NoSource:
    """Client that fails the test if it is used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of the Salesforce client was used")


def _refuse() -> Any:
    raise AssertionError("Salesforce was called")
