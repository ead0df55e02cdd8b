"""Where clients reach a :class:`~tests.support.network.Network`: a listening socket that can be shut."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"
_BACKLOG = 128
_TRIES = 100


class Door:
    """A socket that listens on an ephemeral port of loopback, for one thread at a time."""

    def __init__(self) -> None:
        self.listener = socket.create_server((HOST, 0), backlog=_BACKLOG)
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.is_open = True
        self._fillers: dict[object, socket.socket] = {}

    def accept(self) -> list[socket.socket]:
        """Return those who have come."""
        came = []
        while True:
            try:
                client, address = self.listener.accept()
            except BlockingIOError:
                return came
            filler = self._fillers.pop(address, None)
            if filler is None:
                came.append(client)
            else:
                filler.close()
                client.close()

    def shut(self) -> list[socket.socket]:
        """Let the kernel drop the SYN of who comes from now on; return who came before.

        Of those that have not been accepted there is room for one, and that place is taken.
        """
        came = self.accept()
        self.is_open = False
        self.listener.listen(0)
        for _ in range(_TRIES):
            filler = socket.socket()
            filler.settimeout(0.2)
            try:
                filler.connect((HOST, self.port))
            except TimeoutError:  # somebody else has it
                filler.close()
                came += self.accept()
            else:
                self._fillers[filler.getsockname()] = filler
                return came
        raise RuntimeError("The listening socket cannot be made unreachable.")

    def open(self) -> None:
        """Be reachable again."""
        self.listener.listen(_BACKLOG)
        self.is_open = True

    def close(self) -> None:
        for one in (self.listener, *self._fillers.values()):
            one.close()
