"""Uploads of Google's XML API, which delta-rs uses, in front of fake-gcs-server, which has those of the JSON API only.

A process of its own: delta-rs waits for responses without releasing the interpreter of the tests.
"""

from __future__ import annotations

import http.client
import json
import re
import sys
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

_CONTENTS = re.compile(rb"<Contents><Key>(.*?)</Key>.*?</Contents>", re.DOTALL)
_HOP = {"connection", "transfer-encoding", "content-length", "host"}


class XmlApi(BaseHTTPRequestHandler):
    """Forwards each request. An upload becomes one of the JSON API: the server itself checks its precondition."""

    protocol_version = "HTTP/1.1"
    server_port = 0
    parts: dict[str, dict[int, bytes]] = {}
    """Parts of the unfinished multipart uploads."""

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        upload = query.get("uploadId", [""])[0]
        if "uploads" in query:
            upload = uuid4().hex
            self.parts[upload] = {}
            result = "InitiateMultipartUploadResult"
            self._answer(200, {}, f"<{result}><UploadId>{upload}</UploadId></{result}>")
        elif self.command == "PUT" and upload:
            self.parts[upload][int(query["partNumber"][0])] = body
            self._answer(200, {"Etag": uuid4().hex}, "")
        elif self.command == "POST" and upload:
            parts = self.parts.pop(upload)
            self._upload(b"".join(parts[number] for number in sorted(parts)), is_multipart=True)
        elif self.command == "PUT":
            self._upload(body)
        else:
            status, headers, content = self._forward(self.command, self.path, body)
            if after := query.get("start-after"):  # the server ignores it
                content = _CONTENTS.sub(
                    lambda entry: entry[0] if unescape(entry[1].decode()) > after[0] else b"", content
                )
            self._answer(status, headers, content)

    def _upload(self, body: bytes, *, is_multipart: bool = False) -> None:
        _, bucket, key = urlsplit(self.path).path.split("/", 2)
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart"  # the server ignores the precondition of others
        condition = self.headers.get("x-goog-if-generation-match")
        path += "" if condition is None else f"&ifGenerationMatch={condition}"
        metadata = b"Content-Type: application/json\r\n\r\n" + json.dumps({"name": unquote(key)}).encode()
        data = b"Content-Type: application/octet-stream\r\n\r\n" + body
        boundary = uuid4().hex
        start = f"--{boundary}\r\n".encode()
        joined = start + metadata + b"\r\n" + start + data + f"\r\n--{boundary}--".encode()
        status, headers, content = self._forward("POST", path, joined, f"multipart/related; boundary={boundary}")
        if status == 200:
            headers["Etag"] = etag = json.loads(content)["etag"]
            if is_multipart:
                result = "CompleteMultipartUploadResult"
                content = f"<{result}><ETag>{etag}</ETag></{result}>".encode()
        self._answer(status, headers, content)

    def _forward(
        self, method: str, path: str, body: bytes, content_type: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            if content_type is not None:
                headers = {"Content-Type": content_type}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        received = {name.title(): value for name, value in answer.getheaders() if name.lower() not in _HOP}
        received["Content-Length"] = answer.getheader("Content-Length") or "0"  # of a HEAD, it is not that of the body
        return answer.status, received, content

    def _answer(self, status: int, headers: dict[str, str], content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        length = {} if self.command == "HEAD" else {"Content-Length": str(len(data))}
        self.send_response(status)
        for name, value in {**headers, **length}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
    setattr(XmlApi, f"do_{method}", XmlApi.serve)


if __name__ == "__main__":
    port, XmlApi.server_port = map(int, sys.argv[1:])
    ThreadingHTTPServer(("127.0.0.1", port), XmlApi).serve_forever()
