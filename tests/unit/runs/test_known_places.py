"""Replay IDs that are known to read on from: where they come from, and runs that read side by side after them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.drain.drain import drain
from airflow_provider_sfstream.drain.limits import DrainLimits
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter
from airflow_provider_sfstream.protocol.retention import LONG
from airflow_provider_sfstream.protocol.streams import RunIdentity, Stream
from airflow_provider_sfstream.runs import known_places as places
from airflow_provider_sfstream.runs.incremental import WindowOutcome, WindowRequest, drain_window
from airflow_provider_sfstream.runs.known_places import known_places
from airflow_provider_sfstream.runs.landed_stream import LandedStream
from airflow_provider_sfstream.stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.stores.table.store import TableReplayStore
from tests.support.killed import Killed, killed_at
from tests.support.scripted_source import Event, FakeTime, ScriptedSource, avro_payload, replay_id

EVENTS = [Event(replay_id(3 * n), avro_payload(1_700_000_000_000 + n), n) for n in range(1, 2_001)]
PLACE = {event.replay_id: number for number, event in enumerate(EVENTS, start=1)}
MINE, OTHER = "airflow", "analytics"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Variables:
    """Airflow Variables, in a dict."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def name(self, key: str) -> str:
        return key

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    def set(self, key: str, value: str, description: str) -> None:
        self.values[key] = value


class World:
    """One landing and one replay store, and runs of several subscriptions to a topic upon them."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.catalog = LandingCatalog(Landing.from_url(str(folder / "landing")))
        self.time = FakeTime()
        self.store: Any = (
            TableReplayStore(f"sqlite:///{folder / 'store.db'}")
            if kind == "table"
            else DocumentReplayStore(catalog=self.catalog, variables=Variables())
        )
        self.source = ScriptedSource(EVENTS, time=self.time)

    def landed(self, subscription: str, topic: str = "/event/Order__e") -> LandedStream:
        return LandedStream(
            Stream("00Dxx0000001gPLEAY", "pubsub", topic, subscription), self.catalog, self.store, lambda: LONG
        )

    def run(
        self, number: int, subscription: str = MINE, *, max_events: int | None = None, tries: int = 1, **more: Any
    ) -> WindowOutcome:
        run = RunIdentity(subscription, "drain", f"run-{number}", NOW + timedelta(hours=number), try_number=tries)
        self.source = ScriptedSource(EVENTS, time=self.time)
        topic = more.pop("topic", "/event/Order__e")
        request = WindowRequest(run, DrainLimits(max_events=max_events), **more)
        return drain_window(
            self.landed(subscription, topic),
            request,
            source=self.source,
            now=lambda: NOW + timedelta(hours=number),
        )

    def known(self, subscription: str = MINE, streams: int = 4) -> list[int]:
        """Return which events' replay IDs are known to lie after the position, by their numbers."""
        landed = self.landed(subscription)
        position = landed.position()
        assert position.replay_id is not None
        previous = landed.manifest(position.window_id)
        now = NOW + timedelta(hours=50)
        found = known_places(landed, position.replay_id, previous and previous.window, streams=streams, now=now)
        return [PLACE[each] for each in found]

    def rows(self, outcome: WindowOutcome, subscription: str = MINE) -> list[dict[str, Any]]:
        stream = self.landed(subscription).stream
        folder = self.catalog.landing.window_folder(stream, outcome.manifest.window.window_id)
        tables = [pq.read_table(f"{folder}/{file.name}") for file in outcome.manifest.files]
        return [row for table in tables for row in table.drop_columns(["received_at"]).to_pylist()]


@pytest.fixture(params=["variable", "table"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, request.param)
    monkeypatch.setattr(places, "LEAST_EVENTS", 100)
    monkeypatch.setitem(drain.__kwdefaults__, "clock", made.time.clock)
    yield made
    made.store.close()


def test_what_another_subscription_landed_is_known(world: World) -> None:
    world.run(0, max_events=200)
    for number in range(10):
        world.run(number, OTHER, max_events=200)
    assert world.known() == list(range(301, 2_001, 100))
    assert world.known(streams=2) == list(range(307, 2_001, 106)), "eight for each"
    assert world.known(OTHER) == [], "nobody was further"


def test_a_large_window_is_known_within(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ParquetWindowWriter.__init__.__kwdefaults__, "row_group_rows", 300)
    monkeypatch.setitem(ParquetWindowWriter.__init__.__kwdefaults__, "part_bytes", 2_000)
    world.run(0, max_events=200)
    outcome = world.run(0, OTHER)
    assert len(outcome.manifest.files) > 1
    assert world.known() == list(range(301, 2_001, 100))


def test_what_was_landed_before_a_reset_is_known(world: World) -> None:
    for number in range(10):
        world.run(number, max_events=200)
    landed = world.landed(MINE)
    landed.store.reset(landed.stream, EVENTS[599].replay_id, reason="again", updated_by="a test")
    assert world.known() == list(range(701, 2_001, 100))


def test_nothing_is_looked_for_where_one_stream_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(0, max_events=200)
    world.run(0, OTHER)
    monkeypatch.setattr(world.catalog, "streams", None)
    assert world.known(streams=1) == []


def test_another_topic_tells_nothing(world: World) -> None:
    world.run(0, max_events=200)
    world.run(0, OTHER, topic="/event/Return__e")
    assert world.known() == []


def test_what_cannot_be_read_is_not_known_and_the_run_does_without(world: World) -> None:
    world.run(0, max_events=200)
    other = world.run(0, OTHER)
    world.catalog.landing.filesystem.rm_file(
        f"{world.catalog.landing.window_folder(world.landed(OTHER).stream, other.manifest.window.window_id)}/"
        f"{other.manifest.files[0].name}"
    )
    assert world.known() == []
    assert world.run(1, parallel_streams=4).manifest.window.event_count == 1_800


@pytest.mark.parametrize("max_events", [None, 1_234])
def test_the_window_is_the_one_of_a_single_stream(world: World, max_events: int | None) -> None:
    world.run(0, max_events=200)
    for number in range(10):
        world.run(number, OTHER, max_events=200)
    third = world.landed("third")
    third.store.reset(third.stream, EVENTS[199].replay_id, reason="there too", updated_by="a test")

    outcome = world.run(20, max_events=max_events, parallel_streams=4)
    assert len(world.source.starts) > 4, "read side by side"
    alone = world.run(20, "third", max_events=max_events)
    assert len(world.source.starts) == 1
    assert world.rows(outcome) == world.rows(alone, "third")
    window, one = outcome.manifest.window, alone.manifest.window
    facts = ("after", "through", "event_count", "first_event_time", "last_event_time")
    assert [getattr(window, name) for name in facts] == [getattr(one, name) for name in facts]
    assert outcome.manifest.stop_reason == alone.manifest.stop_reason
    assert world.landed(MINE).position().replay_id == window.through


def side_effects(world: World) -> list[tuple[Any, str]]:
    """Every call by which a run changes something outside its process."""
    filesystem = world.catalog.landing.filesystem
    names = ("makedirs", "open", "pipe_file", "mv", "rm_file", "rm", "mkdir")
    calls: list[tuple[Any, str]] = [(filesystem, name) for name in names]
    calls += [(world.catalog, "write_manifest"), (world.catalog, "remove_unlisted"), (world.store, "advance")]
    return calls


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_change_and_tried_again(after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LEAST_EVENTS", 500)
    nth = kills = 0
    while True:
        nth += 1
        folder = tmp_path / f"killed-{nth}"
        folder.mkdir()
        world = World(folder, "table")
        monkeypatch.setitem(drain.__kwdefaults__, "clock", world.time.clock)
        first = world.run(0, max_events=200)
        world.run(0, OTHER)
        with killed_at(side_effects(world), nth, after=after) as made:
            try:
                world.run(1, parallel_streams=4)
            except Killed:
                kills += 1
        if made() < nth:
            break
        second = world.run(1, parallel_streams=4, tries=2)
        rows = world.rows(second)
        assert [row["replay_id"] for row in rows] == [event.replay_id for event in EVENTS[200:]], f"at change {nth}"
        assert [row["ordinal"] for row in rows] == list(range(1_800))
        assert second.manifest.window.previous_window_id == first.manifest.window.window_id
        assert world.landed(MINE).position().replay_id == EVENTS[-1].replay_id
        world.store.close()
    assert kills > 5
