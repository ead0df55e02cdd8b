"""Proxy between an S3 client and the server, which simulates faults of networks and storages."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

from tests.support.http_serving import serving

METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD")
_HOP = {"connection", "transfer-encoding", "content-length", "expect", "keep-alive"}
_S3 = "{http://s3.amazonaws.com/doc/2006-03-01/}"


@dataclass(frozen=True)
class Request:
    """A received request. ``key`` includes the bucket, decoded; ``condition``: it has an ``If-None-Match`` header."""

    method: str
    key: str
    query: str
    condition: bool


@dataclass
class Fault:
    """Fault of the requests for which ``applies`` is true, ``times`` times (``None``: until it is removed)."""

    applies: Callable[[Request], bool]
    times: int | None
    body_bytes: int | None = None
    """Number of body bytes that are forwarded before the connection is reset."""
    loses_answer: bool = False
    answer: tuple[int, str] | None = None
    silent: bool = False
    done: int = field(default=0)


class ObjectStorageProxy:
    """S3 endpoint that forwards requests to the server at ``port``, unless a fault applies. It records ``requests``."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._listed: frozenset[str] | None = None
        self._refusing = False
        self._healed = threading.Event()
        self.requests: list[Request] = []
        self.endpoint = ""

    @classmethod
    @contextlib.contextmanager
    def running(cls, port: int) -> Iterator[ObjectStorageProxy]:
        proxy = cls(port)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                proxy._serve(self)

            def handle(self) -> None:
                if proxy._refusing:
                    _reset(self.connection)
                else:
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        super().handle()

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        for method in METHODS:
            setattr(Handler, f"do_{method}", Handler.serve)
        with serving(Handler) as port:
            proxy.endpoint = f"http://127.0.0.1:{port}"
            try:
                yield proxy
            finally:
                proxy.heal()

    def cut(self, method: str, part: str, *, body_bytes: int = 0, times: int | None = 1) -> Fault:
        """Reset the connection after ``body_bytes`` of a request are forwarded; 0: the server does not see the request.

        The fault applies to the next ``times`` matching requests; ``None``: to all of them.

        A request matches by its method and a part of its key and query (``key?query``).
        """
        return self._add(Fault(_matches(method, part), times, body_bytes=body_bytes))

    def lose_answer(self, method: str, part: str, *, times: int | None = 1) -> Fault:
        """Forward the request, and reset the connection instead of returning the server's response."""
        return self._add(Fault(_matches(method, part), times, loses_answer=True))

    def answer(self, method: str, part: str, status: int, code: str, *, times: int | None = 1) -> Fault:
        """Return an S3 error without forwarding the request."""
        return self._add(Fault(_matches(method, part), times, answer=(status, code)))

    def silence(self, method: str, part: str, *, times: int | None = None) -> Fault:
        """Accept matching requests without a response, until :meth:`heal` resets their connections."""
        return self._add(Fault(_matches(method, part), times, silent=True))

    def heal(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()
            self._healed.set()
            self._healed = threading.Event()
        self._refusing = False

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Reset every new connection, and each open connection at its next request."""
        self._refusing = True
        try:
            yield
        finally:
            self._refusing = False

    @contextlib.contextmanager
    def listing_only(self, keys: list[str]) -> Iterator[None]:
        """Omit all keys except ``keys`` (without the bucket) from listings, like an eventually consistent storage."""
        self._listed = frozenset(keys)
        try:
            yield
        finally:
            self._listed = None

    def count(self, method: str, part: str = "") -> int:
        """Return the number of received requests that match."""
        matches = _matches(method, part)
        return sum(matches(request) for request in self.requests)

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def _fault(self, request: Request) -> Fault | None:
        with self._lock:
            self.requests.append(request)
            for fault in self._faults:
                if fault.applies(request) and (fault.times is None or fault.done < fault.times):
                    fault.done += 1
                    return fault
        return None

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        if self._refusing:
            _reset(handler.connection)
            handler.close_connection = True
            return
        parts = urlsplit(handler.path)
        request = Request(
            handler.command, unquote(parts.path).lstrip("/"), parts.query, "If-None-Match" in handler.headers
        )
        fault = self._fault(request)
        if fault is not None and fault.silent:
            self._healed.wait()
            _reset(handler.connection)
            handler.close_connection = True
            return
        if fault is not None and fault.body_bytes is not None:
            self._forward_part(handler, fault.body_bytes)
            _reset(handler.connection)
            handler.close_connection = True
            return
        body = _body(handler)
        if fault is not None and fault.answer is not None:
            status, code = fault.answer
            text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
            _send(handler, status, [("Content-Type", "application/xml")], text.encode())
            return
        status, headers, content = self._forward(handler, body)
        if fault is not None and fault.loses_answer:
            _reset(handler.connection)
            handler.close_connection = True
            return
        if self._listed is not None and request.method == "GET" and "list-type=2" in request.query and status == 200:
            content = self._without_omitted(content)
        _send(handler, status, headers, content)

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            self._send_headers(connection, handler, len(body))
            connection.send(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _forward_part(self, handler: BaseHTTPRequestHandler, size: int) -> None:
        """Forward the headers and the first ``size`` bytes of the body, then reset the connection.

        With ``size`` 0, forward nothing.
        """
        body = _body(handler)
        if not size:
            return
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        self._send_headers(connection, handler, len(body))
        connection.send(body[:size])
        assert connection.sock is not None
        _reset(connection.sock)

    @staticmethod
    def _send_headers(connection: http.client.HTTPConnection, handler: BaseHTTPRequestHandler, size: int) -> None:
        connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
        for name, value in handler.headers.items():
            if name.lower() not in _HOP:
                connection.putheader(name, value)  # also Host, which is part of the signature
        connection.putheader("Content-Length", str(size))
        connection.endheaders()

    def _without_omitted(self, content: bytes) -> bytes:
        assert self._listed is not None
        root = ET.fromstring(content)
        for entry in root.findall(f"{_S3}Contents"):
            if unquote(entry.findtext(f"{_S3}Key", "")) not in self._listed:
                root.remove(entry)
        for entry in root.findall(f"{_S3}CommonPrefixes"):
            prefix = unquote(entry.findtext(f"{_S3}Prefix", ""))
            if not any(key.startswith(prefix) for key in self._listed):
                root.remove(entry)
        return ET.tostring(root)


def _matches(method: str, part: str) -> Callable[[Request], bool]:
    return lambda request: request.method == method and part in f"{request.key}?{request.query}"


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in handler.headers.get("Transfer-Encoding", ""):
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    chunks = []
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        chunks.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(chunks)


def _send(handler: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
    handler.send_response_only(status)
    length = {name.lower(): value for name, value in headers}.get("content-length")
    for name, value in headers:
        if name.lower() not in _HOP:
            handler.send_header(name, value)
    handler.send_header("Content-Length", (length or "0") if handler.command == "HEAD" else str(len(content)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


def _reset(connection: socket.socket) -> None:
    """Close a connection with a reset, as if the network were cut."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RD)
    connection.close()
