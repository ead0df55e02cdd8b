"""HTTP server with scripted responses."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from sfstream_localorg.tls import TlsFiles
from tests.support.http_serving import serving


@dataclass
class Host:
    """HTTP server with scripted responses. It repeats the last response for all further requests.

    ``answers`` has status, headers and body of each response. ``requests`` has the method and the ``Authorization``
    header of each request, ``bodies`` the body of each request.
    """

    url: str = ""
    answers: list[tuple[int, dict[str, str], Any]] = field(default_factory=list)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status, headers, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return status, headers, body if isinstance(body, bytes) else json.dumps(body).encode()


@contextlib.contextmanager
def running_host(tls: TlsFiles | None = None) -> Iterator[Host]:
    """Run a host for a ``with`` block, over HTTPS if ``tls`` files are passed."""
    host = Host()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            host.bodies.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            host.requests.append((self.command, self.headers.get("Authorization")))
            status, headers, body = host.answer()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):  # the client may close the connection before it has read the body
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
    with serving(Handler, context) as port:
        host.url = f"{'http' if tls is None else 'https'}://localhost:{port}"
        yield host


class TokenSequence:
    """Token provider that returns a new token after each invalidated one.

    Each new token is for the next of the hosts; after the last host, tokens are for that host.
    """

    def __init__(self, *hosts: Host) -> None:
        self._hosts = hosts
        self.refused = 0

    def token(self) -> AccessToken:
        host = self._hosts[min(self.refused, len(self._hosts) - 1)]
        return AccessToken(f"s3cret-{self.refused}", host.url, "00D000000000001AAA")

    async def atoken(self) -> AccessToken:
        return self.token()

    def invalidate(self, token: AccessToken) -> None:
        assert token == self.token()
        self.refused += 1
