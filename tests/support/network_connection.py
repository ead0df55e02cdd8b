"""One connection through a :class:`~tests.support.network.Network`, with a queue for each direction."""

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
"""Number of queued bytes from which on no more are read from the sender."""
_DRIPS_PER_SECOND = 20
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""Value of ``SO_LINGER`` that makes ``close`` reset the connection."""

Action = Callable[["Connection"], object]


@dataclass(eq=False)
class Rule:
    """Action at a point. ``reached`` counts occurrences of the point, ``done`` counts runs of the action."""

    point: Point
    action: Action
    nth: int
    times: int | None
    reached: int = 0
    done: int = 0

    def strikes(self) -> bool:
        """Count one occurrence of the point, and return whether the action must run."""
        self.reached += 1
        if self.reached < self.nth or (self.times is not None and self.done >= self.times):
            return False
        self.done += 1
        return True


@dataclass
class Conditions:
    """Current conditions of the network, shared by all of its connections."""

    delay: float = 0.0
    rate: float | None = None
    silent: frozenset[Direction] = frozenset()
    rules: list[Rule] = field(default_factory=list)


@dataclass(frozen=True)
class _Data:
    bytes: bytes
    is_split: bool = False


_Item = _Data | Action | Literal["end", "reset"]


class HalfConnection:
    """One direction of a connection. ``last`` is the monotonic time of the last forwarded byte."""

    def __init__(self, direction: Direction, source: socket.socket, target: socket.socket) -> None:
        self.direction, self.source, self.target = direction, source, target
        self.forwarded_bytes = 0
        self.last: float | None = None
        self.held = False
        self.blocked = False
        self.ended = False
        self._queue: deque[tuple[float, _Item]] = deque()
        self._size = 0
        self._read_to_end = False
        self._not_before = 0.0

    @property
    def waiting(self) -> int:
        """Number of received bytes that are not forwarded yet."""
        return self._size

    def can_read(self, now: float) -> bool:
        """Return whether to read from the source: the queue is limited, in case the target does not read."""
        if self._read_to_end:
            return False
        return self._size < _WAITING or self._queue[0][0] > now

    def read(self, delay: float) -> None:
        """Read received bytes, and queue them for ``delay`` seconds, behind the bytes received earlier."""
        received: _Item
        try:
            data = self.source.recv(_CHUNK)
            received = _Data(data) if data else "end"
        except BlockingIOError:
            return
        except OSError:
            data, received = b"", "reset"
        self._size += len(data)
        self._read_to_end = not data
        due = time.monotonic() + delay
        self._queue.append((max(due, self._queue[-1][0]) if self._queue else due, received))

    def advance(self, connection: Connection, conditions: Conditions, now: float) -> float | None:
        """Forward all bytes that are due; return the time of the next call, ``None`` if it does not depend on time.

        :raises OSError: if the target's connection is broken.
        """
        while self._queue and not self.blocked:
            due, first = self._queue[0]
            if due > now:
                return due
            if self.held or self.direction in conditions.silent:
                return None
            if conditions.rate is not None and self._not_before > now:
                return self._not_before
            if isinstance(first, _Data):
                self._send(connection, due, first, conditions, now)
                continue
            self._queue.popleft()
            if first == "end":
                self.ended = True
                with contextlib.suppress(OSError):  # the target has already closed
                    self.target.shutdown(socket.SHUT_WR)
            elif first == "reset":
                raise ConnectionResetError
            elif not isinstance(first, str):
                first(connection)
                if not connection.is_open:
                    return None
        return None

    def _send(self, connection: Connection, due: float, data: _Data, conditions: Conditions, now: float) -> None:
        if not data.is_split:
            self._queue.popleft()
            self._queue.extendleft((due, part) for part in reversed(connection.split(self.direction, data.bytes)))
            return
        size = len(data.bytes)
        if conditions.rate is not None:
            size = min(size, max(1, int(conditions.rate / _DRIPS_PER_SECOND)))
        try:
            sent = self.target.send(memoryview(data.bytes)[:size])
        except BlockingIOError:
            self.blocked = True
            return
        self._queue.popleft()
        if sent < len(data.bytes):
            self._queue.appendleft((due, _Data(data.bytes[sent:], is_split=True)))
        self._size -= sent
        self.forwarded_bytes += sent
        self.last = now
        if conditions.rate is not None:
            self._not_before = now + sent / conditions.rate


class Connection:
    """A client's connection, and the matching connection to the server. All methods may be called from any thread.

    ``to_client`` and ``to_server`` are its two directions, with their counts of forwarded bytes.
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
        self.to_client = HalfConnection(TO_CLIENT, server, client)
        self.to_server = HalfConnection(TO_SERVER, client, server)
        self.halves = (self.to_client, self.to_server)
        self.opened_at = time.monotonic()
        self.is_open = True
        self.is_forgotten = False
        self._conditions, self._changing = conditions, changing
        self._watches: dict[Rule, Watch] = {}
        self.watch()

    @property
    def last(self) -> float:
        """Time of the last forwarded byte, or of the opening (monotonic)."""
        return max(self.opened_at, *(half.last or 0.0 for half in self.halves))

    def half(self, direction: Direction) -> HalfConnection:
        """Return the queue and counts of one direction."""
        return self.to_client if direction is TO_CLIENT else self.to_server

    def hold(self, directions: frozenset[Direction] = BOTH) -> None:
        """Hold its bytes back until :meth:`release`, so that bytes of other connections overtake them."""
        with self._changing():
            for half in self.halves:
                half.held = half.held or half.direction in directions

    def release(self) -> None:
        """Forward the held bytes, in their order."""
        with self._changing():
            for half in self.halves:
                half.held = False

    def forget(self) -> None:
        """Forward nothing more, without closing: both ends stay open, as after the restart of a middlebox."""
        with self._changing():
            self.is_open, self.is_forgotten = False, True

    def reset(self) -> None:
        """Reset the connection at both ends."""
        with self._changing():
            for half in self.halves:
                with contextlib.suppress(OSError):
                    half.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self._close()

    def close(self) -> None:
        """Close the connection at both ends; bytes not forwarded yet are lost."""
        with self._changing():
            for half in self.halves:
                with contextlib.suppress(OSError):
                    half.source.shutdown(socket.SHUT_RDWR)
            self._close()

    def free(self) -> None:
        """Close the sockets, also those of a forgotten connection."""
        for half in self.halves:
            half.source.close()

    def _close(self) -> None:
        self.is_open = self.is_forgotten = False
        self.free()

    # Only the network's own thread calls the methods below.

    def watch(self) -> None:
        """Watch for the points of the network's current rules; keep the state of existing watches."""
        rules = self._conditions.rules
        self._watches = {rule: self._watches.get(rule) or rule.point.watch() for rule in rules}

    def split(self, direction: Direction, data: bytes) -> list[_Data | Action]:
        """Split ``data`` at the points in it, with the actions to run between the parts."""
        places = [
            (place, rule.action)
            for rule, watch in self._watches.items()
            for place in watch.places(direction, data)
            if rule.strikes()
        ]
        parts: list[_Data | Action] = []
        done = 0
        for place, action in sorted(places, key=lambda one: one[0]):
            parts += [_Data(data[done:place], is_split=True)] if place > done else []
            parts.append(action)
            done = place
        return [*parts, _Data(data[done:], is_split=True)] if done < len(data) else parts

    def advance(self, now: float) -> float | None:
        """Forward all bytes that are due in both directions; return the time of the next call."""
        soonest: float | None = None
        try:
            for half in self.halves:
                due = half.advance(self, self._conditions, now) if self.is_open else None
                soonest = due if soonest is None or (due is not None and due < soonest) else soonest
        except OSError:
            self.reset()
        if self.is_open and all(half.ended for half in self.halves):
            self._close()
        return soonest
