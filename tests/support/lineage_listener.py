"""HTTP server that receives OpenLineage events, as a catalog does."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.http_serving import serving

ENDPOINT = "api/v1/lineage"


class LineageListener:
    """Received events, in order; ``transport`` configures an OpenLineage client to send them to this server."""

    def __init__(self, port: int) -> None:
        self.transport = {"type": "http", "url": f"http://127.0.0.1:{port}", "endpoint": ENDPOINT}
        self.texts: list[str] = []

    def events(self, job: str, kind: str) -> list[dict[str, Any]]:
        """Return the events of a job, ``<dag id>.<task id>``, and of a kind: START, COMPLETE or FAIL."""
        events = [json.loads(text) for text in tuple(self.texts)]
        return [each for each in events if each["eventType"] == kind and each["job"]["name"] == job]


@contextmanager
def listening() -> Iterator[LineageListener]:
    """Run the server for a ``with`` block."""
    texts: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            texts.append(body.decode())
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Handler) as port:
        listener = LineageListener(port)
        listener.texts = texts
        yield listener
