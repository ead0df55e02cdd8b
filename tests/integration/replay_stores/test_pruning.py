"""Pruning of landed windows with every store: removed and kept windows, and recovery from kills."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, ManifestError, ReplayIdLostError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.pruned import read_pruned
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.replay_stores.table import TableReplayStore
from airflow_provider_sfstream.replay_windows import pruning
from airflow_provider_sfstream.replay_windows.interval import IntervalRequest, drain_interval
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.pruning import prune_stream
from airflow_provider_sfstream.replay_windows.restoring import restore_from_landing
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Span, Stream
from airflow_provider_sfstream.salesforce.topics import LEAST_WINDOW_AGE
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from tests.support.killed import Killed, killed_at
from tests.support.pruning import DAY, DailyWindows, day
from tests.support.replay_stores import StoreUnderTest, landing_store, new_stream, run_at, table_store, variable_store
from tests.support.scripted_source import ScriptedSource


@pytest.fixture(params=["variables", "table", "memory"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> StoreUnderTest:
    """Create a store that reads manifests, a store with its own records, and a store with a landing in memory."""
    if request.param == "variables":
        return variable_store(tmp_path / "landing")
    under_test = table_store(tmp_path / "landing", f"sqlite:///{tmp_path}/positions.db")
    if request.param == "memory":
        under_test.catalog = LandingCatalog(Landing.from_url(f"memory://landing-{secrets.token_hex(4)}"))
    return under_test


def test_old_windows_are_removed_and_the_others_remain_unchanged(under_test: StoreUnderTest) -> None:
    windows = DailyWindows(under_test, days=10)
    old_backfill, new_backfill = windows.backfill(1), windows.backfill(2, due=9)
    other = DailyWindows(under_test, days=2)
    before, position_before = windows.files(), under_test.store.read(windows.stream)

    outcome = windows.prune(today=10.5, older_than=5)

    removed = [*windows.live[:5], old_backfill]
    assert {old.window.window_id for old in outcome.removed} == {window.window_id for window in removed}
    assert outcome.removed[0].window.window_id == windows.live[0].window_id
    assert (outcome.kept, outcome.kept_because, outcome.finished) == (0, None, 0)
    assert windows.recorded() == [*windows.live[5:], new_backfill]
    assert before - windows.files() == {
        path for path in before for window in removed if path.split("/")[-2] == window.window_id
    }
    assert under_test.open().read(windows.stream) == position_before
    assert under_test.store.window_before(windows.stream, day(2)) is None
    assert under_test.store.window_before(windows.stream, day(6)) == windows.live[5]
    assert other.recorded() == other.live
    windows.check()
    assert windows.prune(today=10.5, older_than=5).removed == ()
    assert windows.land(10) in windows.recorded()


def test_empty_folders_of_days_are_removed(tmp_path: Path) -> None:
    windows = DailyWindows(variable_store(tmp_path / "landing"), days=10)
    catalog = windows.under_test.catalog
    landing = catalog.landing
    assert Path(landing.day_folder(windows.stream, day(1).date())).is_dir()

    windows.prune(today=10.5, older_than=5)

    assert not Path(landing.day_folder(windows.stream, day(1).date())).exists()
    assert catalog.first_day(windows.stream) == day(6).date()


KILLED = [("variables", False), ("table", True), ("memory", False)]
KILLED_TOO = [("variables", True), ("table", False), ("memory", True)]


@pytest.mark.parametrize(
    ("either", "after"),
    [*KILLED, *(pytest.param(*case, marks=pytest.mark.extended) for case in KILLED_TOO)],
    indirect=["either"],
)
def test_pruning_that_is_killed_at_any_step_is_finished_by_the_next_run(
    either: StoreUnderTest, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "AT_ONCE", 2)
    landing = either.catalog.landing
    calls = [
        (type(either.store), "forget_windows"),
        (pruning, "write_pruned"),
        (pruning, "remove_windows"),
        (landing.filesystem, "rm_file"),
    ]
    for nth in itertools.count(1):
        windows = DailyWindows(either, days=6)
        windows.backfill(0)
        made = 0
        try:
            with killed_at(calls, nth, after=after) as count:
                windows.prune(today=8.5, older_than=4)
        except Killed:
            made = count()
        windows.check()

        windows.prune(today=8.5, older_than=4)

        windows.check()
        assert windows.recorded() == windows.live[4:]
        assert {path.split("/")[-2] for path in windows.files()} == {w.window_id for w in windows.live[4:]}
        pruned = read_pruned(landing, windows.stream)
        assert pruned is not None
        assert (pruned.removing, pruned.windows) == ((), 5)
        if not made:
            break
    assert nth > 15


def test_dry_run_of_pruning_changes_nothing(either: StoreUnderTest) -> None:
    windows = DailyWindows(either, days=6)
    files = windows.files()

    outcome = windows.prune(today=20, dry_run=True)

    assert [old.window.window_id for old in outcome.removed] == [window.window_id for window in windows.live[:5]]
    assert windows.files() == files
    assert windows.recorded() == windows.live
    assert read_pruned(either.catalog.landing, windows.stream) is None


def test_last_windows_are_kept_at_any_age(either: StoreUnderTest) -> None:
    windows = DailyWindows(either, days=6)

    assert windows.prune(today=99, keep_last=4).kept_because == (
        f"window {windows.live[2].window_id} is among the last 4"
    )
    assert windows.recorded() == windows.live[2:]
    assert windows.prune(today=99).kept == 1
    assert windows.recorded() == windows.live[5:]
    assert windows.land(6, covered=(5 * DAY, 7 * DAY)) in windows.recorded()


def test_windows_that_a_table_needs_are_kept_with_all_later_windows(either: StoreUnderTest) -> None:
    windows = DailyWindows(either, days=8)
    held, last = windows.live[3], windows.live[5]

    outcome = windows.prune(today=99, needed={last.window_id: "the replica at A", held.window_id: "the replica at B"})

    assert windows.recorded() == windows.live[3:]
    assert (outcome.kept, outcome.kept_because) == (5, f"the replica at B is on window {held.window_id}")

    outcome = windows.prune(
        today=99, still_needed=lambda old: {w.window_id: "nobody read it" for w in old if w.window_id == last.window_id}
    )

    assert windows.recorded() == windows.live[5:]
    assert outcome.kept_because == "nobody read it"


def test_needed_window_that_is_not_in_the_landing_stops_pruning(either: StoreUnderTest) -> None:
    windows = DailyWindows(either, days=6)

    with pytest.raises(ConfigurationError, match=r"replica at A is on window 20261120T000000Z-0.*landing"):
        windows.prune(today=99, needed={"20261120T000000Z-0": "the replica at A"})

    assert windows.recorded() == windows.live


def test_store_without_the_stream_stops_pruning(either: StoreUnderTest, tmp_path: Path) -> None:
    windows = DailyWindows(either, days=6)
    wrong = landing_store(tmp_path / "landing").store

    with pytest.raises(ConfigurationError, match="no record of this stream"):
        prune_stream(
            LandedStream(windows.stream, either.catalog, wrong),
            timedelta(days=5),
            pruned_by="me",
            now=lambda: day(99),
        )

    assert windows.recorded() == windows.live


def test_pruning_of_an_empty_landing_removes_nothing(either: StoreUnderTest) -> None:
    landed = LandedStream(new_stream(), either.catalog, either.store)
    outcome = prune_stream(landed, timedelta(days=5), pruned_by="me")
    assert outcome == pruning.PruneOutcome((), 0, None, 0)


def test_windows_before_a_reset_are_removed_first(either: StoreUnderTest) -> None:
    windows = DailyWindows(either, days=3)
    either.store.reset(windows.stream, b"\x01", reason="again", updated_by="me")
    later = [windows.land(number) for number in (3, 4, 5)]

    windows.prune(today=8.5, older_than=6)
    assert windows.recorded() == [*windows.live[2:], *later]
    windows.prune(today=9.5, older_than=5)
    assert windows.recorded() == later[1:]


def test_window_is_kept_when_the_window_before_it_is_kept(either: StoreUnderTest) -> None:
    stream = new_stream()
    windows = DailyWindows(either, days=2, stream=stream)
    # Triggered by a user with a date in the future: its folder is not one of the old days.
    ahead = either.advance(stream, b"\x02", run_at(90 * DAY), events=(DAY * 2, DAY * 2 + 1))
    windows.write_files(ahead)
    later = [windows.land(number) for number in (3, 4, 5)]

    outcome = windows.prune(today=80)

    # By the clock of this test, that window ended when its run was due. The later windows are older and are kept.
    assert outcome.kept_because == f"window {ahead.window_id}, before {later[0].window_id}, is not removed"
    assert windows.recorded() == [ahead, *later]


def _backfill(run: RunIdentity, interval: Span) -> IntervalRequest:
    return IntervalRequest(run=run, limits=DrainLimits(idle_timeout=1), interval=interval, backfill=True)


def test_backfill_of_pruned_hours_raises_an_error_about_pruning(either: StoreUnderTest) -> None:
    windows = DailyWindows(either, days=8)
    stream = windows.stream

    @contextmanager
    def only_the_time() -> Iterator[ScriptedSource]:
        source = ScriptedSource([], began=day(8))
        yield source
        assert source.starts == [], "a backfill of pruned hours must not subscribe"

    def backfill(number: int, interval: Span) -> list[str]:
        outcome = drain_interval(
            LandedStream(stream, either.catalog, either.store),
            _backfill(run_at(number), interval),
            open_source=only_the_time,
            now=lambda: day(8),
        )
        return [window.manifest.window.window_id for window in outcome.windows]

    second_day = Span(day(1.25), day(1.5))
    assert backfill(1, second_day) == [windows.live[1].window_id]
    windows.prune(today=8)

    with pytest.raises(ReplayIdLostError, match=r"is not landed \(windows finished before .* were pruned, .*prune run"):
        backfill(2, second_day)
    with pytest.raises(ManifestError, match=r"manifest was removed \(windows finished before"):
        backfill(1, second_day)
    with pytest.raises(ReplayIdLostError, match="is not landed"):
        backfill(3, Span(day(2.5), day(4.5)))
    assert backfill(4, Span(day(4.25), day(4.5))) == [windows.live[4].window_id]


@pytest.mark.parametrize(
    ("pruned", "lost", "readable"),
    [
        pytest.param({"covered": (3 * DAY, 3 * DAY), "contact": 3.9 * DAY}, (3.25, 3.5), (3.9, 4.5), id="measured"),
        # The worker finished it 30 seconds after the day; its clock may be a minute behind Salesforce's.
        pytest.param({"covered": None}, (4 + 1 / DAY, 4.5), (4 + 2 / DAY, 4.5), id="not measured"),
    ],
)
def test_a_window_covers_no_time_whose_events_were_pruned_with_the_window_before_it(
    either: StoreUnderTest, pruned: dict[str, Any], lost: tuple[float, float], readable: tuple[float, float]
) -> None:
    windows = DailyWindows(either, days=3)
    stream = windows.stream
    # This drain stopped before the end of the stream. The next one reads the rest, and confirms the end.
    windows.live.append(windows.land(3, **pruned))
    windows.live.append(windows.land(4, events=(3.91 * DAY, 4.9 * DAY), covered=(3 * DAY, 5 * DAY)))
    windows.live += [windows.land(5), windows.land(6)]
    source = ScriptedSource([], began=day(8))

    def backfill(number: int, begin: float, end: float) -> list[str]:
        outcome = drain_interval(
            LandedStream(stream, either.catalog, either.store),
            _backfill(run_at(number), Span(day(begin), day(end))),
            open_source=lambda: nullcontext(source),
            now=lambda: day(8),
        )
        return [window.manifest.window.window_id for window in outcome.windows]

    assert windows.live[3].window_id in backfill(1, 3.25, 3.5)
    windows.prune(today=8.05)
    assert windows.recorded() == windows.live[4:]

    with pytest.raises(ReplayIdLostError, match="is not landed"):
        backfill(2, *lost)
    assert backfill(3, *readable) == [windows.live[4].window_id]


def test_minimum_age_below_four_days_is_refused(either: StoreUnderTest) -> None:
    windows = DailyWindows(either, days=2)
    with pytest.raises(ConfigurationError, match="at least 4 days"):
        windows.prune(today=99, older_than=LEAST_WINDOW_AGE / timedelta(days=1) - 0.01)


def test_invalid_record_of_pruned_windows_stops_pruning(either: StoreUnderTest) -> None:
    windows = DailyWindows(either, days=6)
    landing = either.catalog.landing
    landing.filesystem.pipe_file(landing.pruned_path(windows.stream), b'{"format": "something"}')

    with pytest.raises(ManifestError, match="record of pruned windows"):
        windows.prune(today=99)

    assert windows.recorded() == windows.live


def test_store_that_is_lost_after_pruning_can_be_restored(either: StoreUnderTest, tmp_path: Path) -> None:
    windows = DailyWindows(either, days=8)
    position_before = either.store.read(windows.stream)
    windows.prune(today=8.5)
    lost = StoreUnderTest(lambda: TableReplayStore(f"sqlite:///{tmp_path}/new.db"), either.catalog)

    landed = LandedStream(windows.stream, either.catalog, lost.store)
    restored = restore_from_landing(landed, now=day(9), updated_by="me")

    position = lost.store.read(windows.stream)
    assert (position.replay_id, position.window_id) == (position_before.replay_id, position_before.window_id)
    assert restored.live_windows == 4
    assert [window.window_id for window in lost.store.windows_overlapping(windows.stream, day(0), day(99))] == [
        window.window_id for window in windows.live[4:]
    ]
    lost.store.close()


def test_pruning_one_stream_does_not_change_another(either: StoreUnderTest) -> None:
    windows = DailyWindows(either, days=6)
    neighbour = Stream(windows.stream.org_id, "pubsub", windows.stream.topic, windows.stream.subscription + "-2")
    beside = DailyWindows(either, days=6, stream=neighbour)

    windows.prune(today=99)

    assert beside.recorded() == beside.live
    beside.check()
    assert either.store.read(new_stream()) == Position()
