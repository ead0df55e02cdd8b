"""Event loop with a virtual clock, which jumps to the next timer if no task is ready."""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

BEGINNING = datetime(2026, 1, 31, 12, tzinfo=UTC)
"""Date-time at 0 seconds."""

Result = TypeVar("Result")


class _Selector(selectors.DefaultSelector):
    skipped = 0.0
    threads_at_work = 0

    def select(self, timeout=None):
        if timeout is None or (timeout > 0 and self.threads_at_work):
            return super().select()  # only I/O or another thread can make progress: wait in real time
        ready = super().select(0)
        if not ready:
            self.skipped += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Event loop that starts at 0 seconds. ``faults`` contains the calls of the exception handler."""

    def __init__(self) -> None:
        self._virtual_selector = _Selector()
        super().__init__(self._virtual_selector)
        self.faults: list[dict[str, Any]] = []
        self.set_exception_handler(lambda loop, context: self.faults.append(context))

    def time(self) -> float:
        return self._virtual_selector.skipped

    def run_in_executor(self, executor, func, *args):
        self._virtual_selector.threads_at_work += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, *timeout: float) -> None:
        self._virtual_selector.threads_at_work += 1  # the thread that joins the others
        await super().shutdown_default_executor(*timeout)

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self._virtual_selector.threads_at_work -= 1


def virtual_clock() -> float:
    """Return the time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


def virtual_now() -> datetime:
    """Return the time of the running loop as a date-time."""
    return BEGINNING + timedelta(seconds=virtual_clock())


def run_in_virtual_time(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run ``coroutine`` as ``asyncio.run`` does; fail if tasks remain or asyncio reports an error."""

    async def run() -> Result:
        result = await coroutine
        gc.collect(1)  # a task with an unread exception reports it when it is collected
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"unfinished tasks: {left}"
        return result

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        result = runner.run(run())
    assert loop.faults == []
    return result
