"""Zombies: tasks that continue beside their retry and the next run, in every order of operations, for every store."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import PositionConflictError, ReplayStoreLostError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.replaced_files import PositionFiles
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.replay_windows import landing, recorded_positions
from airflow_provider_sfstream.replay_windows.incremental import WindowOutcome, WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from tests.support.interleavings import Actor, Execution, explore
from tests.support.replay_stores import DictVariables
from tests.support.scripted_source import Event, FakeTime, ScriptedSource, avro_payload, replay_id

STREAM = Stream("00Dxx0000001gPLEAY", "pubsub", "/event/Order__e")
EVENTS = [Event(replay_id(n), avro_payload(1_700_000_000_000 + n), n) for n in range(1, 9)]
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
TIME = FakeTime()
"""The clock of all drains and of their sources."""


def run_of(number: int, try_number: int) -> RunIdentity:
    return RunIdentity("orders", "drain", f"run-{number}", NOON.replace(hour=number), try_number=try_number)


class World:
    """Landing and store after one run, used by a zombie, its retry and the next run."""

    def __init__(self, stores: Sequence[Any], catalog: LandingCatalog, state: Callable[[], str], again: bool) -> None:
        self.stores, self.catalog, self.store_state, self.again = stores, catalog, state, again
        self.store = stores[0]
        self.outcomes: list[tuple[int, WindowOutcome]] = []

    def drain(self, number: int, try_number: int, events: int) -> None:
        request = WindowRequest(run_of(number, try_number), DrainLimits(), again=self.again)
        source = ScriptedSource(EVENTS[:events], [], time=TIME)
        outcome = drain_window(
            LandedStream(STREAM, self.catalog, self.stores[try_number == 1 == number]),
            request,
            source=source,
            now=lambda: NOON,
        )
        self.outcomes.append((number, outcome))

    def zombie(self, events: int) -> None:
        with suppress(PositionConflictError, ReplayStoreLostError):
            self.drain(1, 1, events)

    def others(self) -> None:
        """Run the retry, then the next run. Each is retried after a conflict, as in Airflow."""
        for number, events in ((1, 4), (2, 6)):
            for try_number in (2, 3, 4):
                try:
                    self.drain(number, try_number, events)
                    break
                except PositionConflictError:
                    continue
            else:
                raise AssertionError(f"run {number} failed three times")

    def state(self) -> str:
        stored = self.catalog.landing
        written = sorted(str(path) for path in Path(stored.base).rglob("manifest.json"))
        recorded = Path(stored.recorded_path(STREAM))
        returned = [(number, outcome.manifest.window.window_id) for number, outcome in self.outcomes]
        texts = (self.store_state(), recorded.read_text() if recorded.exists() else None)
        return repr((texts, [path.removeprefix(stored.base) for path in written], returned))

    def check(self) -> None:
        self.drain(3, 1, 8)
        returned = {outcome.manifest.window.window_id: outcome.manifest for _, outcome in self.outcomes}
        if self.again:  # an interval run returns its windows of the chain
            windows = self.store.windows_of_run(STREAM, run_of(1, 9))
            returned |= {each.window_id: self.catalog.read_manifest_url(each.manifest_url) for each in windows}
        returned_ids = Counter(key for manifest in returned.values() for key in self.catalog.replay_ids(manifest))
        assert returned_ids == Counter(event.replay_id for event in EVENTS), "returned"
        head = self.store.read(STREAM).window_id
        assert head is not None
        chain = Counter(
            key for manifest in self.catalog.chain(STREAM, head) for key in self.catalog.replay_ids(manifest)
        )
        assert chain == Counter(event.replay_id for event in EVENTS), "in the chain"
        if not self.again:
            windows = {outcome.manifest.window.window_id for number, outcome in self.outcomes if number == 1}
            assert len(windows) == 1, "the zombie returns the window of its retry"


TABLE = pytest.param("table", marks=[pytest.mark.extended, pytest.mark.exhaustive])
"""Runs only in ``make test-exhaustive``, because it opens a database in each of thousands of executions."""
KINDS = pytest.mark.parametrize("kind", ["variable", pytest.param("landing", marks=pytest.mark.extended), TABLE])
AGAIN = pytest.mark.parametrize("again", [False, True], ids=["incremental", "interval"])


@KINDS
@AGAIN
def test_zombie_that_continues_at_any_point_returns_no_event_of_another_run(
    kind: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zombie stops at any operation, the other runs start and stop at any operation, then the zombie continues."""
    explore_runs(kind, 2, 3, again, 2, tmp_path, monkeypatch)


@pytest.mark.extended
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("first", "sees", "again"), [(0, 3, True), (2, 4, False)], ids=["first run of an interval", "later run"]
)
def test_each_event_is_returned_once_when_runs_interrupt_each_other(
    first: int, sees: int, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the store that cannot compare and set."""
    explore_runs("variable", first, sees, again, 3, tmp_path, monkeypatch)


def test_run_whose_position_another_writer_replaced_returns_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run read the position before this one moved it, and writes after this one has read it back."""
    monkeypatch.setitem(Drain.__init__.__kwdefaults__, "clock", TIME.clock)
    catalog, texts = LandingCatalog(Landing.from_url(str(tmp_path / "landing"))), DictVariables()
    store = DocumentReplayStore(catalog, texts, clock=lambda: NOON)
    world = World([store, store], catalog, lambda: "", False)
    world.drain(0, 1, 2)
    before, write = dict(texts.values), recorded_positions.write_recorded

    def write_late(*arguments: Any) -> None:
        monkeypatch.setattr(recorded_positions, "write_recorded", write)
        texts.values |= before
        world.drain(1, 1, 6)
        write(*arguments)

    monkeypatch.setattr(recorded_positions, "write_recorded", write_late)
    with pytest.raises(PositionConflictError):
        world.drain(2, 1, 4)
    world.check()


def explore_runs(
    kind: str, first: int, sees: int, again: bool, switches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Drain.__init__.__kwdefaults__, "clock", TIME.clock)
    monkeypatch.setattr(landing.secrets, "token_hex", lambda length: "0" * length)  # equal states in each execution
    numbers = count()
    template = tmp_path / "template.db"
    if kind == "table":
        TableReplayStore(f"sqlite:///{template}").read(STREAM)

    @contextmanager
    def execution() -> Iterator[Execution]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        catalog = LandingCatalog(Landing.from_url(str(folder / "landing")))
        operations: list[tuple[Any, str]] = [
            (catalog, "write_manifest"),
            (recorded_positions, "read_recorded"),
            (recorded_positions, "write_recorded"),
        ]
        clocks = (lambda: NOON, lambda: NOON + timedelta(seconds=1))  # of the others, of the zombie
        stores: list[Any]
        if kind == "table":
            shutil.copy(template, folder / "store.db")
            stores = [TableReplayStore(f"sqlite:///{folder / 'store.db'}", clock=clock) for clock in clocks]
            operations += [(store, name) for store in stores for name in ("read", "advance", "windows_of_run")]
        else:
            texts: Any = DictVariables() if kind == "variable" else PositionFiles(catalog.landing)
            stores = [DocumentReplayStore(catalog, texts, clock=clock) for clock in clocks]
            operations += [(texts, "get"), (texts, "set")]
        world = World(stores, catalog, lambda: repr(type(stores[0]).read(stores[0], STREAM)), again)
        if first:
            world.drain(0, 1, first)
        yield Execution([Actor(lambda: world.zombie(sees)), Actor(world.others)], world.state, operations, world.check)
        for store in stores:
            store.close()
        shutil.rmtree(folder)

    assert explore(execution, switches) > 3
