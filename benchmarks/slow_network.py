"""A TCP proxy on loopback that adds 25 ms each way, without limiting bandwidth: ``python slow_network.py HOST PORT``.

Prints the port that leads to HOST:PORT and the port of an echo, both behind the delay, then serves until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

DELAY = 0.025
"""Seconds, each way."""


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on, each chunk ``DELAY`` after it came; chunks on the way do not wait for each other."""
    loop = asyncio.get_running_loop()
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, chunk = await on_the_way.get()
            await asyncio.sleep(due - loop.time())
            if not chunk:
                return
            writer.write(chunk)

    delivery = asyncio.create_task(deliver())
    chunk = b"-"
    while chunk:
        try:
            chunk = await reader.read(1 << 18)
        except ConnectionError:
            chunk = b""
        on_the_way.put_nowait((loop.time() + DELAY, chunk))
    with contextlib.suppress(ConnectionError):
        await delivery
    writer.close()


async def behind_delay(host: str, port: int) -> asyncio.Server:
    """Return a server that passes each connection on to ``host:port``."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        for one in (writer, far_writer):
            one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    return await asyncio.start_server(connect, "127.0.0.1", 0)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1 << 10):
        writer.write(chunk)
    writer.close()


def port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def main(host: str, port: int) -> None:
    echoing = await asyncio.start_server(echo, "127.0.0.1", 0)
    servers = [await behind_delay(host, port), await behind_delay("127.0.0.1", port_of(echoing))]
    print(*map(port_of, servers), flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
