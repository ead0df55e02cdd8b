"""Window searches in a landing: they read only the manifests that they need."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.landed_windows import Head, LandedWindows
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream, WindowKind, window_id_for

STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class CountingCatalog(LandingCatalog):
    """Catalog that records the IDs of the windows that were read."""

    def __init__(self, landing: Landing) -> None:
        super().__init__(landing)
        self.read: list[str] = []

    def read_manifest(self, stream: Stream, window_id: str) -> Manifest | None:
        self.read.append(window_id)
        return super().read_manifest(stream, window_id)


class LandingHistory:
    """Landing after hourly drains and some backfills. Times are hours from noon."""

    def __init__(self, landing: Landing) -> None:
        self.catalog = CountingCatalog(landing)
        self.catalog.backfills.mark_complete(STREAM)
        self.head: str | None = None
        self.ended_heads: list[Head] = []
        self.now = NOON

    def land(self, due: float, covered: tuple[float, float], kind: WindowKind = "live") -> ReplayWindow:
        """Land the next window, of a run due at ``due``. It finishes then, or at the later end of its span."""
        run = RunIdentity("orders", "drain", f"{kind}__{due}", NOON + due * HOUR)
        self.now = max(self.now, run.run_after)
        window_id = window_id_for(run, kind, None)
        window = ReplayWindow(
            window_id=window_id,
            kind=kind,
            after=None,
            through=b"\x01",
            event_count=0,
            first_event_time=None,
            last_event_time=None,
            manifest_url=self.catalog.landing.manifest_url(STREAM, window_id),
            run=run,
            previous_window_id=self.head if kind == "live" else None,
            covered_from=NOON + covered[0] * HOUR,
            covered_until=NOON + covered[1] * HOUR,
            contact_at=NOON + covered[1] * HOUR,
        )
        finished_at = max(run.run_after, NOON + covered[1] * HOUR)
        self.catalog.write_manifest(
            Manifest(STREAM, window, 0, (), {}, 0, "caught_up", run.run_after, finished_at, "test")
        )
        if kind == "live":
            self.head = window_id
        return window

    def hourly(self, first: int, last: int) -> list[ReplayWindow]:
        """Land live windows that each end when their run is due."""
        return [self.land(hour, (hour - 1, hour)) for hour in range(first, last + 1)]

    def reset(self, hour: float) -> None:
        """End the chain, so that the next live window begins a new one."""
        assert self.head
        self.ended_heads.insert(0, Head(self.head, NOON + hour * HOUR))
        self.head = None

    def windows(self) -> LandedWindows:
        heads = [Head(self.head, None), *self.ended_heads] if self.head else self.ended_heads
        self.catalog.read.clear()
        return LandedWindows(self.catalog, STREAM, heads, self.now)

    def before(self, hour: float) -> ReplayWindow | None:
        return self.windows().before(NOON + hour * HOUR)


@pytest.fixture
def landed(tmp_path: Path) -> LandingHistory:
    return LandingHistory(Landing.from_url(str(tmp_path)))


def test_search_near_the_head_reads_only_the_newest_windows(landed: LandingHistory) -> None:
    windows = landed.hourly(-24 * 12, 0)

    assert landed.before(0.5) == windows[-1]
    assert landed.catalog.read[:3] == [window.window_id for window in windows[:-4:-1]]
    assert len(landed.catalog.read) <= 4


def test_window_finished_long_ago_is_found(landed: LandingHistory) -> None:
    windows = landed.hourly(-24 * 6, 0)

    assert landed.before(-24 * 6 + 2.5) == windows[2]
    assert landed.before(-24 * 6) == windows[0]
    assert landed.before(-24 * 6 - 0.5) is None
    assert len(landed.catalog.read) < 24


def test_a_window_that_ends_later_than_the_ones_after_it_is_found(landed: LandingHistory) -> None:
    ends_late = landed.land(0, (-1, 0.9))
    landed.land(0.2, (-1, 0.2))
    landed.land(0.4, (0.2, 0.4))

    assert landed.before(2) == ends_late


def test_chain_ended_by_a_reset_is_read_only_if_it_can_hold_the_result(landed: LandingHistory) -> None:
    old = landed.hourly(-10, -5)
    landed.reset(-4)
    again = landed.land(-3, (-9, -8.5))
    new = landed.hourly(-1, 0)

    assert landed.before(0) == new[-1]
    assert landed.catalog.read[:2] == [new[-1].window_id, new[0].window_id]
    assert landed.before(-5) == old[-1]
    assert landed.before(-8.5) == again
    assert landed.before(-9) == old[1]
    assert landed.before(-8) == old[2]


def test_chain_that_ended_before_the_span_is_not_read(landed: LandingHistory) -> None:
    [gone] = landed.hourly(-10, -10)
    landed.reset(-9)
    head = landed.land(0, (-9, 0))
    path = landed.catalog.landing.manifest_path(STREAM, gone.window_id)
    landed.catalog.landing.filesystem.pipe_file(path, b"broken")

    windows = landed.windows()
    assert windows.overlapping(NOON - 7 * HOUR, NOON) == [head]
    with pytest.raises(ManifestError):
        windows.overlapping(NOON - 8 * HOUR, NOON)
    with pytest.raises(ManifestError):
        landed.before(-9)


def test_clock_differences_do_not_hide_the_end_of_a_chain(landed: LandingHistory) -> None:
    expected = landed.land(-3, (-4, -1.9))
    landed.reset(-2.5)
    landed.land(-2, (-3, -2))

    assert landed.before(0) == expected


def test_backfills_that_can_end_later_are_searched(landed: LandingHistory) -> None:
    windows = landed.hourly(-24 * 10, -24 * 2)
    reaches_furthest = landed.land(-24 * 6, (-24 * 4, -24 * 2 + 0.5), "backfill")
    landed.land(-24 * 6 + 1, (-24 * 4, -24 * 2 - 3), "backfill")

    assert landed.before(0) == reaches_furthest
    assert landed.before(-24 * 2 + 0.25) == windows[-1]


def test_without_a_live_window_backfills_of_any_day_are_found(landed: LandingHistory) -> None:
    windows = [landed.land(-24 * day, (-24 * day - 1, -24 * day), "backfill") for day in (90, 60, 30)]

    assert landed.before(0) == windows[2]
    assert landed.before(-24 * 40) == windows[1]
    assert landed.before(-24 * 60) == windows[1]
    assert landed.before(-24 * 60 - 0.1) == windows[0]
    assert landed.before(-24 * 91) is None


def test_empty_landing_has_no_window(landed: LandingHistory) -> None:
    assert landed.before(0) is None
    assert landed.windows().overlapping(NOON, NOON + HOUR) == []


def test_empty_windows_are_found_by_their_covered_span(landed: LandingHistory) -> None:
    windows = landed.hourly(-24 * 10, 0)
    backfill = landed.land(-24 * 5, (-24 * 2 - 0.5, -24 * 2 + 0.5), "backfill")
    start = NOON - timedelta(days=2)

    assert landed.windows().overlapping(start, start + HOUR) == [windows[-48], backfill]
    assert len(landed.catalog.read) <= 24 * 2 + 4
