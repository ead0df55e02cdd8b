"""Proxy between a REST client and the local org, which can replace responses of the org."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx

from tests.support.http_serving import serving

_PASSED_ON = ("Authorization", "Content-Type")


@dataclass
class Answer:
    """Response that the proxy sends instead of the org's; ``forwards``: after forwarding the request to the org."""

    method: str
    path: str
    status: int
    body: bytes
    times: int
    forwards: bool
    breaks_off: bool


class RestProxy:
    """Proxy with an instance URL (``url``) that forwards requests to the org at ``target`` unless an answer matches.

    ``requests`` contains method and path, without the query, of all received requests.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._answers: list[Answer] = []
        self.requests: list[tuple[str, str]] = []
        self.url = ""

    @classmethod
    @contextlib.contextmanager
    def running(cls, target: str) -> Iterator[RestProxy]:
        proxy = cls(target)

        class Handler(BaseHTTPRequestHandler):
            def serve(self) -> None:
                proxy._serve(self)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        for method in ("GET", "POST", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.serve)
        with serving(Handler) as port:
            proxy.url = f"http://127.0.0.1:{port}"
            yield proxy

    def answer(
        self,
        method: str,
        path: str,
        status: int,
        body: Any = None,
        *,
        times: int = 1,
        forwards: bool = False,
        breaks_off: bool = False,
    ) -> None:
        """Answer the next ``times`` requests of this method whose path contains ``path``.

        :param body: body as bytes, or a value to encode as JSON.
        :param forwards: forward the request first, and discard the org's response.
        :param breaks_off: close the connection without a response.
        """
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._answers.append(Answer(method, path, status, content, times, forwards, breaks_off))

    def error(self, method: str, path: str, status: int, code: str, message: str = "Refused.", **how: Any) -> None:
        """Answer with an error in Salesforce's format."""
        self.answer(method, path, status, [{"errorCode": code, "message": message}], **how)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.requests.append((handler.command, handler.path.partition("?")[0]))
        answer = self._take(handler)
        if answer is None or answer.forwards:
            status, content = self._forward(handler, body)
        if answer is not None:
            status, content = answer.status, answer.body
            if answer.breaks_off:
                handler.close_connection = True
                return
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        handler.wfile.write(content)

    def _take(self, handler: BaseHTTPRequestHandler) -> Answer | None:
        for answer in self._answers:
            if answer.method == handler.command and answer.path in handler.path:
                answer.times -= 1
                if not answer.times:
                    self._answers.remove(answer)
                return answer
        return None

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        headers = {name: handler.headers[name] for name in _PASSED_ON if name in handler.headers}
        path = handler.path.removeprefix(self._target)  # an HTTP proxy receives the whole URL
        answer = httpx.request(
            handler.command, self._target + path, content=body, headers=headers, trust_env=False, timeout=30
        )
        return answer.status_code, answer.content
