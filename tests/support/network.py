"""A network between a client and a server, which can be slow, silent, dripping, half-open, cut or out of order.

It forwards TCP, so it is the same for gRPC and HTTP, with TLS and without. Tests tell it what to do when they have seen
what they wait for, or beforehand with :meth:`Network.at`, which strikes between two bytes. Made for Linux.

What is silent waits, and passes when the silence is over: TCP repeats what was dropped, it does not leave it out. Only
what was forgotten (:meth:`Connection.forget`) is gone for good.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from types import TracebackType

from tests.support.network_connection import RESET_ON_CLOSE, Action, Conditions, Connection, Rule
from tests.support.network_door import HOST, Door
from tests.support.network_points import (
    BOTH,
    TO_CLIENT,
    TO_SERVER,
    Carried,
    Direction,
    GrpcResponse,
    Point,
    Seen,
    TlsHandshake,
)

__all__ = [
    "BOTH",
    "TO_CLIENT",
    "TO_SERVER",
    "Carried",
    "Connection",
    "Direction",
    "GrpcResponse",
    "Network",
    "Seen",
    "TlsHandshake",
]


class Network:
    """Forwards TCP connections to ``127.0.0.1:server_port``; clients connect to ``target``, or to its ``port``.

    What is set holds for open and new connections, from then on. A context manager; at its end nothing is left open.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._door = Door()
        self._conditions = Conditions()
        self._idle: tuple[float, Action] | None = None
        self._connections: list[Connection] = []
        self._forgotten: list[Connection] = []
        self._ended = dict.fromkeys(Direction, 0)
        self._last: dict[Direction, float] = {}
        self._is_closing = False
        self._lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._interests: dict[socket.socket, int] = {}
        self._wake, self._woken = socket.socketpair()
        for one in (self._wake, self._woken):
            one.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)
        self.port = self._door.port
        self.accepted = 0
        """How many connections there have been."""

    def __enter__(self) -> Network:
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        with self._changing():
            self._is_closing = True
        self._thread.join(60)
        for connection in (*self._connections, *self._forgotten):
            connection.free()
        for one in (self._door, self._woken, self._wake):
            one.close()
        self._selector.close()

    @property
    def target(self) -> str:
        """Host and port."""
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> list[Connection]:
        """Those that are open, oldest first, without those that were forgotten."""
        with self._lock:
            return [connection for connection in self._connections if connection.is_open]

    def carried(self, direction: Direction) -> int:
        """Return how many bytes have passed, over all connections there have been."""
        with self._lock:
            return self._ended[direction] + sum(each.way(direction).carried for each in self._all())

    def last_carried(self, direction: Direction) -> float | None:
        """Return when the last byte passed (monotonic seconds), ``None`` if none has."""
        with self._lock:
            moments = [self._last.get(direction), *(each.way(direction).last for each in self._all())]
            return max((moment for moment in moments if moment is not None), default=None)

    def delay(self, seconds: float) -> None:
        """Let bytes that come from now on take so long, each way: a line of any throughput, which keeps their order.

        TCP itself connects at once.
        """
        with self._changing():
            self._conditions.delay = seconds

    def drip(self, bytes_per_second: float | None) -> None:
        """Let no more pass than so much, of each connection in each direction; ``None``: all."""
        with self._changing():
            self._conditions.rate = bytes_per_second

    def silence(self, directions: frozenset[Direction] = BOTH) -> None:
        """Let nothing pass, not even the end of a connection. New connections are accepted, and are silent too."""
        with self._changing():
            self._conditions.silent = directions

    def unreachable(self) -> None:
        """Let new connections wait for TCP: their SYN is dropped. Those that are open go on.

        After :meth:`heal`, who waits gets through when TCP repeats its SYN: 1, 3, 7 seconds after the first.
        """
        with self._changing():
            if self._door.is_open:
                self._connect(self._door.shut())

    def cut_idle(self, seconds: float, how: Action = Connection.reset) -> None:
        """Do this to each connection that carries nothing for so long, in either direction.

        :param how: ``Connection.reset``, ``Connection.close`` or ``Connection.forget``.
        """
        with self._changing():
            self._idle = (seconds, how)

    def cut(self) -> int:
        """Reset all connections; return how many there were. New ones work."""
        return self._each(Connection.reset)

    def forget(self) -> int:
        """Let all connections of this moment carry nothing more, for good; return how many. New ones work."""
        return self._each(Connection.forget)

    def at(self, point: Point, action: Action, *, nth: int = 1, times: int | None = 1) -> Rule:
        """Do something when a point is reached, between the byte before and the byte after.

        For example ``at(Seen(b"POST /cometd", TO_SERVER, before=True), lambda _: network.silence())``.

        :param action: is given the connection, and called in the network's thread; it must not block.
        :param nth: the time that counts, of all connections together.
        :param times: how often to do it from then on; ``None``: always.
        :returns: what counts how often it was ``done``.
        """
        rule = Rule(point, action, nth, times)
        with self._changing():
            self._conditions.rules.append(rule)
            self._watch()
        return rule

    def heal(self) -> None:
        """End all of this, rules and held connections too. What was cut or forgotten remains so."""
        with self._changing():
            self._conditions.delay, self._conditions.rate, self._conditions.silent = 0.0, None, frozenset()
            self._conditions.rules.clear()
            self._watch()
            self._idle = None
            for connection in self._connections:
                connection.release()
            self._door.open()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            yield
        with contextlib.suppress(BlockingIOError):  # it is awake
            self._wake.send(b"-")

    def _watch(self) -> None:
        for connection in self._connections:
            connection.watch()

    def _each(self, action: Action) -> int:
        with self._lock:
            connections = self.connections
            for connection in connections:
                action(connection)
        return len(connections)

    def _all(self) -> list[Connection]:
        return self._connections + self._forgotten

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._is_closing:
                    return
                now = time.monotonic()
                due = min((moment for moment in (self._advance(now), self._cut_idle(now)) if moment), default=None)
                self._sort()
                self._listen(now)
            ready = self._selector.select(None if due is None else max(0.0, due - time.monotonic()))
            with self._lock:
                self._take({key.fileobj: mask for key, mask in ready})

    def _advance(self, now: float) -> float | None:
        moments = [connection.advance(now) for connection in self._connections if connection.is_open]
        return min((moment for moment in moments if moment is not None), default=None)

    def _cut_idle(self, now: float) -> float | None:
        if self._idle is None:
            return None
        seconds, how = self._idle
        for connection in self.connections:
            if connection.last + seconds <= now:
                how(connection)
        return min((connection.last + seconds for connection in self.connections), default=None)

    def _sort(self) -> None:
        """Put aside what is not open any more."""
        for connection in self._connections:
            if connection.is_forgotten:
                self._forgotten.append(connection)
            elif not connection.is_open:
                for way in connection.ways:
                    self._ended[way.direction] += way.carried
                    if way.last is not None:
                        self._last[way.direction] = max(self._last.get(way.direction, 0.0), way.last)
        self._connections = [connection for connection in self._connections if connection.is_open]

    def _listen(self, now: float) -> None:
        """Register the sockets that something is awaited of. Those that were closed go first: their numbers return."""
        wanted: dict[socket.socket, int] = {self._door.listener: selectors.EVENT_READ} if self._door.is_open else {}
        for way in (way for connection in self._connections for way in connection.ways):
            if way.takes_more(now):
                wanted[way.source] = wanted.get(way.source, 0) | selectors.EVENT_READ
            if way.blocked:
                wanted[way.target] = wanted.get(way.target, 0) | selectors.EVENT_WRITE
        for one in [one for one in self._interests if one not in wanted]:
            self._selector.unregister(one)
        for one, mask in wanted.items():
            if one not in self._interests:
                self._selector.register(one, mask)
            elif mask != self._interests[one]:
                self._selector.modify(one, mask)
        self._interests = wanted

    def _take(self, ready: dict[object, int]) -> None:
        if self._woken in ready:
            self._woken.recv(4096)
        for connection in self.connections:
            for way in connection.ways:
                if ready.get(way.source, 0) & selectors.EVENT_READ and way.takes_more(time.monotonic()):
                    way.take(self._conditions.delay)
                if ready.get(way.target, 0) & selectors.EVENT_WRITE:
                    way.blocked = False
        if self._door.listener in ready and self._door.is_open:
            self._connect(self._door.accept())

    def _connect(self, clients: list[socket.socket]) -> None:
        for client in clients:
            self.accepted += 1
            try:
                server = socket.create_connection((HOST, self._server_port), timeout=10)
            except OSError:  # nobody is there
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                client.close()
                continue
            self._connections.append(Connection(client, server, self._conditions, self._changing))
