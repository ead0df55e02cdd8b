"""Random steps of a scenario. The claims of each successful run are checked when it ends."""

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
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.restoring import restore_from_landing
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Span
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.claims_bus import HOUR, MIDNIGHT, Stall, place_of
from tests.support.claims_check import Claims
from tests.support.claims_dag import Dag, Task, random_weather
from tests.support.claims_server import Weather
from tests.support.claims_world import World
from tests.support.killed import Killed, killed_at

_FILES = ("makedirs", "open", "pipe_file", "mv", "rm_file", "rm", "mkdir")
_STORED = ("advance", "record_backfill", "record_gap")


@dataclass
class Steps:
    """The steps of a scenario. ``log_step`` is called with a line of text for each step."""

    world: World
    random: Random
    dag: Dag
    log_step: Callable[[str], None]
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
        """Schedule the publication of some events for the near future, or around the time of the next run."""
        count, reach = self.random.randint(1, 9), self.random.choice((30, HOUR, 2 * HOUR))
        begin = now = self.world.time.seconds
        if self.random.random() < 0.4:
            begin, reach = max(now, self._next + HOUR - 20), 200
        self._publish(count, begin, reach)
        self.log_step(f"publish {count} events in {reach:.0f} s, in {begin - now:.0f} s")

    def publish_the_past(self) -> None:
        """Add some events that were published before the scenario begins; some of them expire soon."""
        kept = self.world.bus.retention + self.world.bus.lag
        self._publish(self.random.randint(0, 9), -80 * HOUR, 80 * HOUR)
        self._publish(self.random.randint(0, 9), HOUR - kept - 60, 400)

    def _publish(self, count: int, begin: float, reach: float) -> None:
        for _ in range(count):
            at = begin + self.random.uniform(0, reach)
            wrong = self.random.choice(self.dag.event_time_errors)
            self.world.bus.publish(at, int((MIDNIGHT.timestamp() + at + wrong) * 1_000))

    def wait(self) -> None:
        """Advance the time, rarely by more than the retention of events."""
        hours = self.random.choice((0.2, 1, 3, 8, 30, 30, 80))
        self.world.time.sleep(hours * HOUR * self.random.uniform(0.5, 1.2))
        self.log_step("time passes")

    def change_clock(self) -> None:
        """Set the worker's clock to another skew, if this scenario has such jumps."""
        if self.dag.clocks_jump:
            self.world.time.skew = round(self.random.uniform(-HOUR, HOUR))
            self.log_step(f"the worker's clock is {self.world.time.skew:+.0f} s off")

    def run_with_wrong_clock(self) -> None:
        """Run a task while the clock of its worker or of the triggerer is wrong by some hours."""
        world, off = self.world, self.random.choice((-2.5, 2.5)) * HOUR
        skews = world.time.skew, world.triggerer_skew
        whose = "triggerer" if self.dag.defers and self.random.random() < 0.5 else "worker"
        if whose == "worker":
            world.time.skew += off
        else:
            world.triggerer_skew += off
        self.log_step(f"the {whose}'s clock is {off:+.0f} s off for one run")
        self.random.choice((self.run_scheduled, self.run_scheduled, self.backfill))()
        world.time.skew, world.triggerer_skew = skews

    def reset_stream(self) -> None:
        """Reset the stream. Backfills may follow before a live run can notice the reset.

        Skip this step until the first live window: without a recorded position, no run can notice a reset.
        """
        if self.world.store.read(self.world.stream).replay_id is None:
            return
        self.world.bus.reset()
        self.log_step("the stream is reset")
        for _ in range(self.random.choice((0, 1, 2))):
            self.random.choice((self.publish, self.backfill, self.backfill))()

    def change_managed(self) -> None:
        """Delete or change the committed position of the managed subscription, as an administrator or a client can."""
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
                self.run_scheduled()
                record.is_stopped = False
        self.log_step(f"the managed subscription is {what}, with {record.default_replay}")
        self.random.choice((self.publish, self.run_scheduled, self.backfill))()

    def stall_delivery(self) -> None:
        """Stall sessions for minutes or hours: they get replies but no events."""
        time, random = self.world.time, self.random
        begin = time.seconds + random.choice((0, 0, random.uniform(0, HOUR)))
        length, share = random.choice((200, 1200, 3 * HOUR, 12 * HOUR)), random.choice((0.5, 1.0))
        self.world.bus.stalls.append(Stall(begin, begin + length, share))
        self.log_step(f"{share:.0%} of sessions receive nothing for {length} s, in {begin - time.seconds:.0f} s")
        self.publish()

    def run_scheduled(self) -> None:
        """Run the next due task. If several runs are overdue, this may skip all but the last of them."""
        task = self._due()
        self._run(task)

    def kill_run(self) -> None:
        """Kill a run before or after one of its changes, and retry it now or later."""
        task, world = self._due(), self.world
        filesystem = world.catalog.landing.filesystem
        calls = [*((filesystem, n) for n in _FILES), (world.catalog, "write_manifest")]
        calls += [(world.store, name) for name in _STORED]
        nth, after = self.random.randint(1, 14), self.random.random() < 0.5
        self.log_step(f"kill the next run at change {nth}")
        with killed_at(calls, nth, after=after):
            self._run(task)
        if task in self._failed and self.random.random() < 0.7:
            self._run(task)

    def overtake_run(self) -> None:
        """Start a run, and complete another run before the first one records its window."""
        world, task = self.world, self._due()
        other = replace(task, run=self._identity("manual", task.run.run_after))
        advance = world.store.advance

        def overtaken(*arguments: Any) -> Any:
            del world.store.advance
            self.log_step("a concurrent run overtakes this one")
            self._run(other)
            return advance(*arguments)

        world.store.advance = overtaken
        self._run(task)
        with suppress(AttributeError):
            del world.store.advance

    def backfill(self) -> None:
        """Run a backfill of some past hours."""
        time, random = self.world.time, self.random
        hours, ago = random.choice((1, 1, 2, 6)), random.choice((0, 1, 3, 12, 23, 26, 31, 40, 71, 80))
        end = (time.true(time.seconds) - timedelta(hours=ago)).replace(minute=0, second=0, microsecond=0)
        interval = Span(end - timedelta(hours=hours), end)
        self._run(Task(self._identity("backfill", end), interval, backfill=True, reuse=random.random() < 0.8))

    def rerun(self) -> None:
        """Run an earlier task again, as after clearing it."""
        if self._tasks:
            task = self.random.choice(self._failed or self._tasks if self.random.random() < 0.5 else self._tasks)
            reuse = task.interval is None or self.random.random() < 0.7
            self.log_step("cleared")
            self._run(replace(task, reuse=reuse))

    def commit(self) -> None:
        """Commit an uncommitted window, usually the oldest."""
        if not self._uncommitted:
            return
        task, manifest = self._uncommitted.pop(self.random.choice((0, 0, -1)))
        with self._attempt(task, f"commit {manifest.window.window_id}"):
            self.world.commit(manifest)
            self._record_success(task)

    def lose_store(self) -> None:
        """Replace the store by an empty one, of either kind, and restore it, sometimes after another run."""
        world = self.world
        if self.random.random() < 0.4:
            world.store_kind = "variable" if world.store_kind == "table" else "table"
        world.new_store()
        self.log_step(f"the store is lost; there is a new {world.store_kind} store")
        if self.random.random() < 0.6:
            self.run_scheduled()
        self._restore()

    def restore_backup(self) -> None:
        """Reset the store to a copy that is some steps old, and restore it from the landing."""
        restore = self.world.copy_of_store()
        for _ in range(self.random.randint(1, 3)):
            self.random.choice((self.publish, self.run_scheduled, self.run_scheduled, self.commit))()
        restore()
        self.log_step("the store is replaced by its backup")
        if self.random.random() < 0.5:
            self.commit()
        self._restore()

    def _restore(self) -> None:
        world = self.world
        for last in (None, self._head):
            try:
                restored = restore_from_landing(
                    LandedStream(world.stream, world.catalog, world.store),
                    now=world.time.now(),
                    updated_by="somebody",
                    last_window_id=last,
                )
            except ConfigurationError as error:
                self.log_step(f"not restored: {str(error)[:150]}")
                continue
            self.log_step(f"restored {restored.live_windows} live windows")
            break
        self.claims.check_store()

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
        """Run a task, in random network conditions unless ``weather`` is passed; return whether it succeeded.

        After a loss, retry it with the arguments that accept the loss, if :meth:`_remedies` returns any.
        """
        self.world.weather = weather or random_weather(self.random, self.world.time.seconds, self.hazards)
        for more in ({}, *self._remedies()):
            remedy: dict[str, Any] = more
            with self._attempt(task, f"run {task.run.run_id} {task.interval or ''} {remedy or ''}") as lost:
                self._drain(task, remedy)
                return True
            if not lost:
                return False
        return False

    def _remedies(self) -> list[dict[str, Any]]:
        """Return arguments that a user may set to accept a lost replay ID or a lost part of an interval."""
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
            self._record_success(task)
            self.claims.check_interval(outcome, live=task.is_live)
            return
        del policies["on_expired"]
        window = world.window(task.run, limits=limits, start_from=dag.start_from, advance=not dag.manual, **policies)
        if window.drained:
            self.claims.check_window(window.manifest)
        if window.committed:
            self._record_success(task)
        else:
            self._uncommitted.append((task, window.manifest))
            self._uncommitted = self._uncommitted[-3:]

    def _record_success(self, task: Task) -> None:
        self.green += 1
        self.claims.green_runs.add(task.run.key)
        if task in self._failed:
            self._failed.remove(task)
        self._head = self.world.store.read(self.world.stream).window_id or self._head
        self.claims.check_store()

    @contextmanager
    def _attempt(self, task: Task, what: str) -> Iterator[list[bool]]:
        lost: list[bool] = []
        before = len(self.claims.false_claims)
        try:
            yield lost
            self.log_step(f"{what}: green{self._found(before)}")
        except (SalesforceStreamError, Killed) as error:
            self.red += 1
            self.log_step(f"{what}: {type(error).__name__} {str(error)[:160]}")
            if task not in self._failed:
                self._failed.append(task)
            if isinstance(error, ReplayIdLostError):
                lost.append(True)

    def _found(self, before: int) -> str:
        return "".join(f"\n    FALSE {kind}: {text}" for kind, text in self.claims.false_claims[before:])

    def settle(self) -> None:
        """Run all due tasks and then the failed ones without faults, so that an event that is still missing is lost.

        Retry all failed interval runs, and accept losses: only the run that landed late events has them in its result.
        Retry most of the other failed runs.
        """
        world, fine = self.world, Weather(keepalive=4)
        if self.dag.manual:
            self.dag = replace(self.dag, manual=False)
        world.time.sleep(2 * HOUR)  # until all scheduled events are published
        world.bus.stalls.clear()
        self.log_step("settle")
        for _ in range(6):
            task = self._due()
            began, is_green = world.time.seconds, self._run(task, weather=fine)
            if not is_green and task in self._failed:
                self.dag = replace(self.dag, on_invalid_replay="earliest", on_expired="partial")
                began, is_green = world.time.seconds, self._run(task, weather=fine)
        if is_green and self.dag.max_events is None:
            self.claims.check_end_of_stream(began)
        if self.dag.by_interval:
            self.dag = replace(self.dag, on_invalid_replay="earliest", on_expired="partial")
        for task in list(self._failed):
            if self.random.random() < 0.7 or self.dag.by_interval:
                self._run(task, weather=fine)
        self.claims.check_table(intervals=self.dag.by_interval)
