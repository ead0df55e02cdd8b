"""Endings of gRPC calls, like those caused by Salesforce or by the network."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import grpc

PREFIX = "sfdc.platform.eventbus.grpc."

How = Literal["error", "end", "reset"]


@dataclass
class CallEnded(Exception):  # noqa: N818 - a clean end is no error
    """Exception that ends a call.

    ``how`` is ``"error"`` (a status with Salesforce's trailers), ``"end"`` (status OK, as when a server closes a
    stream cleanly) or ``"reset"`` (the TCP connection is closed during the call: no status, no trailers).
    ``code`` is the error code without its prefix. An empty code is for errors of the network, which have a message but
    no trailers.
    """

    how: How = "error"
    code: str = "service.unavailable"
    status: str = "INTERNAL"
    message: str = "The service is unavailable. Try again later."

    def __post_init__(self) -> None:
        if self.how not in ("error", "end", "reset"):
            raise ValueError(f"how={self.how!r} must be 'error', 'end' or 'reset'")
        if not hasattr(grpc.StatusCode, self.status) or self.status == "OK":
            raise ValueError(f"status={self.status!r} must be the name of a gRPC status other than OK")
        self.code = self.code.removeprefix(PREFIX)

    @property
    def outcome(self) -> str:
        """Outcome for the request log."""
        return {"end": "OK", "reset": "reset"}.get(self.how, self.code or self.status)


def refused(code: str, status: str, message: str) -> CallEnded:
    """Return an error of Salesforce: a code without its prefix, a gRPC status name, and a message."""
    return CallEnded("error", code, status, message)


async def end_call(context: Any, ending: CallEnded, *, rpc: str, rpc_id: str) -> None:
    """End a gRPC call with ``ending``. For a clean end, the handler returns afterwards."""
    if ending.how == "end":
        return
    if ending.how == "reset":
        await _reset_connection(context)
    status = getattr(grpc.StatusCode, ending.status)
    if not ending.code:
        await context.abort(status, ending.message)
    trailers = (("error-code", PREFIX + ending.code), ("rpc-id", rpc_id), ("type", rpc))
    await context.abort(status, f"{ending.message} rpcId: {rpc_id}", trailers)


async def _reset_connection(context: Any) -> NoReturn:
    """Close the connection of a call.

    gRPC cannot end a call without a status. So this function finds the socket among the descriptors of this process by
    its peer, and shuts it down for reading; gRPC then closes the connection with all its calls.
    """
    host, _, port = context.peer().partition(":")[2].rpartition(":")
    if _close_socket(host.strip("[]").replace("%5B", "").replace("%5D", ""), int(port)):
        await asyncio.Event().wait()  # until gRPC detects the shutdown and cancels this call
    await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
    raise AssertionError("abort always raises")


def _close_socket(host: str, port: int) -> bool:
    for entry in Path("/dev/fd").iterdir():
        try:
            descriptor = os.dup(int(entry.name))
        except OSError:  # closed meanwhile
            continue
        try:
            candidate = socket.socket(fileno=descriptor)
        except OSError:  # not a socket
            os.close(descriptor)
            continue
        with candidate:
            try:
                peer = candidate.getpeername()
                if isinstance(peer, tuple) and (peer[0].removeprefix("::ffff:"), peer[1]) == (host, port):
                    candidate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    candidate.shutdown(socket.SHUT_RD)
                    return True
            except OSError:  # a listening socket, or disconnected meanwhile
                continue
    return False
