"""Incremental runs, killed at every write and retried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.exceptions import (
    LandingError,
    PositionConflictError,
    ReplayIdLostError,
    ReplayStoreError,
)
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.replay_windows.incremental import (
    WindowOutcome,
    WindowRequest,
    commit_window,
    drain_window,
)
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream
from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.killed import Killed, killed_at
from tests.support.scripted_source import (
    Event,
    FakeTime,
    Keepalive,
    ScriptedSource,
    Silence,
    Step,
    avro_payload,
    replay_id,
)

STREAM = Stream("00Dxx0000001gPLEAY", "pubsub", "/event/Order__e")
EVENTS = [Event(replay_id(3 * n), avro_payload(1_700_000_000_000 + n), n) for n in range(1, 251)]


class Variables:
    """Airflow Variables in a dict."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def name(self, key: str) -> str:
        return key

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    def set(self, key: str, value: str, description: str) -> None:
        self.values[key] = value

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


class World:
    """Landing and replay store, with runs that use them."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.catalog = LandingCatalog(Landing.from_url(str(folder / "landing")))
        self.time = FakeTime()
        self.store: Any = (
            TableReplayStore(f"sqlite:///{folder / 'store.db'}")
            if kind == "table"
            else DocumentReplayStore(catalog=self.catalog, variables=Variables())
        )

    @property
    def landed(self) -> LandedStream:
        return LandedStream(STREAM, self.catalog, self.store, lambda: LONG_RETENTION)

    def run(
        self,
        number: int,
        try_number: int = 1,
        events: list[Event] | None = None,
        script: list[Step] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        **more: Any,
    ) -> WindowOutcome:
        run = RunIdentity(
            "orders", "drain", f"run-{number}", datetime(2026, 11, 20, number, tzinfo=UTC), try_number=try_number
        )
        request = WindowRequest(run, DrainLimits(max_events=100), **more)
        source = ScriptedSource(EVENTS if events is None else events, script or [], time=self.time)
        return drain_window(self.landed, request, source=source, now=now)

    def already_drained(self, number: int) -> bool:
        run = RunIdentity("orders", "drain", f"run-{number}", datetime(2026, 11, 20, number, tzinfo=UTC), try_number=2)
        return self.landed.already_drained(run, self.store.read(STREAM))

    def rows(self, outcome: WindowOutcome) -> list[tuple[int, bytes]]:
        folder = Path(self.catalog.landing.window_folder(STREAM, outcome.manifest.window.window_id))
        tables = [pq.read_table(folder / file.name) for file in outcome.manifest.files]
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            ["manifest.json", *(file.name for file in outcome.manifest.files)]
        )
        return [
            (row["ordinal"], row["replay_id"])
            for table in tables
            for row in table.select(["ordinal", "replay_id"]).to_pylist()
        ]

    def close(self) -> None:
        if isinstance(self.store, TableReplayStore):
            self.store.close()


@pytest.fixture(params=["variable", "table"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path, request.param)
    monkeypatch.setitem(Drain.__init__.__kwdefaults__, "clock", world.time.clock)
    yield world
    world.close()


def facts(outcome: WindowOutcome) -> tuple[Any, ...]:
    window = outcome.manifest.window
    return (window.window_id, window.after, window.through, window.event_count, window.previous_window_id)


class OldVariables(Variables):
    """Variables of Airflow before 3.3, which does not report whether a Variable exists."""

    def get(self, key: str) -> str | None:
        if key not in self.values:
            raise ReplayStoreError(f"{key} does not exist or could not be read")
        return None if self.values[key] == "new" else self.values[key]


def test_first_window_covers_no_time_before_its_contact_if_gaps_cannot_be_read(tmp_path: Path) -> None:
    windows = []
    for variables in (Variables(), OldVariables()):
        folder = tmp_path / type(variables).__name__
        folder.mkdir()
        world = World(folder, "variable")
        world.store = DocumentReplayStore(catalog=world.catalog, variables=variables)
        if isinstance(variables, OldVariables):
            variables.values[world.store.key(STREAM)] = "new"
        windows.append(world.run(1).manifest.window)
    known, unknown = windows
    assert known.contact_at is not None
    assert (known.covered_from, known.event_count) == (known.contact_at - LONG_RETENTION, 100)
    assert (unknown.covered_from, unknown.event_count) == (unknown.contact_at, 100)


def test_each_run_begins_where_the_one_before_ended(world: World) -> None:
    outcomes = [world.run(number) for number in (1, 2, 3, 4)]
    assert [o.manifest.window.event_count for o in outcomes] == [100, 100, 50, 0]
    assert [o.manifest.window.after for o in outcomes[1:]] == [o.manifest.window.through for o in outcomes[:-1]]
    landed = [row for outcome in outcomes for row in world.rows(outcome)]
    assert [key for _, key in landed] == [event.replay_id for event in EVENTS]
    assert world.store.read(STREAM).replay_id == EVENTS[-1].replay_id


def test_a_rerun_returns_the_window_of_the_run_and_moves_nothing(world: World) -> None:
    first, second = world.run(1), world.run(2)
    position = world.store.read(STREAM)
    again = [world.run(1, try_number=2), world.run(2, try_number=5)]
    assert [facts(o) for o in again] == [facts(first), facts(second)]
    assert not any(o.drained for o in again)
    assert all(o.committed for o in again)
    assert world.store.read(STREAM) == position


def test_only_a_run_with_its_own_window_is_already_drained(world: World) -> None:
    assert not world.already_drained(1)
    world.run(1)
    assert world.already_drained(1), "recorded"
    assert not world.already_drained(2)
    world.run(2, advance=False)
    assert world.already_drained(2), "finished, not recorded"
    world.run(3)
    assert not world.already_drained(2), "overtaken, so a new try drains again"
    assert world.already_drained(3)
    assert world.already_drained(1), "later windows do not matter"


def side_effects(world: World) -> list[tuple[Any, str]]:
    """Return every call by which a run changes state outside its process."""
    filesystem = world.catalog.landing.filesystem
    names = ("makedirs", "open", "pipe_file", "mv", "rm_file", "rm", "mkdir")
    calls: list[tuple[Any, str]] = [(filesystem, name) for name in names]
    calls += [(world.catalog, "write_manifest"), (world.catalog, "remove_unlisted"), (world.store, "advance")]
    return calls


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", ["variable", "table"])
def test_retry_of_a_killed_run_equals_an_undisturbed_run(kind: str, after: bool, tmp_path: Path) -> None:
    undisturbed = World(tmp_path / "undisturbed", kind)
    (tmp_path / "undisturbed").mkdir()
    expected = [undisturbed.run(1), undisturbed.run(2)]
    kills, nth = 0, 0
    while True:
        nth += 1
        folder = tmp_path / f"killed-{nth}"
        folder.mkdir()
        world = World(folder, kind)
        first = world.run(1)
        with killed_at(side_effects(world), nth, after=after) as made:
            try:
                world.run(2)
            except Killed:
                kills += 1
        if made() < nth:
            break
        second = world.run(2, try_number=2)
        assert [facts(first), facts(second)] == [facts(outcome) for outcome in expected], f"killed at change {nth}"
        assert world.rows(second) == undisturbed.rows(expected[1])
        position = world.store.read(STREAM)
        assert (position.replay_id, position.window_id) == (EVENTS[199].replay_id, facts(second)[0])
        assert [w.window_id for w in world.store.windows_of_run(STREAM, second.manifest.window.run)] == [
            facts(second)[0]
        ]
        world.close()
    undisturbed.close()
    assert kills >= 4, "the run must have been killed around its files, manifest, and position"


def test_a_window_landed_but_overtaken_is_not_recorded(world: World) -> None:
    """Run 1 is killed before its position advances, run 2 drains the same events, then run 1 is retried."""
    before = world.run(0, events=EVENTS[:50])
    with killed_at(side_effects(world), 10**6, after=False):
        original = world.store.advance

        def die(*_: Any) -> None:
            raise Killed

        world.store.advance = die
        with pytest.raises(Killed):
            world.run(1)
        world.store.advance = original
    second = world.run(2)
    retried = world.run(1, try_number=2)
    assert second.manifest.window.after == before.manifest.window.through
    assert retried.manifest.window.after == second.manifest.window.through
    assert [key for o in (before, second, retried) for _, key in world.rows(o)] == [e.replay_id for e in EVENTS]


def test_the_loser_of_two_concurrent_runs_fails_and_its_window_is_never_returned(world: World) -> None:
    world.run(0)
    advance = world.store.advance

    def overtaken(*args: Any) -> Any:
        world.store.advance = advance
        world.run(2)
        return advance(*args)

    world.store.advance = overtaken
    with pytest.raises(PositionConflictError, match="run-2"):
        world.run(1)
    loser = RunIdentity("orders", "drain", "run-1", datetime(2026, 11, 20, 1, tzinfo=UTC))
    assert world.store.windows_of_run(STREAM, loser) == []
    start, end = datetime(2023, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    assert [w.run.run_id for w in world.store.windows_overlapping(STREAM, start, end)] == ["run-0", "run-2"]


def test_a_run_that_was_overtaken_while_it_drained_fails(world: World) -> None:
    """The run compares the store with the position at its start, not with the position at its end."""
    others: list[WindowOutcome] = []

    def overtaken() -> datetime:
        if not others:
            others.append(world.run(2))
        return datetime.now(UTC)

    with pytest.raises(PositionConflictError, match="run-2"):
        world.run(1, now=overtaken)
    position = world.store.read(STREAM)
    assert (position.fence, position.window_id) == (1, others[0].manifest.window.window_id)


def test_manual_advance_does_not_move_the_position_before_the_commit(world: World) -> None:
    outcome = world.run(1, advance=False)
    assert not outcome.committed
    assert world.store.read(STREAM).replay_id is None
    assert facts(world.run(1, try_number=2, advance=False)) == facts(outcome)
    position = commit_window(outcome.manifest, store=world.store, catalog=world.catalog)
    assert position.replay_id == EVENTS[99].replay_id
    world.run(2)
    moved = world.store.read(STREAM)
    assert commit_window(outcome.manifest, store=world.store, catalog=world.catalog) == moved


def test_a_stale_manual_window_is_refused(world: World) -> None:
    world.run(0)
    outcome = world.run(1, advance=False)
    world.run(2)
    with pytest.raises(PositionConflictError):
        commit_window(outcome.manifest, store=world.store, catalog=world.catalog)
    assert world.store.read(STREAM).replay_id == EVENTS[199].replay_id


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (None, {"start_from": EVENTS[9].replay_id}),
        (None, {"start_from": StartFrom.LATEST, "script": [Keepalive()]}),
        (EVENTS[9].replay_id, {}),
        (EVENTS[9].replay_id, {"events": EVENTS[150:], "on_invalid_replay": "earliest"}),
    ],
    ids=["from a replay ID", "from the latest", "after a reset", "with a gap"],
)
def test_a_window_is_committed_to_the_position_that_it_was_drained_from(
    world: World, start: bytes | None, more: dict[str, Any]
) -> None:
    world.store.reset(STREAM, start, reason="to begin there", updated_by="somebody")
    outcome = world.run(1, advance=False, **more)
    position = commit_window(outcome.manifest, store=world.store, catalog=world.catalog)
    assert position == world.store.read(STREAM)
    assert (position.replay_id, position.fence) == (outcome.manifest.window.through, 2)


def test_a_window_whose_file_is_missing_is_not_committed(world: World) -> None:
    outcome = world.run(1, advance=False)
    folder = Path(world.catalog.landing.window_folder(STREAM, outcome.manifest.window.window_id))
    (folder / outcome.manifest.files[0].name).unlink()
    with pytest.raises(LandingError):
        commit_window(outcome.manifest, store=world.store, catalog=world.catalog)
    assert world.store.read(STREAM).replay_id is None


def test_a_lost_position_stops_the_run_or_is_recorded_as_a_gap(world: World) -> None:
    before_it = world.run(1)
    later = EVENTS[150:]
    before = world.store.read(STREAM)
    with pytest.raises(ReplayIdLostError, match="on_invalid_replay"):
        world.run(2, events=later)
    assert world.store.read(STREAM) == before
    assert world.store.gaps(STREAM) == []
    outcome = world.run(2, try_number=2, events=later, on_invalid_replay="earliest")
    gap = outcome.manifest.window.gap
    assert gap is not None
    assert (gap.after, gap.resumed_at) == (EVENTS[99].replay_id, later[0].replay_id)
    assert gap.since == before_it.manifest.window.covered_from, "event times are set by publishers and prove nothing"
    assert world.store.gaps(STREAM) == [gap]
    assert world.store.read(STREAM).replay_id == later[-1].replay_id


@pytest.mark.parametrize("start", [StartFrom.EARLIEST, replay_id(30)])
def test_an_empty_window_confirms_the_position(world: World, start: Any) -> None:
    outcome = world.run(1, events=EVENTS[:10], start_from=start)
    empty = world.run(2, events=EVENTS[:10])
    assert empty.manifest.window.event_count == 0
    assert empty.manifest.files == ()
    assert empty.manifest.window.through == EVENTS[9].replay_id
    assert outcome.manifest.window.through == EVENTS[9].replay_id
    assert world.run(3).manifest.window.event_count == 100


@pytest.mark.parametrize(("days", "confirmed"), [(0, False), (1, True)])
def test_the_first_drain_of_a_day_lets_a_quiet_stream_confirm_its_position(
    world: World, days: int, confirmed: bool
) -> None:
    world.run(1, events=EVENTS[:10])
    recorded = world.store.read(STREAM)
    fresh = replay_id(9_999)
    script: list[Step] = [Silence(), Silence(), Silence(), Keepalive(at=fresh)]
    outcome = world.run(2, events=EVENTS[:10], script=script, now=lambda: recorded.updated_at + timedelta(days=days))
    assert outcome.manifest.window.event_count == 0
    assert world.store.read(STREAM).replay_id == (fresh if confirmed else recorded.replay_id)


def test_idle_stream_without_a_confirmation_causes_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.run(1, events=EVENTS[:10])
    recorded = world.store.read(STREAM)
    tomorrow = recorded.updated_at + timedelta(days=1)
    world.run(2, events=EVENTS[:10], script=[Silence()] * 100, now=lambda: tomorrow)
    assert world.store.read(STREAM).replay_id == recorded.replay_id
    assert "Set max_seconds of the first drain of a day to 300 or more" in caplog.text
