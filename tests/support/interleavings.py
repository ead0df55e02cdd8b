"""Interleavings of tasks that share a replay store and a landing: all orders with a limited number of switches.

Each actor is a greenlet that stops before every shared operation. A schedule is a sequence of actors: each element runs
the next shared operation of its actor. Schedules are enumerated depth first. The search abandons a schedule if an
earlier one has reached the same shared state and the same local variables of all actors, because their continuations
are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from greenlet import GreenletExit, greenlet

_VALUES = ("builtins", "datetime", "airflow_provider_sfstream.salesforce", "airflow_provider_sfstream.replay_stores")
_OWN = str(Path(__file__).parents[2])
_FOLDER = re.compile(r"/[^\s'\"]*/(?=landing/|store.db)")
"""Matches the folder of one execution in paths and URLs below it."""
_actor: ContextVar[Actor | None] = ContextVar("actor", default=None)


class Actor:
    """A greenlet that runs one shared operation at a time.

    :ivar error: error that ended the actor.
    """

    def __init__(self, target: Callable[[], None]) -> None:
        self._target = target
        self._greenlet = greenlet(self._run)
        self.error: BaseException | None = None
        self.is_abandoned = False

    @property
    def is_done(self) -> bool:
        return bool(self._greenlet.dead)

    def step(self) -> None:
        """Run the next shared operation, and continue to the one after it; the first step runs to the first one."""
        self._greenlet.switch()

    def abandon(self) -> None:
        """End the actor: its shared operations raise :class:`GreenletExit`."""
        self.is_abandoned = True
        self._greenlet.throw(GreenletExit)

    def local_state(self) -> list[tuple[str, int, list[tuple[str, str]]]]:
        """Return function, line and local variables of the actor's frames, which determine its next operations."""
        frames: list[tuple[str, int, list[tuple[str, str]]]] = []
        frame = self._greenlet.gr_frame
        while frame is not None:
            if frame.f_code.co_filename != __file__ and _OWN in frame.f_code.co_filename:
                local = [(name, describe(value)) for name, value in frame.f_locals.items()]
                frames.append((frame.f_code.co_name, frame.f_lineno, local))
            frame = frame.f_back
        return frames

    def stop(self) -> None:
        """Continue the explorer until the next step; called by the actor."""
        explorer = self._greenlet.parent
        assert explorer is not None
        if not self.is_abandoned:
            explorer.switch()
        if self.is_abandoned:
            raise GreenletExit

    def _run(self) -> None:
        _actor.set(self)
        try:
            self._target()
        except BaseException as error:
            self.error = error


@contextmanager
def shared(operations: Sequence[tuple[Any, str]]) -> Iterator[None]:
    """Make actors stop before each call of these operations (owner and name) for a ``with`` block."""
    originals = [(owner, name, getattr(owner, name)) for owner, name in operations]

    def stopping(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            actor = _actor.get()
            if actor is None:
                return original(*arguments, **named)
            actor.stop()
            _actor.set(None)  # nested shared operations belong to this step
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


def describe(value: Any) -> str:
    """Return a text of a value that is equal in all executions; of objects without state, only the type."""
    kind = type(value)
    if not kind.__module__.startswith(_VALUES):
        return kind.__name__
    text = repr(value)
    return kind.__name__ if " at 0x" in text else _FOLDER.sub("", text)


@dataclass(frozen=True)
class Execution:
    """Environment of one schedule: its actors, a function that returns the shared state, and a final check."""

    actors: Sequence[Actor]
    state: Callable[[], str]
    operations: Sequence[tuple[Any, str]]
    check: Callable[[], None]


def changes(schedule: Sequence[int]) -> int:
    """Return the number of switches to another actor in a schedule."""
    return sum(one != other for one, other in pairwise(schedule))


def is_new(execution: Execution, schedule: Sequence[int], seen: set[str]) -> bool:
    """Add the current state to ``seen``; return whether it is new."""
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
    """Run the check of an execution.

    :raises AssertionError: with the schedule, if an actor or the check has raised an error.
    """
    try:
        for actor in execution.actors:
            if actor.error is not None:
                raise actor.error
        execution.check()
    except BaseException as error:
        raise AssertionError(f"schedule {schedule}") from error


def explore(new_execution: Callable[[], Any], switches: int) -> int:
    """Run all schedules that lead to different states, and check the end of each; return their number.

    :param new_execution: function that returns a context manager of a new :class:`Execution`.
    :param switches: maximum number of switches to another actor while the current one has not ended.
    """
    seen: set[str] = set()
    waiting: list[tuple[int, ...]] = [()]
    ends = 0
    while waiting:
        schedule = list(waiting.pop())
        with new_execution() as execution, shared(execution.operations):
            actors = execution.actors
            for actor in actors:
                actor.step()
            for number in schedule:
                actors[number].step()
            while is_new(execution, schedule, seen):
                runnable = [number for number, actor in enumerate(actors) if not actor.is_done]
                if schedule and schedule[-1] in runnable and changes(schedule) == switches:
                    runnable = [schedule[-1]]
                if not runnable:
                    ends += 1
                    check_end(execution, schedule)
                    break
                waiting += [(*schedule, number) for number in runnable[1:]]
                schedule.append(runnable[0])
                actors[runnable[0]].step()
            for actor in actors:
                actor.abandon()
    return ends
