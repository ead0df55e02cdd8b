"""Published aiosfstream package, adapted to this Python version, to show the faults that the hazard tests cover.

aiocometd passes ``loop=`` to four functions of asyncio that no longer accept it. Its three modules receive a view of
asyncio that drops the argument. Nothing else is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import aiocometd.client
import aiocometd.transports.long_polling
import aiocometd.utils
import aiosfstream

_MODULES = (aiocometd.client, aiocometd.utils, aiocometd.transports.long_polling)


class _AsyncioView(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


def _without_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, loop: object = None, **options: Any) -> Any:
        return function(*args, **options)

    return call


@contextlib.contextmanager
def stock_asyncio() -> Iterator[None]:
    """Adapt aiocometd to this Python version for a ``with`` block."""
    view = _AsyncioView("asyncio")
    for name in ("wait", "wait_for", "sleep", "Semaphore"):
        setattr(view, name, _without_loop(getattr(asyncio, name)))
    for module in _MODULES:
        module.asyncio = view
    try:
        yield
    finally:
        for module in _MODULES:
            module.asyncio = asyncio


class StockClient(aiosfstream.Client):  # type: ignore[misc]
    """Stock client with a newer API version: Salesforce may retire 45.0."""

    @staticmethod
    def get_cometd_url(instance_url: str) -> str:
        return f"{instance_url}/cometd/62.0"

    async def abandon(self) -> None:
        """Release the resources that the client does not close."""
        if self._transport is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._transport.disconnect(), 1)
            if self._transport._connect_task is not None:
                self._transport._connect_task.cancel()
            if self._transport.http_session is not None:
                await self._transport.http_session.close()
