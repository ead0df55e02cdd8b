"""Listening socket of a :class:`~tests.support.network.Network`, which can drop connection requests."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"
_BACKLOG = 128
_TRIES = 100


class ClientListener:
    """Socket that listens on an ephemeral loopback port; not thread-safe."""

    def __init__(self) -> None:
        self.listener = socket.create_server((HOST, 0), backlog=_BACKLOG)
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.is_open = True
        self._fillers: dict[object, socket.socket] = {}

    def accept(self) -> list[socket.socket]:
        """Accept and return all waiting clients."""
        clients = []
        while True:
            try:
                client, address = self.listener.accept()
            except BlockingIOError:
                return clients
            filler = self._fillers.pop(address, None)
            if filler is None:
                clients.append(client)
            else:
                filler.close()
                client.close()

    def shut(self) -> list[socket.socket]:
        """Let the kernel drop the SYN of new clients from now on; return the clients that were already waiting.

        The backlog has room for one connection, and a filler connection occupies it.
        """
        clients = self.accept()
        self.is_open = False
        self.listener.listen(0)
        for _ in range(_TRIES):
            filler = socket.socket()
            filler.settimeout(0.2)
            try:
                filler.connect((HOST, self.port))
            except TimeoutError:  # another client occupies the backlog
                filler.close()
                clients += self.accept()
            else:
                self._fillers[filler.getsockname()] = filler
                return clients
        raise RuntimeError("The listening socket cannot be made unreachable.")

    def open(self) -> None:
        """Accept new clients again."""
        self.listener.listen(_BACKLOG)
        self.is_open = True

    def close(self) -> None:
        for one in (self.listener, *self._fillers.values()):
            one.close()
