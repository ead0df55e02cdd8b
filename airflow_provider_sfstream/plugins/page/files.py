"""The files of the page, read once: a name that is not among them leads to no path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import Request, Response

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class File:
    """A file as it is sent."""

    content: bytes
    media_type: str

    def answer(self, request: Request) -> Response:
        """Return the file, or that the browser has it as it is."""
        tag = f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def read_files() -> dict[str, File]:
    """Return the files by their names."""
    folder = files("airflow_provider_sfstream.plugins.page") / "static"
    return {
        path.name: File(path.read_bytes(), _TYPES[path.name.rpartition(".")[2]])
        for path in folder.iterdir()
        if path.name.rpartition(".")[2] in _TYPES
    }
