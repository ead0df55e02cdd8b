"""``/meta/connect``: held until there are events, the time is up, or the session ends."""

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

_LOOK_SECONDS = 1.0
"""How soon it is noticed that a waiting client has gone: nothing else tells of that."""


class ConnectionGoneError(Exception):
    """The client has closed the connection, or shall lose it: nothing was taken from its session."""


@dataclass
class ConnectAnswer:
    """What a ``/meta/connect`` is answered with: chunks of event messages, then the reply.

    :meth:`done` is to be called when the answer is on its way, or has failed.
    """

    reply: Message
    chunks: Iterator[list[bytes]]
    has_events: bool
    done: Callable[[], None]


class Connects:
    """Serves ``/meta/connect`` for one org."""

    def __init__(self, org: Org, bayeux: Bayeux) -> None:
        self._org = org
        self._bayeux = bayeux

    async def answer(self, message: Message, caller: Caller, is_gone: Callable[[], bool]) -> ConnectAnswer:
        """Hold the message as long as it takes and return its answer.

        :param is_gone: asked whether the client has closed the connection.
        :raises BayeuxError: if it is refused, at once or while it is held.
        :raises ConnectionGoneError: if the client went away.
        """
        session = self._bayeux.session(message, caller)
        kind = message.get("connectionType")
        if kind != "long-polling":
            raise BayeuxError(f"400::Invalid connection type {kind}")
        number = self._org.cometd.hold(session)
        ends_at = time.monotonic() + (0 if number == 1 else self._seconds(message))
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
        """Return the events to answer with, ``None`` if there are none and it is time to answer."""
        while True:
            session.wake.clear()
            if is_gone() or (session.drop_held and session.connects == number):
                raise ConnectionGoneError
            if session.ended == "disconnected" or session.connects != number:
                return None  # the client wants no more, or has sent another one: that one is served
            if session.ended is not None:
                raise replies.session_ended(session.ended)
            self._bayeux.check_token(caller)
            with listening(self._org, session):
                chunks = Delivery(self._org, session, self._most()).chunks()
                for chunk in chunks:
                    if chunk:
                        return itertools.chain([chunk], chunks)
                    await asyncio.sleep(0)  # a filter may pass over very many events
                left = ends_at - time.monotonic()
                if left <= 0:
                    return None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _LOOK_SECONDS)):
                        await session.wake.wait()

    def _seconds(self, message: Message) -> float:
        """Return how long to hold a message: a client may ask for less (Bayeux, "advice", timeout in milliseconds)."""
        asked, most = (message.get("advice") or {}).get("timeout"), self._org.knobs.cometd_connect_seconds
        return min(most, asked / 1_000) if isinstance(asked, int | float) and asked >= 0 else most

    def _most(self) -> int | None:
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
