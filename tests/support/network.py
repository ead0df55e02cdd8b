"""Simulated network between a client and a server: slow, silent, rate-limited, half-open, cut or reordered.

The network forwards TCP, so it works for gRPC and HTTP, with and without TLS. A test changes its conditions directly,
or registers an action with :meth:`Network.at`, which runs between two bytes. It requires Linux.

Silence delays bytes until it ends, because TCP repeats dropped segments. Only the bytes of a forgotten connection
(:meth:`Connection.forget`) are lost.
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
from tests.support.network_door import HOST, ClientListener
from tests.support.network_points import (
    BOTH,
    TO_CLIENT,
    TO_SERVER,
    ByteCount,
    Direction,
    GrpcResponse,
    Point,
    TextMatch,
    TlsHandshake,
)

__all__ = [
    "BOTH",
    "TO_CLIENT",
    "TO_SERVER",
    "ByteCount",
    "Connection",
    "Direction",
    "GrpcResponse",
    "Network",
    "TextMatch",
    "TlsHandshake",
]


class Network:
    """TCP forwarder to ``127.0.0.1:server_port``; clients connect to ``target``, or to its ``port``.

    Conditions apply to open and new connections from the moment of the call. As a context manager, it closes all
    connections on exit.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._door = ClientListener()
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
        """Number of connections so far."""

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
        """Host and port for clients."""
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> list[Connection]:
        """Open connections, oldest first, without forgotten ones."""
        with self._lock:
            return [connection for connection in self._connections if connection.is_open]

    def forwarded_bytes(self, direction: Direction) -> int:
        """Return the number of forwarded bytes, over all connections so far."""
        with self._lock:
            return self._ended[direction] + sum(
                each.half(direction).forwarded_bytes for each in self._all_connections()
            )

    def last_forwarded_at(self, direction: Direction) -> float | None:
        """Return when the last byte was forwarded (monotonic seconds), or ``None``."""
        with self._lock:
            moments = [self._last.get(direction), *(each.half(direction).last for each in self._all_connections())]
            return max((moment for moment in moments if moment is not None), default=None)

    def delay(self, seconds: float) -> None:
        """Delay bytes sent from now on, in each direction. The order is kept and the throughput is unlimited.

        TCP handshakes are not delayed.
        """
        with self._changing():
            self._conditions.delay = seconds

    def drip(self, bytes_per_second: float | None) -> None:
        """Limit the rate of each connection in each direction; ``None`` removes the limit."""
        with self._changing():
            self._conditions.rate = bytes_per_second

    def silence(self, directions: frozenset[Direction] = BOTH) -> None:
        """Forward nothing, not even the end of a connection. New connections are accepted, and are also silent."""
        with self._changing():
            self._conditions.silent = directions

    def unreachable(self) -> None:
        """Drop the SYN of new connections, so that they wait. Open connections continue to work.

        After :meth:`heal`, a waiting client connects when TCP repeats its SYN: 1, 3, 7 seconds after the first.
        """
        with self._changing():
            if self._door.is_open:
                self._connect(self._door.shut())

    def cut_idle(self, seconds: float, how: Action = Connection.reset) -> None:
        """Apply ``how`` to each connection that has forwarded no byte for ``seconds``, in either direction.

        :param how: ``Connection.reset``, ``Connection.close`` or ``Connection.forget``.
        """
        with self._changing():
            self._idle = (seconds, how)

    def cut(self) -> int:
        """Reset all open connections; return their number. New connections work."""
        return self._each(Connection.reset)

    def forget(self) -> int:
        """Let all open connections stay open without forwarding bytes; return their number. New connections work."""
        return self._each(Connection.forget)

    def at(self, point: Point, action: Action, *, nth: int = 1, times: int | None = 1) -> Rule:
        """Run an action when a point in the forwarded bytes is reached, between the bytes before and after it.

        For example ``at(Seen(b"POST /cometd", TO_SERVER, before=True), lambda _: network.silence())``.

        :param action: function of the connection, called in the network's thread; it must not block.
        :param nth: the first occurrence of the point, over all connections, at which to run the action.
        :param times: number of runs from that occurrence on; ``None``: unlimited.
        :returns: the rule, whose ``done`` counts the runs.
        """
        rule = Rule(point, action, nth, times)
        with self._changing():
            self._conditions.rules.append(rule)
            self._watch()
        return rule

    def heal(self) -> None:
        """Restore normal conditions, remove rules, release held bytes. Cut or forgotten connections do not recover."""
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
        with contextlib.suppress(BlockingIOError):  # the buffer is full: the thread will wake up anyway
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

    def _all_connections(self) -> list[Connection]:
        return self._connections + self._forgotten

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._is_closing:
                    return
                now = time.monotonic()
                due = min((moment for moment in (self._advance(now), self._cut_idle(now)) if moment), default=None)
                self._remove_closed()
                self._listen(now)
            ready = self._selector.select(None if due is None else max(0.0, due - time.monotonic()))
            with self._lock:
                self._handle_ready({key.fileobj: mask for key, mask in ready})

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

    def _remove_closed(self) -> None:
        """Remove connections that are no longer open; keep their counts."""
        for connection in self._connections:
            if connection.is_forgotten:
                self._forgotten.append(connection)
            elif not connection.is_open:
                for half in connection.halves:
                    self._ended[half.direction] += half.forwarded_bytes
                    if half.last is not None:
                        self._last[half.direction] = max(self._last.get(half.direction, 0.0), half.last)
        self._connections = [connection for connection in self._connections if connection.is_open]

    def _listen(self, now: float) -> None:
        """Register the sockets to wait for. Unregister closed ones first, because their file numbers are reused."""
        wanted: dict[socket.socket, int] = {self._door.listener: selectors.EVENT_READ} if self._door.is_open else {}
        for half in (half for connection in self._connections for half in connection.halves):
            if half.can_read(now):
                wanted[half.source] = wanted.get(half.source, 0) | selectors.EVENT_READ
            if half.blocked:
                wanted[half.target] = wanted.get(half.target, 0) | selectors.EVENT_WRITE
        for one in [one for one in self._interests if one not in wanted]:
            self._selector.unregister(one)
        for one, mask in wanted.items():
            if one not in self._interests:
                self._selector.register(one, mask)
            elif mask != self._interests[one]:
                self._selector.modify(one, mask)
        self._interests = wanted

    def _handle_ready(self, ready: dict[object, int]) -> None:
        if self._woken in ready:
            self._woken.recv(4096)
        for connection in self.connections:
            for half in connection.halves:
                if ready.get(half.source, 0) & selectors.EVENT_READ and half.can_read(time.monotonic()):
                    half.read(self._conditions.delay)
                if ready.get(half.target, 0) & selectors.EVENT_WRITE:
                    half.blocked = False
        if self._door.listener in ready and self._door.is_open:
            self._connect(self._door.accept())

    def _connect(self, clients: list[socket.socket]) -> None:
        for client in clients:
            self.accepted += 1
            try:
                server = socket.create_connection((HOST, self._server_port), timeout=10)
            except OSError:  # the server does not listen
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                client.close()
                continue
            self._connections.append(Connection(client, server, self._conditions, self._changing))
