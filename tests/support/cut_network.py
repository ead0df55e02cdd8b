"""A network between a client and a server that can be cut without either side being told."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType


class Network:
    """Forwards TCP connections to ``127.0.0.1:port``; ``target`` is where clients connect.

    After :meth:`cut` the connections of that moment stay open and carry nothing more; new ones work.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._cut: list[socket.socket] = []
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def target(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> int:
        """Cut all connections; return how many there were."""
        with self._lock:
            for one in self._peers:
                self._selector.unregister(one)
            count = len(self._peers) // 2
            self._cut += self._peers
            self._peers.clear()
        return count

    def __enter__(self) -> Network:
        for one in (self._listener, self._woken):
            self._selector.register(one, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._wake.close()
        self._thread.join(10)
        for one in (*self._peers, *self._cut, self._listener, self._woken):
            one.close()
        self._selector.close()

    def _run(self) -> None:
        while True:
            ready = [key.fileobj for key, _ in self._selector.select()]
            if self._woken in ready:
                return
            with self._lock:
                for one in ready:
                    if one is self._listener:
                        self._connect()
                    elif isinstance(one, socket.socket) and one in self._peers:
                        self._forward(one)

    def _connect(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._port))
        self._peers |= {client: server, server: client}
        for one in (client, server):
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        peer = self._peers[source]
        try:
            data = source.recv(65536)
            peer.sendall(data)
        except OSError:
            data = b""
        if not data:
            for one in (source, peer):
                self._selector.unregister(one)
                del self._peers[one]
                with contextlib.suppress(OSError):
                    one.close()
