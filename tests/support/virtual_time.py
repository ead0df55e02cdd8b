"""An event loop whose clock does not wait: where nothing is ready, it jumps to the next timer."""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

BEGINNING = datetime(2026, 1, 31, 12, tzinfo=UTC)
"""The time of day at 0 seconds."""

Result = TypeVar("Result")


class _Selector(selectors.DefaultSelector):
    skipped = 0.0
    threads_at_work = 0

    def select(self, timeout=None):
        if timeout is None or (timeout > 0 and self.threads_at_work):
            return super().select()  # only a file or another thread can go on: wait for that in earnest
        ready = super().select(0)
        if not ready:
            self.skipped += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at 0 seconds. ``faults`` is what was handed to the exception handler, which logs it by default."""

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
    """Return the running loop's seconds."""
    return asyncio.get_running_loop().time()


def virtual_now() -> datetime:
    """Return the running loop's time of day."""
    return BEGINNING + timedelta(seconds=virtual_clock())


def run_in_virtual_time(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run ``coroutine`` as ``asyncio.run`` does, and fail if it left a task behind or asyncio had to complain."""

    async def run() -> Result:
        result = await coroutine
        gc.collect(1)  # a task whose error nobody looked at complains when it goes
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left behind: {left}"
        return result

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        result = runner.run(run())
    assert loop.faults == []
    return result
