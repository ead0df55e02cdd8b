"""Interleavings of tasks that share a replay store and a landing: every order up to a number of switches.

Each actor is a thread that stops before every shared operation. A schedule is the sequence of the actors that may do
their next operation. Schedules are enumerated depth first; one is not continued where the shared state and the local
variables of every actor were met before: what follows is the same.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

DEADLINE = 60
_VALUES = ("builtins", "datetime", "airflow_provider_sfstream.salesforce", "airflow_provider_sfstream.replay_stores")
_OWN = str(Path(__file__).parents[2])
_FOLDER = re.compile(r"/[^\s'\"]*/(?=landing/|store.db)")
"""The folder of one execution in the paths and URLs of what it has written."""
_actor: ContextVar[Actor | None] = ContextVar("actor", default=None)


@dataclass
class Actor:
    """One thread, and whether it has ended."""

    target: Callable[[], None]
    thread: threading.Thread | None = None
    is_done: bool = False
    error: BaseException | None = None
    may_go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    has_stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def start(self) -> None:
        """Run to the first shared operation."""
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self._wait()

    def step(self) -> None:
        """Do the next shared operation, and run to the one after it."""
        self.may_go.release()
        self._wait()

    def local_state(self) -> list[tuple[str, int, list[tuple[str, str]]]]:
        """Return where the actor stands, and the local variables that what it does next can depend on."""
        if self.is_done or self.thread is None or self.thread.ident is None:
            return []
        frames: list[tuple[str, int, list[tuple[str, str]]]] = []
        frame = sys._current_frames().get(self.thread.ident)
        while frame is not None:
            if frame.f_code.co_filename != __file__ and _OWN in frame.f_code.co_filename:
                local = [(name, described(value)) for name, value in frame.f_locals.items()]
                frames.append((frame.f_code.co_name, frame.f_lineno, local))
            frame = frame.f_back
        return frames

    def _run(self) -> None:
        _actor.set(self)
        try:
            self.target()
        except BaseException as error:
            self.error = error
        self.is_done = True
        self.has_stopped.release()

    def _wait(self) -> None:
        assert self.has_stopped.acquire(timeout=DEADLINE), "an actor did not stop"


@contextmanager
def shared(operations: Sequence[tuple[Any, str]]) -> Iterator[None]:
    """Make actors stop before each call of these operations (owner and name)."""
    originals = [(owner, name, getattr(owner, name)) for owner, name in operations]

    def stopping(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            actor = _actor.get()
            if actor is None:
                return original(*arguments, **named)
            actor.has_stopped.release()
            actor.may_go.acquire(timeout=DEADLINE)
            _actor.set(None)  # one step: what it calls inside is a part of it
            try:
                return original(*arguments, **named)
            finally:
                _actor.set(actor)

        return call

    for owner, name, original in originals:
        setattr(owner, name, stopping(name, original))
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def described(value: Any) -> str:
    """Return a text of a value, the same in each execution; of objects that only do something, their type."""
    kind = type(value)
    if not kind.__module__.startswith(_VALUES):
        return kind.__name__
    text = repr(value)
    return kind.__name__ if " at 0x" in text else _FOLDER.sub("", text)


@dataclass(frozen=True)
class Execution:
    """A world of its own for one schedule: its actors, and what the shared state is now."""

    actors: Sequence[Actor]
    state: Callable[[], str]
    operations: Sequence[tuple[Any, str]]
    check: Callable[[], None]


def changes(schedule: Sequence[int]) -> int:
    """Return how often another actor goes on in a schedule."""
    return sum(one != other for one, other in pairwise(schedule))


def is_new(execution: Execution, schedule: Sequence[int], seen: set[str]) -> bool:
    """Return whether this state was not met before; it has been now."""
    state = repr(
        (
            schedule[-1:],
            changes(schedule),
            [(actor.is_done, actor.local_state()) for actor in execution.actors],
            execution.state(),
        )
    )
    if state in seen:
        return False
    seen.add(state)
    return True


def check_end(execution: Execution, schedule: Sequence[int]) -> None:
    """Raise what an actor ended with, or what the check finds, with the schedule that led there."""
    try:
        for actor in execution.actors:
            if actor.error is not None:
                raise actor.error
        execution.check()
    except BaseException as error:
        raise AssertionError(f"schedule {schedule}") from error


def explore(new_execution: Callable[[], Any], switches: int) -> int:
    """Check the end of every schedule that differs; return how many ends there were.

    :param new_execution: a context manager that gives an :class:`Execution`.
    :param switches: how often another actor may go on before the one that goes has ended.
    """
    seen: set[str] = set()
    waiting: list[tuple[int, ...]] = [()]
    ends = 0
    while waiting:
        schedule = list(waiting.pop())
        with new_execution() as execution, shared(execution.operations):
            actors = execution.actors
            for actor in actors:
                actor.start()
            for number in schedule:
                actors[number].step()
            while is_new(execution, schedule, seen):
                able = [number for number, actor in enumerate(actors) if not actor.is_done]
                if schedule and schedule[-1] in able and changes(schedule) == switches:
                    able = [schedule[-1]]
                if not able:
                    ends += 1
                    check_end(execution, schedule)
                    break
                waiting += [(*schedule, number) for number in able[1:]]
                schedule.append(able[0])
                actors[able[0]].step()
            for actor in actors:  # so that no thread is left
                while not actor.is_done:
                    actor.step()
    return ends
