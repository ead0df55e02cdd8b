"""CometD sessions: who has shaken hands, what they subscribe to, and where they are on the bus. In memory only."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_MOST_REMEMBERED = 1_000

Condition = Callable[[Mapping[str, Any]], bool]
Ending = Literal["disconnected", "handshake", "no_advice", "disconnect"]
"""How a session ended: by its client; else what its client is told, which is "403::Unknown client" with the advice to
shake hands again, without advice, or with the advice not to connect again behind a bare ``/meta/disconnect``."""


@dataclass
class Subscribed:
    """One subscription. ``name`` is as the client gave it, ``channel`` without its filter.

    ``position`` is that of the last event sent or passed over; ``condition`` is asked for each event's ``data``.
    """

    name: str
    channel: str
    position: int
    condition: Condition | None = None


@dataclass
class CometdSession:
    """One client between its handshake and its end.

    ``deadline`` is when the session ends unless a ``/meta/connect`` comes, on the monotonic clock; ``None`` while one
    is held. ``wake`` is set to have a held one look around, ``drop_held`` to have it lose its connection. ``connects``
    counts them; the newest one is served.
    """

    client_id: str
    cookie: str = field(repr=False)
    deadline: float | None
    subscriptions: dict[str, Subscribed] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    connects: int = 0
    delivered: int = 0
    drop_held: bool = False
    ended: Ending | None = None

    @property
    def is_held(self) -> bool:
        """Whether a ``/meta/connect`` is held."""
        return self.connects > 0 and self.deadline is None

    def listens_to(self, channel: str | None) -> bool:
        """Return whether the session subscribes to a channel, or, for ``None``, always true."""
        return channel is None or any(s.channel == channel for s in self.subscriptions.values())


class CometdSessions:
    """All CometD sessions of the org.

    :param reconnect_seconds: how soon after an answer a client must connect again.
    :param clock: monotonic seconds.
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
        """Return the session of a new client."""
        client_id = "".join(secrets.choice(_DIGITS) for _ in range(26))
        session = CometdSession(client_id, secrets.token_urlsafe(18), self._clock() + self._reconnect_seconds())
        self._sessions[client_id] = session
        return session

    def get(self, client_id: object) -> CometdSession | None:
        """Return a live session, ``None`` if there is none of this id."""
        self._sweep()
        return self._sessions.get(client_id) if isinstance(client_id, str) else None

    def ending(self, client_id: object) -> Ending:
        """Return how the session of this id ended; for one that never was, as if it had timed out."""
        return self._endings.get(client_id, "handshake") if isinstance(client_id, str) else "handshake"

    def hold(self, session: CometdSession) -> int:
        """Note that a ``/meta/connect`` has come, and return its number; an older one held is to end."""
        session.connects += 1
        session.deadline = None
        session.drop_held = False
        session.wake.set()
        return session.connects

    def release(self, session: CometdSession, number: int) -> None:
        """Note that a ``/meta/connect`` is answered: the next one must come in time."""
        if session.connects == number:
            session.deadline = self._clock() + self._reconnect_seconds()

    def end(self, session: CometdSession, ending: Ending) -> None:
        """End a session and its subscriptions; a held ``/meta/connect`` is answered."""
        session.ended = ending
        self._sessions.pop(session.client_id, None)
        self._endings[session.client_id] = ending
        if len(self._endings) > _MOST_REMEMBERED:
            self._endings.popitem(last=False)
        session.wake.set()

    def drop_held(self, channel: str | None) -> None:
        """Have the sessions of a channel (all for ``None``) lose the connections of held ``/meta/connect``."""
        for session in self:
            if session.is_held and session.listens_to(channel):
                session.drop_held = True
                session.wake.set()

    def listeners(self, channel: str) -> int:
        """Return how many sessions subscribe to a channel."""
        return sum(session.listens_to(channel) for session in self)

    def wake(self) -> None:
        """Have every held ``/meta/connect`` look around."""
        for session in self._sessions.values():
            session.wake.set()

    def _sweep(self) -> None:
        now = self._clock()
        for session in [s for s in self._sessions.values() if s.deadline is not None and s.deadline < now]:
            self.end(session, "handshake")
