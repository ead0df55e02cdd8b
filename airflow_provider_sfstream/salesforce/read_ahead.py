"""Wait for the next response of a subscription with a time limit that does not end the subscription."""

from __future__ import annotations

import asyncio
from typing import Self

from airflow_provider_sfstream.salesforce.events import AsyncResponses, EventBatch


class ReadAhead:
    """Reader of ``responses`` in a task, at most one response ahead of its consumer.

    Cancelling the ``anext`` of an async generator would end the generator; a wait for a task can stop without that.
    As a context manager, entry begins to read, and exit closes it.
    """

    def __init__(self, responses: AsyncResponses) -> None:
        self._responses = responses
        self._task: asyncio.Task[EventBatch] | None = None

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def is_reading(self) -> bool:
        """Return whether a response was requested that no consumer has received."""
        return self._task is not None

    async def next(self, seconds: float | None) -> EventBatch | None:
        """Return the next response, or ``None`` if there is none within ``seconds`` (``None``: no limit).

        Raises the errors of ``responses``, and :class:`StopAsyncIteration` at their end.
        """
        task = self._begin()
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            return None
        self._task = None
        return task.result()

    async def arrival(self) -> None:
        """Wait until a response, which :meth:`next` then returns, or the end has arrived. Raise an error of it."""
        task = self._begin()
        await asyncio.wait({task})
        failure = task.exception()
        if failure is not None and not isinstance(failure, StopAsyncIteration):
            raise failure

    async def aclose(self) -> None:
        """End the task, then close ``responses``."""
        task, self._task = self._task, None
        if task is not None and task.cancel():
            # If this wait is itself cancelled, the cancelled task still ends, and closes ``responses``.
            await asyncio.wait({task})
        await self._responses.aclose()

    def _begin(self) -> asyncio.Task[EventBatch]:
        if self._task is None:
            self._task = asyncio.create_task(self._read())
            self._task.add_done_callback(_retrieve_error)
        return self._task

    async def _read(self) -> EventBatch:
        return await anext(self._responses)


def _retrieve_error(task: asyncio.Task[EventBatch]) -> None:
    """Mark the task's error as retrieved: asyncio would log it if nothing waits for the task any more."""
    if not task.cancelled():
        task.exception()
