"""Long polling of ``/meta/connect``: a request is held until events arrive, its time is up, or the session ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfstream_localorg.cometd import replies
from sfstream_localorg.cometd.bayeux import Bayeux, Caller
from sfstream_localorg.cometd.delivery import Delivery, listening
from sfstream_localorg.cometd.replies import BayeuxError, Message
from sfstream_localorg.cometd.sessions import CometdSession

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_CONNECTION_CHECK_SECONDS = 1.0
"""Interval at which a held request checks the connection: aiohttp sends no signal when a client disconnects."""


class ConnectionGoneError(Exception):
    """The client closed the connection, or a fault closes it. No events were removed from its session."""


@dataclass
class ConnectAnswer:
    """Response to a ``/meta/connect``: chunks of event messages, then the reply.

    The caller calls :meth:`done` after the response was sent, or has failed.
    """

    reply: Message
    chunks: Iterator[list[bytes]]
    has_events: bool
    done: Callable[[], None]


class Connects:
    """Handler of ``/meta/connect`` for one org."""

    def __init__(self, org: Org, bayeux: Bayeux) -> None:
        self._org = org
        self._bayeux = bayeux

    async def answer(self, message: Message, caller: Caller, is_gone: Callable[[], bool]) -> ConnectAnswer:
        """Hold the message until events arrive or its time is up, and return the response.

        :param is_gone: returns whether the client has closed the connection.
        :raises BayeuxError: if the message is refused, immediately or while it is held.
        :raises ConnectionGoneError: if the client closed the connection.
        """
        session = self._bayeux.session(message, caller)
        kind = message.get("connectionType")
        if kind != "long-polling":
            raise BayeuxError(f"400::Invalid connection type {kind}")
        number = self._org.cometd.hold(session)
        ends_at = time.monotonic() + (0 if number == 1 else self._hold_seconds(message))
        try:
            chunks = await self._hold(session, number, caller, ends_at, is_gone)
        except BaseException:
            self._org.cometd.release(session, number)
            raise
        reply = self._reply(message, session)
        return ConnectAnswer(
            reply, chunks or iter(()), chunks is not None, lambda: self._org.cometd.release(session, number)
        )

    async def _hold(
        self, session: CometdSession, number: int, caller: Caller, ends_at: float, is_gone: Callable[[], bool]
    ) -> Iterator[list[bytes]] | None:
        """Wait for events and return them; return ``None`` if the request must be answered without events."""
        while True:
            session.wake.clear()
            if is_gone() or (session.drop_held and session.connects == number):
                raise ConnectionGoneError
            if session.ended == "disconnected" or session.connects != number:
                return None  # the client has disconnected, or has sent a newer request, which replaces this one
            if session.ended is not None:
                raise replies.session_ended(session.ended)
            self._bayeux.check_token(caller)
            with listening(self._org, session):
                chunks = Delivery(self._org, session, self._max_events()).chunks()
                for chunk in chunks:
                    if chunk:
                        return itertools.chain([chunk], chunks)
                    await asyncio.sleep(0)  # a filter may skip very many events
                left = ends_at - time.monotonic()
                if left <= 0:
                    return None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _CONNECTION_CHECK_SECONDS)):
                        await session.wake.wait()

    def _hold_seconds(self, message: Message) -> float:
        """Return the time to hold a message; a client may request less (Bayeux, "advice", timeout in milliseconds)."""
        requested, most = (message.get("advice") or {}).get("timeout"), self._org.knobs.cometd_connect_seconds
        return min(most, requested / 1_000) if isinstance(requested, int | float) and requested >= 0 else most

    def _max_events(self) -> int | None:
        quota = self._org.deliveries.left()
        if quota == 0:
            raise BayeuxError(replies.LIMIT_EXCEEDED, advice=replies.ADVICE_NONE)
        bounds = [bound for bound in (quota, self._org.knobs.cometd_batch_events) if bound is not None]
        return min(bounds) if bounds else None

    def _reply(self, message: Message, session: CometdSession) -> Message:
        if session.ended is not None:
            return replies.reply(message, advice=replies.ADVICE_NONE)
        timeout = int(self._org.knobs.cometd_connect_seconds * 1000)
        return replies.reply(message, advice={"interval": 0, "timeout": timeout, "reconnect": "retry"})
