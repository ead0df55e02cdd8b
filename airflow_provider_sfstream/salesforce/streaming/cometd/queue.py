"""Queue of event messages between the connection and the application, and the error that ended the connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from airflow_provider_sfstream.salesforce.streaming.cometd.messages import EventMessage


class EventQueue:
    """Event messages in the order of arrival. For one event loop; any number of consumers, one producer.

    A message is removed and returned in the same step of the event loop: a cancelled consumer loses nothing.

    :param most: number of messages from which :meth:`space` waits; 0 or less: never.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._messages: deque[EventMessage] = deque()
        self.failure: BaseException | None = None
        """The error that ended the connection, raised after the last waiting message; ``None`` while it is open."""
        self._has_heartbeat = False
        self._changed = asyncio.Event()
        self._removed = asyncio.Event()

    def qsize(self) -> int:
        """Return the number of waiting messages."""
        return len(self._messages)

    def put(self, message: EventMessage) -> None:
        """Add a message, without blocking. Drop it after the end of the connection: earlier messages may be missing."""
        if self.failure is None:
            self._messages.append(message)
            self._changed.set()

    async def space(self) -> None:
        """Wait until fewer than ``most`` messages wait."""
        while 0 < self._most <= len(self._messages):
            self._removed.clear()
            await self._removed.wait()

    def heartbeat(self) -> None:
        """Record that the server answered without events."""
        self._has_heartbeat = True
        self._changed.set()

    def forget_heartbeat(self) -> None:
        """Discard a heartbeat that no consumer has received."""
        self._has_heartbeat = False

    def end(self, failure: BaseException) -> None:
        """Record the error that ended the connection; the first one counts."""
        if self.failure is None:
            self.failure = failure
        self._changed.set()

    async def take(self, most: int, *, heartbeats: bool = False) -> list[EventMessage]:
        """Return up to ``most`` messages, at least one; none when the connection has ended and all were taken.

        :param heartbeats: return none, too, when the server answered without events since the last call that did so.
        """
        while not self._messages and self.failure is None and not (heartbeats and self._has_heartbeat):
            self._changed.clear()
            await self._changed.wait()
        self._has_heartbeat = False
        messages = [self._messages.popleft() for _ in range(min(most, len(self._messages)))]
        self._removed.set()
        return messages

    def put_back(self, messages: Sequence[EventMessage]) -> None:
        """Return messages to the queue, in front of all others."""
        self._messages.extendleft(reversed(messages))
        self._changed.set()
