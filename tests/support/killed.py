"""Simulated SIGKILL of a run, before or after any call that changes something outside its process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class Killed(BaseException):
    """Simulation of SIGKILL, which no handler of the package may catch."""


@contextmanager
def killed_at(calls: Iterable[tuple[Any, str]], nth: int, *, after: bool) -> Iterator[Callable[[], int]]:
    """Raise :class:`Killed` before (or after) the ``nth`` of these ``calls`` (owner and name of a method).

    Yield a function that returns the number of calls so far.
    """
    count = 0
    originals = [(owner, name, getattr(owner, name)) for owner, name in calls]

    def counting(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            mine = count
            if mine == nth and not after:
                raise Killed
            result = original(*args, **kwargs)
            if mine == nth and after:
                raise Killed
            return result

        return call

    for owner, name, original in originals:
        setattr(owner, name, counting(original))
    try:
        yield lambda: count
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
