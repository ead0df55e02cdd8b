"""Stream of daily windows with files, in any store, for tests of pruning."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.pruning import PruneOutcome, prune_stream
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream
from tests.support.replay_stores import StoreUnderTest, minute, new_stream, run_at

DAY = 24 * 60


def day(number: float) -> datetime:
    """Return the time ``number`` days after midnight."""
    return minute(number * DAY)


class DailyWindows:
    """Live windows, one for each day, drained at its end, with events of that day.

    :param first: number of the first day, which may be negative.
    """

    def __init__(self, under_test: StoreUnderTest, days: int, first: int = 0, stream: Stream | None = None) -> None:
        self.under_test = under_test
        self.stream = stream or new_stream()
        self.live = [self.land(number) for number in range(first, first + days)]

    def land(self, number: int, **changes: Any) -> ReplayWindow:
        """Land and record the window of a day."""
        through = (1_000 + number).to_bytes(8, "big")
        events = (number * DAY, (number + 0.9) * DAY)
        covered = (number * DAY, (number + 1) * DAY)
        window = self.under_test.advance(
            self.stream,
            through,
            run_at((number + 1) * DAY),
            **{"events": events, "covered": covered, **changes},
        )
        self.write_files(window)
        return window

    def backfill(self, number: int, due: int | None = None) -> ReplayWindow:
        """Land and record a backfill window of a day, by a run that was due at the end of day ``due``."""
        store, position = self.under_test.store, self.under_test.store.read(self.stream)
        run = run_at(((number if due is None else due) + 1) * DAY, map_index=7)
        window = self.under_test.land(
            self.stream, position, b"\x07", run, kind="backfill", events=(number * DAY, number * DAY + 9)
        )
        store.record_backfill(self.stream, window)
        self.write_files(window)
        return window

    def write_files(self, window: ReplayWindow) -> None:
        """Write the files that the window's manifest lists."""
        catalog = self.under_test.catalog
        manifest = catalog.read_manifest(self.stream, window.window_id)
        assert manifest is not None
        folder = catalog.landing.window_folder(self.stream, window.window_id)
        for file in manifest.files:
            catalog.landing.filesystem.pipe_file(f"{folder}/{file.name}", bytes(file.bytes))

    def prune(self, today: float, older_than: float = 4, **arguments: Any) -> PruneOutcome:
        """Prune, on day ``today``, the windows older than ``older_than`` days."""
        landed = LandedStream(self.stream, self.under_test.catalog, self.under_test.store)
        return prune_stream(
            landed, timedelta(days=older_than), pruned_by="cleaning.prune run 1", now=lambda: day(today), **arguments
        )

    def recorded(self) -> list[ReplayWindow]:
        """Return all windows recorded in the store."""
        return self.under_test.open().windows_overlapping(self.stream, day(-99), day(99))

    def files(self) -> set[str]:
        """Return the paths of all files in the stream's windows."""
        landing = self.under_test.catalog.landing
        landing.filesystem.invalidate_cache()
        return set(landing.filesystem.find(landing.windows_folder(self.stream)))

    def check(self) -> None:
        """Assert the invariant: each recorded window has a manifest, and each manifest has all of its files."""
        catalog = self.under_test.catalog
        manifests = [path for path in self.files() if path.endswith("/manifest.json")]
        for path in manifests:
            manifest = catalog.read_manifest(self.stream, path.split("/")[-2])
            assert manifest is not None
            catalog.verify(manifest)
        ids = {path.split("/")[-2] for path in manifests}
        assert {window.window_id for window in self.recorded()} <= ids
