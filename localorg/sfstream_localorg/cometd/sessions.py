"""CometD sessions: clients after their handshake, their subscriptions and positions. In memory only."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_MAX_ENDINGS = 1_000

Condition = Callable[[Mapping[str, Any]], bool]
Ending = Literal["disconnected", "handshake", "no_advice", "disconnect"]
"""End of a session. ``disconnected``: by its client. For the others, the client receives "403::Unknown client": with
advice to repeat the handshake, without advice, or, after a bare ``/meta/disconnect``, with advice not to reconnect."""


@dataclass
class CometdSubscription:
    """A subscription. ``name`` is the name that the client sent, ``channel`` is the name without its filter.

    ``position`` is the position of the last event sent or skipped. ``condition`` is the filter of the events' ``data``.
    """

    name: str
    channel: str
    position: int
    condition: Condition | None = None


@dataclass
class CometdSession:
    """A client between its handshake and the end of its session.

    ``deadline`` is the time on the monotonic clock at which the session ends without a new ``/meta/connect``; ``None``
    while one is held. ``wake`` wakes the held request; ``drop_held`` closes its connection. ``connects`` counts the
    ``/meta/connect`` requests; only the newest one is served.
    """

    client_id: str
    cookie: str = field(repr=False)
    deadline: float | None
    subscriptions: dict[str, CometdSubscription] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    connects: int = 0
    delivered: int = 0
    drop_held: bool = False
    ended: Ending | None = None

    @property
    def is_held(self) -> bool:
        """True while a ``/meta/connect`` is held."""
        return self.connects > 0 and self.deadline is None

    def listens_to(self, channel: str | None) -> bool:
        """Return whether the session subscribes to a channel; true for ``None``."""
        return channel is None or any(s.channel == channel for s in self.subscriptions.values())


class CometdSessions:
    """All CometD sessions of the org.

    :param reconnect_seconds: returns the time within which a client must connect again after a response.
    :param clock: returns monotonic seconds.
    """

    def __init__(self, reconnect_seconds: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._reconnect_seconds = reconnect_seconds
        self._clock = clock
        self._sessions: dict[str, CometdSession] = {}
        self._endings: OrderedDict[str, Ending] = OrderedDict()

    def __iter__(self) -> Iterator[CometdSession]:
        self._sweep()
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        self._sweep()
        return len(self._sessions)

    def begin(self) -> CometdSession:
        """Create a session for a new client."""
        client_id = "".join(secrets.choice(_DIGITS) for _ in range(26))
        session = CometdSession(client_id, secrets.token_urlsafe(18), self._clock() + self._reconnect_seconds())
        self._sessions[client_id] = session
        return session

    def get(self, client_id: object) -> CometdSession | None:
        """Return an active session by its id, ``None`` if it does not exist."""
        self._sweep()
        return self._sessions.get(client_id) if isinstance(client_id, str) else None

    def ending(self, client_id: object) -> Ending:
        """Return the ending of the session with this id; that of a timeout for an unknown session."""
        return self._endings.get(client_id, "handshake") if isinstance(client_id, str) else "handshake"

    def hold(self, session: CometdSession) -> int:
        """Record a new ``/meta/connect`` and return its number; an older held request ends."""
        session.connects += 1
        session.deadline = None
        session.drop_held = False
        session.wake.set()
        return session.connects

    def release(self, session: CometdSession, number: int) -> None:
        """Record the response to a ``/meta/connect``, and set the deadline of the next one."""
        if session.connects == number:
            session.deadline = self._clock() + self._reconnect_seconds()

    def end(self, session: CometdSession, ending: Ending) -> None:
        """End a session and its subscriptions, and wake its held ``/meta/connect``."""
        session.ended = ending
        self._sessions.pop(session.client_id, None)
        self._endings[session.client_id] = ending
        if len(self._endings) > _MAX_ENDINGS:
            self._endings.popitem(last=False)
        session.wake.set()

    def drop_held(self, channel: str | None) -> None:
        """Close the connections of held ``/meta/connect`` requests of a channel's sessions, of all for ``None``."""
        for session in self:
            if session.is_held and session.listens_to(channel):
                session.drop_held = True
                session.wake.set()

    def listeners(self, channel: str) -> int:
        """Return the number of sessions that subscribe to a channel."""
        return sum(session.listens_to(channel) for session in self)

    def wake(self) -> None:
        """Wake all held ``/meta/connect`` requests, so that they check for endings and faults."""
        for session in self._sessions.values():
            session.wake.set()

    def _sweep(self) -> None:
        now = self._clock()
        for session in [s for s in self._sessions.values() if s.deadline is not None and s.deadline < now]:
            self.end(session, "handshake")
