"""Base of the hooks that read events, and the resources that their users on one event loop share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from airflow_provider_sfstream.exceptions import AuthenticationError, SalesforceStreamError
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook
from airflow_provider_sfstream.salesforce.rest.event_topics import EventDefinitionClient


class AsyncCloseable(Protocol):
    """Resource that is closed from its event loop."""

    async def aclose(self) -> None: ...


ResourceT = TypeVar("ResourceT", bound=AsyncCloseable)


@dataclass
class _Loop(Generic[ResourceT]):
    """Resources of one event loop, and the numbers of their users. Its repr has no key, which may contain a secret."""

    resources: dict[Hashable, ResourceT] = field(default_factory=dict, repr=False)
    users: Counter[Hashable] = field(default_factory=Counter, repr=False)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedOnLoop(Generic[ResourceT]):
    """One resource for each event loop and key: the first user opens it, the last one to leave closes it.

    Guarantees: concurrent users of equal keys receive the same resource; no user receives one that is being
    closed; a cancelled user, or one whose opening fails, leaves no open resource and does not affect other users.
    """

    def __init__(self) -> None:
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop[ResourceT]] = WeakKeyDictionary()

    @asynccontextmanager
    async def use(self, key: Hashable, open_resource: Callable[[], Awaitable[ResourceT]]) -> AsyncIterator[ResourceT]:
        """Yield the resource of ``key``.

        :param open_resource: opens it for its first user. If it fails or is cancelled, it must leave nothing open.
        """
        loop = self._loops.setdefault(asyncio.get_running_loop(), _Loop())
        async with loop.opening:
            if key not in loop.resources:
                loop.resources[key] = await open_resource()
            loop.users[key] += 1
        try:
            yield loop.resources[key]
        finally:
            loop.users[key] -= 1
            if not loop.users[key]:
                del loop.users[key]
                # Removed before the await, so that no new user receives a resource that is being closed.
                await loop.resources.pop(key).aclose()


class SalesforceEventHook(SalesforceLoginHook):
    """Base of the hooks of the Pub/Sub API and of the Streaming API.

    :param salesforce_conn_id: the Airflow connection.
    """

    def __init__(self, salesforce_conn_id: str = SalesforceLoginHook.default_conn_name) -> None:
        super().__init__(salesforce_conn_id)
        self._retentions: dict[str, timedelta | None] = {}

    def event_retention(self, topic: str) -> timedelta | None:
        """Return the retention of the events of a topic at Salesforce; ``None``, with a warning, if it is unknown.

        72 hours for change events, custom channels, standard and high-volume platform events; 24 hours for
        standard-volume platform events, PushTopics and generic channels. The volume of a custom platform event
        (``/event/Order__e``) is read from its definition, with one Tooling API request per hook object, which needs the
        permission "View Setup and Configuration". Callers assume 24 hours if it is unknown, as the warning states.

        :raises AuthenticationError: if a login was needed and failed.
        """
        if topic not in self._retentions:
            self._retentions[topic] = self._read_retention(topic)
        return self._retentions[topic]

    def _read_retention(self, topic: str) -> timedelta | None:
        try:
            with self._rest_client(EventDefinitionClient) as client:
                retention = client.retention(topic)
            cause = "Salesforce returned no definition with a volume (the org has no such event, or hides it)."
        except AuthenticationError:
            raise
        except SalesforceStreamError as error:
            retention, cause = None, error.happened
        if retention is None:
            self.log.warning(
                "%s: the retention of its events is unknown. Cause: %s 24 hours are assumed, the retention of "
                "standard-volume events; high-volume events are retained for 72. Assign the permission 'View Setup "
                "and Configuration' to the user of the connection %r.",
                *(topic, cause, self.salesforce_conn_id),
            )
        return retention
