"""What can happen to a stream, as random steps upon a world; each green run's claims are compared at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    ReplayIdLostError,
    SalesforceStreamError,
)
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_windows.restoring import restore_position
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Span
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.claims_bus import HOUR, MIDNIGHT, Stall, place_of
from tests.support.claims_check import Claims
from tests.support.claims_dag import Dag, Task, some_weather
from tests.support.claims_server import Weather
from tests.support.claims_world import World
from tests.support.killed import Killed, killed_at

_FILES = ("makedirs", "open", "pipe_file", "mv", "rm_file", "rm", "mkdir")
_STORED = ("advance", "record_backfill", "record_gap")


@dataclass
class Steps:
    """The steps of a scenario. ``tell`` is told what happens."""

    world: World
    random: Random
    dag: Dag
    tell: Callable[[str], None]
    hazards: Collection[str] = ()
    claims: Claims = field(init=False)
    green: int = 0
    red: int = 0
    _next: float = 0.0
    _numbers: int = 0
    _tasks: list[Task] = field(default_factory=list)
    _failed: list[Task] = field(default_factory=list)
    _uncommitted: list[tuple[Task, Manifest]] = field(default_factory=list)
    _head: str | None = None

    def __post_init__(self) -> None:
        self.claims = Claims(self.world)

    def publish(self) -> None:
        """Have some events published soon, or about the time of the next run."""
        count, reach = self.random.randint(1, 9), self.random.choice((30, HOUR, 2 * HOUR))
        begin = now = self.world.time.seconds
        if self.random.random() < 0.4:
            begin, reach = max(now, self._next + HOUR - 20), 200
        self._publish(count, begin, reach)
        self.tell(f"publish {count} events in {reach:.0f} s, in {begin - now:.0f} s")

    def publish_the_past(self) -> None:
        """Have had some events published before all this, some of which are just aging out."""
        kept = self.world.bus.retention + self.world.bus.lag
        self._publish(self.random.randint(0, 9), -80 * HOUR, 80 * HOUR)
        self._publish(self.random.randint(0, 9), HOUR - kept - 60, 400)

    def _publish(self, count: int, begin: float, reach: float) -> None:
        for _ in range(count):
            at = begin + self.random.uniform(0, reach)
            wrong = self.random.choice(self.dag.event_time_errors)
            self.world.bus.publish(at, int((MIDNIGHT.timestamp() + at + wrong) * 1_000))

    def wait(self) -> None:
        """Let time pass, rarely for longer than Salesforce keeps events."""
        hours = self.random.choice((0.2, 1, 3, 8, 30, 30, 80))
        self.world.time.sleep(hours * HOUR * self.random.uniform(0.5, 1.2))
        self.tell("time passes")

    def jump(self) -> None:
        """Set the worker's clock, if this scenario's do not agree."""
        if self.dag.clocks_jump:
            self.world.time.skew = round(self.random.uniform(-HOUR, HOUR))
            self.tell(f"the worker's clock is {self.world.time.skew:+.0f} s off")

    def wrong_clock(self) -> None:
        """Have the clock of one run's worker, or of the triggerer, be some hours off, and right again after that."""
        world, off = self.world, self.random.choice((-2.5, 2.5)) * HOUR
        skews = world.time.skew, world.triggerer_skew
        whose = "triggerer" if self.dag.defers and self.random.random() < 0.5 else "worker"
        if whose == "worker":
            world.time.skew += off
        else:
            world.triggerer_skew += off
        self.tell(f"the {whose}'s clock is {off:+.0f} s off for one run")
        self.random.choice((self.scheduled, self.scheduled, self.backfill))()
        world.time.skew, world.triggerer_skew = skews

    def reset_stream(self) -> None:
        """Reset the stream, perhaps with a backfill before a live run can find that.

        Not before the first live window: nothing that was read then can show what a reset took away before.
        """
        if self.world.store.read(self.world.stream).replay_id is None:
            return
        self.world.bus.reset()
        self.tell("the stream is reset")
        for _ in range(self.random.choice((0, 1, 2))):
            self.random.choice((self.publish, self.backfill, self.backfill))()

    def change_managed(self) -> None:
        """Have an administrator or another client take the committed position away."""
        record, random, bus = self.world.managed, self.random, self.world.bus
        if record is None:
            return
        what = random.choice(("created again", "started again", "committed by another client"))
        if what == "created again":
            record.records += 1
            record.default_replay = random.choice((StartFrom.EARLIEST, StartFrom.LATEST))
        if what == "committed by another client":
            ahead = bus.after(
                (bus.era, 0) if record.committed is None else place_of(record.committed), bus.time.seconds
            )
            if ahead:
                record.committed = random.choice(ahead).replay_id
        else:
            record.committed, record.is_stopped = None, random.random() < 0.3
            if record.is_stopped:
                self.scheduled()
                record.is_stopped = False
        self.tell(f"the managed subscription is {what}, with {record.default_replay}")
        self.random.choice((self.publish, self.scheduled, self.backfill))()

    def stall_delivery(self) -> None:
        """Have sessions receive nothing for minutes or hours, though they are answered."""
        time, random = self.world.time, self.random
        begin = time.seconds + random.choice((0, 0, random.uniform(0, HOUR)))
        length, share = random.choice((200, 1200, 3 * HOUR, 12 * HOUR)), random.choice((0.5, 1.0))
        self.world.bus.stalls.append(Stall(begin, begin + length, share))
        self.tell(f"{share:.0%} of sessions receive nothing for {length} s, in {begin - time.seconds:.0f} s")
        self.publish()

    def scheduled(self) -> None:
        """Run what is due next; where time has passed, some of what was not run, or only the last."""
        task = self._due()
        self._run(task)

    def killed(self) -> None:
        """Kill a run at any of its changes, and try it again, or leave that for later."""
        task, world = self._due(), self.world
        filesystem = world.catalog.landing.filesystem
        calls = [*((filesystem, n) for n in _FILES), (world.catalog, "write_manifest")]
        calls += [(world.store, name) for name in _STORED]
        nth, after = self.random.randint(1, 14), self.random.random() < 0.5
        self.tell(f"to be killed at change {nth}")
        with killed_at(calls, nth, after=after):
            self._run(task)
        if task in self._failed and self.random.random() < 0.7:
            self._run(task)

    def rival(self) -> None:
        """Let another run overtake one when it is about to record its window."""
        world, task = self.world, self._due()
        other = replace(task, run=self._identity("manual", task.run.run_after))
        advance = world.store.advance

        def overtaken(*arguments: Any) -> Any:
            del world.store.advance
            self.tell("a rival run overtakes this one")
            self._run(other)
            return advance(*arguments)

        world.store.advance = overtaken
        self._run(task)
        with suppress(AttributeError):
            del world.store.advance

    def backfill(self) -> None:
        """Run some hours of the past as a backfill."""
        time, random = self.world.time, self.random
        hours, ago = random.choice((1, 1, 2, 6)), random.choice((0, 1, 3, 12, 23, 26, 31, 40, 71, 80))
        end = (time.true(time.seconds) - timedelta(hours=ago)).replace(minute=0, second=0, microsecond=0)
        interval = Span(end - timedelta(hours=hours), end)
        self._run(Task(self._identity("backfill", end), interval, backfill=True, reuse=random.random() < 0.8))

    def cleared(self) -> None:
        """Run again what was run before."""
        if self._tasks:
            task = self.random.choice(self._failed or self._tasks if self.random.random() < 0.5 else self._tasks)
            reuse = task.interval is None or self.random.random() < 0.7
            self.tell("cleared")
            self._run(replace(task, reuse=reuse))

    def commit(self) -> None:
        """Commit a window that waits for it, not always the oldest."""
        if not self._uncommitted:
            return
        task, manifest = self._uncommitted.pop(self.random.choice((0, 0, -1)))
        with self._attempt(task, f"commit {manifest.window.window_id}"):
            self.world.commit(manifest)
            self._is_green(task)

    def lose_store(self) -> None:
        """Lose the store, or take another one; and be told so, or make it anew at once."""
        world = self.world
        if self.random.random() < 0.4:
            world.store_kind = "variable" if world.store_kind == "table" else "table"
        world.new_store()
        self.tell(f"the store is lost; there is a new {world.store_kind} store")
        if self.random.random() < 0.6:
            self.scheduled()
        self._restore()

    def restored_backup(self) -> None:
        """Bring the store back to what it was some steps ago, which somebody then restores from the landing."""
        restore = self.world.copy_of_store()
        for _ in range(self.random.randint(1, 3)):
            self.random.choice((self.publish, self.scheduled, self.scheduled, self.commit))()
        restore()
        self.tell("the store came back from a backup")
        if self.random.random() < 0.5:
            self.commit()
        self._restore()

    def _restore(self) -> None:
        world = self.world
        for last in (None, self._head):
            try:
                restored = restore_position(
                    world.stream,
                    store=world.store,
                    catalog=world.catalog,
                    now=world.time.now(),
                    updated_by="somebody",
                    last_window_id=last,
                )
            except ConfigurationError as error:
                self.tell(f"not restored: {str(error)[:150]}")
                continue
            self.tell(f"restored {restored.live_windows} live windows")
            break
        self.claims.of_store()

    def _due(self) -> Task:
        time = self.world.time
        missed = (time.seconds - self._next) // HOUR
        if missed > 4 or (missed > 1 and self.random.random() < 0.3):
            self._next += (missed - 1) * HOUR
        start = MIDNIGHT + timedelta(seconds=self._next)
        self._next += HOUR
        end = MIDNIGHT + timedelta(seconds=self._next)
        time.sleep(self._next - time.seconds + self.random.uniform(0, 120))  # the scheduler's clock is right
        return Task(self._identity("scheduled", end), Span(start, end) if self.dag.by_interval else None)

    def _identity(self, kind: str, run_after: Any) -> RunIdentity:
        self._numbers += 1
        return RunIdentity("orders", "drain", f"{kind}__{self._numbers}", run_after)

    def _run(self, task: Task, *, weather: Weather | None = None) -> bool:
        """Try a run in some weather; say whether it was green."""
        self.world.weather = weather or some_weather(self.random, self.world.time.seconds, self.hazards)
        for more in ({}, *self._remedies()):
            remedy: dict[str, Any] = more
            with self._attempt(task, f"run {task.run.run_id} {task.interval or ''} {remedy or ''}") as lost:
                self._drain(task, remedy)
                return True
            if not lost:
                return False
        return False

    def _remedies(self) -> list[dict[str, Any]]:
        """Return what somebody may set when told that a replay ID, or part of an interval, is lost."""
        if self.random.random() < 0.4:
            return []
        return [{"on_invalid_replay": self.random.choice(("earliest", "latest")), "on_expired": "partial"}]

    def _drain(self, task: Task, remedy: dict[str, Any]) -> None:
        world, dag = self.world, self.dag
        defers = dag.defers and not task.backfill and task.reuse
        waits = dag.wait_for_confirmation and not (defers and world.store.read(world.stream).replay_id is not None)
        limits = DrainLimits(
            max_events=None if task.interval else dag.max_events,
            confirm_timeout=300.0 if waits else 0.0,
            wait_for_confirmation=waits,
        )
        policies = {"on_invalid_replay": dag.on_invalid_replay, "on_expired": dag.on_expired} | remedy
        if task not in self._tasks:
            self._tasks.append(task)
        if task.interval is not None:
            outcome = world.interval(
                task.run,
                task.interval,
                backfill=task.backfill,
                limits=limits,
                start_from=dag.start_from,
                reuse=task.reuse,
                defers=defers,
                **policies,
            )
            self._is_green(task)
            self.claims.of_interval(outcome, live=task.is_live)
            return
        del policies["on_expired"]
        window = world.window(task.run, limits=limits, start_from=dag.start_from, advance=not dag.manual, **policies)
        if window.drained:
            self.claims.of_window(window.manifest)
        if window.committed:
            self._is_green(task)
        else:
            self._uncommitted.append((task, window.manifest))
            self._uncommitted = self._uncommitted[-3:]

    def _is_green(self, task: Task) -> None:
        self.green += 1
        self.claims.green_runs.add(task.run.key)
        if task in self._failed:
            self._failed.remove(task)
        self._head = self.world.store.read(self.world.stream).window_id or self._head
        self.claims.of_store()

    @contextmanager
    def _attempt(self, task: Task, what: str) -> Iterator[list[bool]]:
        lost: list[bool] = []
        before = len(self.claims.false)
        try:
            yield lost
            self.tell(f"{what}: green{self._found(before)}")
        except (SalesforceStreamError, Killed) as error:
            self.red += 1
            self.tell(f"{what}: {type(error).__name__} {str(error)[:160]}")
            if task not in self._failed:
                self._failed.append(task)
            if isinstance(error, ReplayIdLostError):
                lost.append(True)

    def _found(self, before: int) -> str:
        return "".join(f"\n    FALSE {kind}: {text}" for kind, text in self.claims.false[before:])

    def settle(self) -> None:
        """Let everything end well, so that what is still missing is lost: all that is due, then what failed.

        By intervals all of that, with what is lost accepted, because the run that landed late events gives them; else
        most of it.
        """
        world, fine = self.world, Weather(keepalive=4)
        if self.dag.manual:
            self.dag = replace(self.dag, manual=False)
        world.time.sleep(2 * HOUR)  # all that was to be published has been
        world.bus.stalls.clear()
        self.tell("settle")
        for _ in range(6):
            task = self._due()
            began, is_green = world.time.seconds, self._run(task, weather=fine)
            if not is_green and task in self._failed:
                self.dag = replace(self.dag, on_invalid_replay="earliest", on_expired="partial")
                began, is_green = world.time.seconds, self._run(task, weather=fine)
        if is_green and self.dag.max_events is None:
            self.claims.of_end(began)
        if self.dag.by_interval:
            self.dag = replace(self.dag, on_invalid_replay="earliest", on_expired="partial")
        for task in list(self._failed):
            if self.random.random() < 0.7 or self.dag.by_interval:
                self._run(task, weather=fine)
        self.claims.of_table(intervals=self.dag.by_interval)
