"""Wait for the next response for a limited time, without ending the subscription when the time is over."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from airflow_provider_sfstream.salesforce.events import AsyncResponses, EventBatch


class ReadAhead:
    """Reads ``responses`` in a task, one response ahead of its consumer at most.

    To cancel an async generator's ``anext`` would end the generator; to stop waiting for a task ends nothing. Used as
    a context manager: entering begins to read, leaving ends the task, then closes ``responses``.
    """

    def __init__(self, responses: AsyncResponses) -> None:
        self._responses = responses
        self._task: asyncio.Task[EventBatch] | None = None

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None and task.cancel():
            # Cancelled once more here, the task still ends by itself, and ``responses`` with it.
            await asyncio.wait({task})
        await self._responses.aclose()

    async def next(self, seconds: float | None) -> EventBatch | None:
        """Return the next response, or ``None`` if there is none within ``seconds`` (``None``: no limit).

        Raises what ``responses`` raises.
        """
        task = self._begin()
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            return None
        self._task = None
        return task.result()

    def _begin(self) -> asyncio.Task[EventBatch]:
        if self._task is None:
            self._task = asyncio.create_task(self._read())
            self._task.add_done_callback(_look_at)
        return self._task

    async def _read(self) -> EventBatch:
        return await anext(self._responses)


def _look_at(task: asyncio.Task[EventBatch]) -> None:
    """Mark the task's error as seen: asyncio would log it if nobody waits for the task any more."""
    if not task.cancelled():
        task.exception()
