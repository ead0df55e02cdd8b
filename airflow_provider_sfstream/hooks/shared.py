"""Resources that many users on one event loop share, such as one connection for all triggers of a triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary


class AsyncCloseable(Protocol):
    """What can be closed from the event loop that it belongs to."""

    async def aclose(self) -> None: ...


KeyT = TypeVar("KeyT", bound=Hashable)
ResourceT = TypeVar("ResourceT", bound=AsyncCloseable)


@dataclass
class _InUse(Generic[ResourceT]):
    resource: ResourceT
    users: int = 0


@dataclass
class _Loop(Generic[KeyT, ResourceT]):
    """What one event loop has. Its repr shows no key, which may hold a secret."""

    in_use: dict[KeyT, _InUse[ResourceT]] = field(default_factory=dict, repr=False)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedOnLoop(Generic[KeyT, ResourceT]):
    """One resource for each event loop and key: the first user opens it, the last one to leave closes it.

    Guarantees: users of equal keys who enter at the same time get the same resource; nobody gets one that is being
    closed; a user who is cancelled, or whose opening fails, leaves nothing behind and harms no other.
    """

    def __init__(self) -> None:
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop[KeyT, ResourceT]] = WeakKeyDictionary()

    @asynccontextmanager
    async def use(self, key: KeyT, open_resource: Callable[[], Awaitable[ResourceT]]) -> AsyncIterator[ResourceT]:
        """Lend the resource of ``key``.

        :param open_resource: makes it, if nobody uses it yet. Cancelled or failing, it must leave nothing to close.
        """
        loop = self._loops.setdefault(asyncio.get_running_loop(), _Loop())
        async with loop.opening:
            if key not in loop.in_use:
                loop.in_use[key] = _InUse(await open_resource())
            shared = loop.in_use[key]
            shared.users += 1
        try:
            yield shared.resource
        finally:
            shared.users -= 1
            if not shared.users:
                # Forgotten before anything is awaited: whoever enters from now on opens a new one.
                del loop.in_use[key]
                await shared.resource.aclose()
