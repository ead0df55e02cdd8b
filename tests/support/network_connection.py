"""One connection through a :class:`~tests.support.network.Network`: two ways, each a line."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

from tests.support.network_points import BOTH, TO_CLIENT, TO_SERVER, Direction, Point, Watch

_CHUNK = 1 << 18
_WAITING = 1 << 20
"""Bytes that wait for their receiver, from which on no more are taken from their sender."""
_DRIPS_PER_SECOND = 20
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""For ``SO_LINGER``."""

Action = Callable[["Connection"], object]


@dataclass(eq=False)
class Rule:
    """What is to be done at a point. ``reached`` counts how often the point was, ``done`` how often it was done."""

    point: Point
    action: Action
    nth: int
    times: int | None
    reached: int = 0
    done: int = 0

    def strikes(self) -> bool:
        """Count one more, and return whether it is to be done."""
        self.reached += 1
        if self.reached < self.nth or (self.times is not None and self.done >= self.times):
            return False
        self.done += 1
        return True


@dataclass
class Conditions:
    """How the network is at the moment, for all of its connections."""

    delay: float = 0.0
    rate: float | None = None
    silent: frozenset[Direction] = frozenset()
    rules: list[Rule] = field(default_factory=list)


@dataclass(frozen=True)
class _Data:
    bytes: bytes
    looked_at: bool = False


_Waiting = _Data | Action | Literal["end", "reset"]


class Way:
    """One direction of a connection. ``carried``: bytes that have passed, ``last``: when the last did (monotonic)."""

    def __init__(self, direction: Direction, source: socket.socket, target: socket.socket) -> None:
        self.direction, self.source, self.target = direction, source, target
        self.carried = 0
        self.last: float | None = None
        self.held = False
        self.blocked = False
        self.ended = False
        self._line: deque[tuple[float, _Waiting]] = deque()
        self._size = 0
        self._read_to_end = False
        self._not_before = 0.0

    @property
    def waiting(self) -> int:
        """Bytes that have come and not passed."""
        return self._size

    def takes_more(self, now: float) -> bool:
        """Whether to read from the source: not for ever on behalf of a target that takes nothing."""
        if self._read_to_end:
            return False
        return self._size < _WAITING or self._line[0][0] > now

    def take(self, delay: float) -> None:
        """Read what has come, to be passed on after ``delay`` seconds, and not before what came before it."""
        came: _Waiting
        try:
            data = self.source.recv(_CHUNK)
            came = _Data(data) if data else "end"
        except BlockingIOError:
            return
        except OSError:
            data, came = b"", "reset"
        self._size += len(data)
        self._read_to_end = not data
        due = time.monotonic() + delay
        self._line.append((max(due, self._line[-1][0]) if self._line else due, came))

    def advance(self, connection: Connection, conditions: Conditions, now: float) -> float | None:
        """Pass on all that may pass now; return when to come back, ``None`` where that is not a matter of time.

        :raises OSError: if the target takes nothing any more.
        """
        while self._line and not self.blocked:
            due, first = self._line[0]
            if due > now:
                return due
            if self.held or self.direction in conditions.silent:
                return None
            if conditions.rate is not None and self._not_before > now:
                return self._not_before
            if isinstance(first, _Data):
                self._send(connection, due, first, conditions, now)
                continue
            self._line.popleft()
            if first == "end":
                self.ended = True
                with contextlib.suppress(OSError):  # it has gone
                    self.target.shutdown(socket.SHUT_WR)
            elif first == "reset":
                raise ConnectionResetError
            elif not isinstance(first, str):
                first(connection)
                if not connection.is_open:
                    return None
        return None

    def _send(self, connection: Connection, due: float, data: _Data, conditions: Conditions, now: float) -> None:
        if not data.looked_at:
            self._line.popleft()
            self._line.extendleft((due, part) for part in reversed(connection.split(self.direction, data.bytes)))
            return
        size = len(data.bytes)
        if conditions.rate is not None:
            size = min(size, max(1, int(conditions.rate / _DRIPS_PER_SECOND)))
        try:
            sent = self.target.send(memoryview(data.bytes)[:size])
        except BlockingIOError:
            self.blocked = True
            return
        self._line.popleft()
        if sent < len(data.bytes):
            self._line.appendleft((due, _Data(data.bytes[sent:], looked_at=True)))
        self._size -= sent
        self.carried += sent
        self.last = now
        if conditions.rate is not None:
            self._not_before = now + sent / conditions.rate


class Connection:
    """A client's connection, and the one to the server on its behalf. All methods may be called from any thread.

    ``to_client`` and ``to_server`` are its two ways, with what they have carried.
    """

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        conditions: Conditions,
        changing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        for one in (client, server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.to_client = Way(TO_CLIENT, server, client)
        self.to_server = Way(TO_SERVER, client, server)
        self.ways = (self.to_client, self.to_server)
        self.opened_at = time.monotonic()
        self.is_open = True
        self.is_forgotten = False
        self._conditions, self._changing = conditions, changing
        self._watches: dict[Rule, Watch] = {}
        self.watch()

    @property
    def last(self) -> float:
        """When it last carried something, or was opened (monotonic)."""
        return max(self.opened_at, *(way.last or 0.0 for way in self.ways))

    def way(self, direction: Direction) -> Way:
        """Return its way in one direction."""
        return self.to_client if direction is TO_CLIENT else self.to_server

    def hold(self, directions: frozenset[Direction] = BOTH) -> None:
        """Let what it carries wait, until :meth:`release`: meanwhile that of other connections overtakes it."""
        with self._changing():
            for way in self.ways:
                way.held = way.held or way.direction in directions

    def release(self) -> None:
        """Let pass what waits, in its order."""
        with self._changing():
            for way in self.ways:
                way.held = False

    def forget(self) -> None:
        """Carry nothing more, for good, and tell nobody: both ends stay open, as after a middlebox restarted."""
        with self._changing():
            self.is_open, self.is_forgotten = False, True

    def reset(self) -> None:
        """End it with a reset for both ends."""
        with self._changing():
            for way in self.ways:
                with contextlib.suppress(OSError):
                    way.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self._close()

    def close(self) -> None:
        """End it as if each end had closed it to the other; what waits is lost."""
        with self._changing():
            for way in self.ways:
                with contextlib.suppress(OSError):
                    way.source.shutdown(socket.SHUT_RDWR)
            self._close()

    def free(self) -> None:
        """Close its sockets, also those that were forgotten."""
        for way in self.ways:
            way.source.close()

    def _close(self) -> None:
        self.is_open = self.is_forgotten = False
        self.free()

    # What follows is for the network's own thread.

    def watch(self) -> None:
        """Look for the points that the network has now."""
        rules = self._conditions.rules
        self._watches = {rule: self._watches.get(rule) or rule.point.watch() for rule in rules}

    def split(self, direction: Direction, data: bytes) -> list[_Data | Action]:
        """Return ``data`` with what is to be done in the midst of it."""
        places = [
            (place, rule.action)
            for rule, watch in self._watches.items()
            for place in watch.places(direction, data)
            if rule.strikes()
        ]
        parts: list[_Data | Action] = []
        done = 0
        for place, action in sorted(places, key=lambda one: one[0]):
            parts += [_Data(data[done:place], looked_at=True)] if place > done else []
            parts.append(action)
            done = place
        return [*parts, _Data(data[done:], looked_at=True)] if done < len(data) else parts

    def advance(self, now: float) -> float | None:
        """Pass on all that may pass now; return when to come back."""
        soonest: float | None = None
        try:
            for way in self.ways:
                due = way.advance(self, self._conditions, now) if self.is_open else None
                soonest = due if soonest is None or (due is not None and due < soonest) else soonest
        except OSError:
            self.reset()
        if self.is_open and all(way.ended for way in self.ways):
            self._close()
        return soonest
