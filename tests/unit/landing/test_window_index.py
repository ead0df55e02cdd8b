"""The window index of a landing: searches find the windows of the chain, however much of the index exists."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing import chain_index, window_bounds
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.documents import from_document, to_document
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.window_bounds import (
    Bounds,
    ChainSegment,
    end_before,
    hull_of,
    level_of,
    overlaps,
)
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.replay_stores.document.document import PositionDocument
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.pruning import prune_stream
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream
from tests.support.counted_files import CountedFiles
from tests.support.killed import Killed, killed_at
from tests.support.replay_stores import DictVariables, StoreUnderTest, minute, run_at

STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e")
HOUR = 60
DAY = 24 * HOUR


class World:
    """Landing in memory with a replay store, and the windows that a walk along the chain finds.

    :param every: check searches for one of this many times.
    """

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.files = CountedFiles()
        self.landing = Landing(self.files, "/lake", "memory://lake")
        self.variables = DictVariables()
        self.catalog = LandingCatalog(self.landing)
        self.under_test = StoreUnderTest(self.open, self.catalog)
        self.store = self.under_test.store
        self.now = 0.0
        self.runs: list[RunIdentity] = []
        self.saved: list[dict[str, str]] = []

    def open(self) -> DocumentReplayStore:
        """Return the store of a new task, with nothing cached."""
        return DocumentReplayStore(LandingCatalog(self.landing), self.variables, clock=lambda: minute(self.now))

    # Steps of a stream's history

    def pass_time(self, hours: float) -> None:
        self.now += hours * HOUR

    def drain(self, span: Any, events: Any, *, counted: bool = True, record: bool = True) -> None:
        """Land a live window. ``span`` and ``events`` are hours before now, or ``None``."""
        position = self.store.read(STREAM)
        run = self._new_run()
        window = self.land(position, run, span, events, counted=counted)
        if record:
            self.store.advance(STREAM, position, window)

    def backfill(self, span: Any, events: Any, *, counted: bool = True) -> None:
        """Land a backfill window."""
        window = self.land(Position(b"\x05"), self._new_run(), span, events, kind="backfill", counted=counted)
        self.store.record_backfill(STREAM, window)

    def land(self, position: Position, run: RunIdentity, span: Any, events: Any, **more: Any) -> ReplayWindow:
        covered, happened = (
            None if each is None else (self.now - max(each) * HOUR, self.now - min(each) * HOUR)
            for each in (span, events)
        )
        through = None if covered is None and happened is None else run.run_id.encode()[-8:]
        return self.under_test.land(STREAM, position, through, run, events=happened, covered=covered, **more)

    def reset(self) -> None:
        self.store.reset(STREAM, b"\x01", reason="test", updated_by="ann")

    def save(self) -> None:
        """Back the store up."""
        self.saved.append(dict(self.variables.values))

    def restore(self) -> None:
        """Put back the oldest backup of the store."""
        if self.saved:
            self.variables.values = self.saved.pop(0)

    def prune(self) -> None:
        """Remove the windows that are older than ten days."""
        try:
            landed = LandedStream(STREAM, self.catalog, self.store)
            prune_stream(landed, timedelta(days=10), pruned_by="test", now=lambda: minute(self.now))
        except ConfigurationError:
            assert self.saved or self.store.read(STREAM).window_id is not None or self.manifests()

    def erase(self, number: int) -> None:
        """Change a manifest as an erasure does."""
        manifests = self.manifests()
        if manifests:
            before = manifests[number % len(manifests)]
            self.catalog.replace_manifest(before, replace(before, erased={"20261120-erasure": 1}))

    def damage(self, number: int, how: str) -> None:
        """Remove, truncate or replace a document of the index."""
        documents = sorted(path for path in self.files.store if "/index/chain/" in path)
        if not documents:
            return
        path = documents[number % len(documents)]
        if how == "removed":
            self.files.rm_file(path)
        elif how == "cut":
            self.files.pipe_file(path, self.files.cat_file(path)[: number % 400])
        else:
            self.files.pipe_file(path, self.files.cat_file(documents[0]))

    def lose_index(self) -> None:
        """Remove the whole index: landings of earlier versions have none."""
        for path in [path for path in self.files.store if "/index/" in path]:
            self.files.rm_file(path)

    def _new_run(self) -> RunIdentity:
        self.runs.append(replace(run_at(self.now), run_id=f"run__{len(self.runs)}"))
        return self.runs[-1]

    # The windows that a walk along the chain finds

    def manifests(self) -> list[Manifest]:
        return [
            manifest
            for window_id in sorted(self.catalog.window_ids(STREAM))
            if (manifest := self.catalog.read_manifest(STREAM, window_id)) is not None
        ]

    def recorded(self) -> list[ReplayWindow]:
        """Return the live windows in recorded order, then the backfill windows by ID."""
        text = self.variables.get(self.store.key(STREAM))
        document = PositionDocument(STREAM) if text is None else PositionDocument.from_json(text, STREAM)
        heads = [document.position.window_id, *(each.from_window_id for each in reversed(document.resets))]
        live: dict[str, ReplayWindow] = {}
        for head in heads:
            if head is not None:
                live |= {each.window.window_id: each.window for each in self.catalog.chain(STREAM, head)}
        backfills = [manifest.window for manifest in self.manifests() if manifest.window.kind == "backfill"]
        return [*reversed(live.values()), *backfills]

    def check(self) -> None:
        """Assert that searches find the recorded windows, with a cached index and without."""
        recorded = self.recorded()
        bounds = [time for each in recorded for time in (each.covered_from, each.contact_at, each.last_event_time)]
        times = sorted({time for time in bounds if time is not None} | {minute(self.now), minute(-DAY)})[:: self.every]
        for store in (self.store, self.open()):
            for start, end in pairwise(times):
                expected = [window for window in recorded if overlaps(window, start, end)]
                assert store.windows_overlapping(STREAM, start, end) == expected
            for time in times:
                assert store.window_before(STREAM, time) == _last(recorded, time)
            for run in self.runs:
                expected = [window for window in recorded if window.run.key == run.key]
                assert store.windows_of_run(STREAM, run) == expected


def _last(recorded: list[ReplayWindow], time: datetime) -> ReplayWindow | None:
    ends = [
        (end, window.kind == "live", place, window)
        for place, window in enumerate(recorded)
        if (end := end_before(window, time)) is not None
    ]
    return max(ends)[-1] if ends else None


@pytest.fixture
def many_levels() -> Iterator[None]:
    """Start a chain segment at one of two windows, so that few windows form several levels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_bounds, "_BITS", 1)
        yield


hours = st.floats(0, 80).map(lambda number: round(number, 1))
spans = st.none() | st.tuples(hours, hours)
steps = st.one_of(
    st.tuples(st.just("pass_time"), st.tuples(st.integers(1, 90))),
    st.tuples(st.just("drain"), st.tuples(spans, spans, st.integers(1, 6))),
    st.tuples(st.just("drain"), st.tuples(spans, spans, st.integers(1, 6))),
    st.tuples(st.just("lose"), st.tuples(spans, spans)),
    st.tuples(st.just("backfill"), st.tuples(spans, spans)),
    st.tuples(st.sampled_from(["drain_uncounted", "backfill_uncounted"]), st.tuples(spans, spans)),
    st.tuples(st.sampled_from(["reset", "save", "restore", "prune", "lose_index"]), st.just(())),
    st.tuples(st.just("erase"), st.tuples(st.integers(0, 99))),
    st.tuples(st.just("damage"), st.tuples(st.integers(0, 999), st.sampled_from(["removed", "cut", "exchanged"]))),
)


@given(history=st.lists(steps, max_size=25), checks=st.sets(st.integers(0, 25), max_size=3))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_search_finds_the_windows_of_the_chain(
    many_levels: None, history: list[tuple[str, tuple[Any, ...]]], checks: set[int]
) -> None:
    world = World()
    for number, (step, arguments) in enumerate(history):
        if step == "drain":
            for _ in range(arguments[2]):
                world.pass_time(1)
                world.drain(*arguments[:2])
        elif step.endswith("_uncounted"):
            getattr(world, step.partition("_")[0])(*arguments, counted=False)
        elif step == "lose":
            world.drain(*arguments, record=False)
        else:
            getattr(world, step)(*arguments)
        if number in checks:
            world.check()
    world.check()


def daily(world: World, count: int) -> None:
    """Drain this many days, and backfill every fourth day."""
    for number in range(count):
        world.pass_time(24)
        world.drain((0, 24), (1, 20))
        if number % 4 == 3:
            world.backfill((30, 40), (31, 39))


def documents(world: World) -> list[str]:
    return sorted(path for path in world.files.store if "/index/chain/" in path)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_no_window_is_lost_when_a_task_is_killed_at_any_write(many_levels: None, after: bool) -> None:
    nth = 0
    while True:
        world, nth = World(every=3), nth + 1
        daily(world, 7)
        calls = [(world.files, "pipe_file"), (world.files, "rm_file"), (world.variables, "set")]
        position, run = world.store.read(STREAM), run_at(8 * DAY)
        world.pass_time(24)

        def task(store: DocumentReplayStore, world: World = world, position: Any = position, run: Any = run) -> None:
            window = world.land(position, run, (0, 24), (1, 20))
            store.advance(STREAM, position, window)
            again = world.land(Position(b"\x05"), run, (30, 40), (31, 39), kind="backfill")
            store.record_backfill(STREAM, again)
            store.windows_overlapping(STREAM, minute(0), minute(20 * DAY))
            world.pass_time(24 * 6)
            world.prune()
            world.pass_time(-24 * 6)

        world.runs.append(run)
        with killed_at(calls, nth, after=after) as made:
            try:
                task(world.open())
            except Killed:
                pass
            else:
                assert made() == nth - 1
                return
        world.check()
        task(world.open())
        world.check()


@pytest.mark.parametrize("remaining", [0, 1, 60, 0.5, -1], ids=str)
def test_truncated_index_document_is_rewritten(many_levels: None, remaining: float) -> None:
    world = World(every=4)
    daily(world, 20)
    whole = {path: world.files.cat_file(path) for path in documents(world)}
    for path, data in whole.items():
        size = int(len(data) * remaining) if remaining == 0.5 else int(remaining)
        world.files.pipe_file(path, data[:size])

    world.check()

    assert {path: world.files.cat_file(path) for path in documents(world)} == whole


def test_index_document_that_omits_a_window_is_rewritten(many_levels: None) -> None:
    """A document that omits a window contradicts the next window's manifest, even if its checksum is right."""
    world = World()
    daily(world, 20)
    whole = {path: world.files.cat_file(path) for path in documents(world)}
    for path, data in whole.items():
        segment = ChainSegment.from_json(data)
        if len(segment.parts) > 2:
            parts = (segment.parts[0], *segment.parts[2:])
            world.files.pipe_file(path, replace(segment, parts=parts).to_json().encode())
    assert {path: world.files.cat_file(path) for path in documents(world)} != whole

    found = world.open().windows_overlapping(STREAM, minute(-DAY), minute(40 * DAY))

    assert found == world.recorded()
    assert {path: world.files.cat_file(path) for path in documents(world)} == whole


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_no_window_is_lost_when_a_task_is_killed_while_it_builds_the_index(many_levels: None, after: bool) -> None:
    nth = 0
    while True:
        world, nth = World(every=5), nth + 1
        daily(world, 4)
        world.lose_index()
        with killed_at([(world.files, "pipe_file")], nth, after=after) as made:
            try:
                world.open().windows_overlapping(STREAM, minute(0), minute(2 * DAY))
            except Killed:
                pass
            else:
                assert made() == nth - 1 > 0
                return
        world.check()


def test_a_window_without_its_manifest_is_not_found(many_levels: None) -> None:
    world = World()
    daily(world, 12)
    world.check()
    before = world.recorded()
    gone = before[0]
    backfill = before[-1]
    for window in (gone, backfill):
        world.files.rm_file(world.landing.manifest_path(STREAM, window.window_id))

    assert world.recorded() == before[1:-1]
    world.check()


def test_index_entry_without_a_manifest_is_not_a_window() -> None:
    world = World()
    daily(world, 4)
    world.check()
    window = world.recorded()[-1]
    with killed_at([(world.files, "pipe_file")], 2, after=False), pytest.raises(Killed):
        world.land(Position(b"\x07"), run_at(99), (0, 30), (0, 30), kind="backfill")

    assert world.recorded()[-1] == window
    world.check()


def test_index_of_an_earlier_landing_is_built_once() -> None:
    world = World()
    daily(world, 12)
    world.lose_index()
    world.check()
    made = documents(world)
    world.files.counted()

    world.open().windows_overlapping(STREAM, minute(3 * DAY), minute(4 * DAY))

    assert documents(world) == made
    assert world.files.counted()[0] < 24


def test_broken_manifest_of_another_time_does_not_fail_a_search(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    daily(world, 12)
    world.lose_index()
    first = world.recorded()[0]
    world.files.pipe_file(world.landing.manifest_path(STREAM, first.window_id), b"broken")
    store, start, end = world.open(), minute(9 * DAY + 1), minute(9.5 * DAY)

    found = store.windows_overlapping(STREAM, start, end)

    assert [window.kind for window in found] == ["live"]
    assert first.window_id in caplog.text


def test_backfill_window_is_found_once_its_broken_manifest_is_repaired() -> None:
    world = World()
    daily(world, 4)
    world.backfill((30, 50), (30, 50))
    (backfill,) = world.store.windows_of_run(STREAM, world.runs[-1])
    path = world.landing.manifest_path(STREAM, backfill.window_id)
    manifest = world.files.cat_file(path)
    world.lose_index()
    world.files.pipe_file(path, b"broken")
    assert backfill not in world.open().windows_overlapping(STREAM, minute(0), minute(world.now))

    world.files.pipe_file(path, manifest)

    world.check()


def test_drains_write_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    levels: Callable[[int], int] = lambda level: sum(path.endswith(f".{level}.json") for path in documents(world))  # noqa: E731

    daily(world, 200)

    live = [window.window_id for window in world.recorded() if window.kind == "live"]
    for level in (1, 2, 3):
        assert levels(level) == sum(level_of(window_id) >= level for window_id in live)
    assert world.catalog.backfills.is_complete(STREAM)


def test_drain_does_not_build_a_large_chain_segment(monkeypatch: pytest.MonkeyPatch, many_levels: None) -> None:
    monkeypatch.setattr(chain_index, "_EXTENSION_LIMIT", 4)
    world = World(every=8)
    daily(world, 24)
    world.lose_index()

    world.drain((0, 1), (0, 1))

    assert len(documents(world)) < 5
    world.check()


def test_storage_that_refuses_index_documents_does_not_fail_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    write = world.files.pipe_file

    def refusing(path: str, *arguments: Any, **options: Any) -> None:
        if "/index/" in path:
            raise PermissionError(path)
        write(path, *arguments, **options)

    monkeypatch.setattr(world.files, "pipe_file", refusing)
    for _ in range(20):
        world.pass_time(1)
        world.drain((0, 1), (0, 1))

    assert documents(world) == []
    world.check()


times = st.none() | hours.map(lambda number: minute(number * HOUR))


@given(
    covered=st.tuples(times, times),
    contact=times,
    counts=times,
    events=st.none() | st.tuples(hours, hours).map(sorted),
    asked=st.tuples(hours, hours).filter(lambda pair: pair[0] < pair[1]),
)
@settings(max_examples=100, deadline=None)
def test_window_overlaps_no_time_outside_its_hull(
    covered: Any, contact: Any, counts: Any, events: Any, asked: Any
) -> None:
    first, last = (None, None) if events is None else (minute(each * HOUR) for each in events)
    count = 0 if events is None else 1
    window = ReplayWindow("20261120-1", "live", None, b"\x01", count, first, last, "", run_at(0))
    window = replace(window, covered_from=covered[0], covered_until=covered[1], contact_at=contact, counts_from=counts)
    start, end = (minute(each * HOUR) for each in asked)
    bounds = Bounds(minute(0), (minute(0), minute(0)), hull_of(window), None)

    assert bounds.meet(start, end) or not overlaps(window, start, end)
    assert bounds == from_document(Bounds, json.loads(json.dumps(to_document(bounds))))


def test_index_document_is_readable_json(many_levels: None) -> None:
    world = World()
    daily(world, 30)
    segment = next(ChainSegment.from_json(world.files.cat_file(path)) for path in documents(world) if ".2." in path)

    document = json.loads(segment.to_json())

    assert document["format"] == "sfstream-window-index"
    assert document["parts"][0].keys() == {"newest", "finished", "due", "hull", "ends"}
    assert ChainSegment.from_json(segment.to_json()) == segment
