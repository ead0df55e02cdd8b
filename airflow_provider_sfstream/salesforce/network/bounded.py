"""Reading of httpx responses within limits of decompressed bytes and of seconds."""

from __future__ import annotations

import time
import zlib

import httpx

UNPACKED = {"Accept-Encoding": "identity"}
"""Header of requests whose responses this module reads. A proxy may still compress them."""
_ZLIB_ENCODINGS = ("gzip", "x-gzip", "deflate")
_EITHER_HEADER = 32 + zlib.MAX_WBITS
"""zlib's parameter for a gzip or a zlib header, whichever the body has."""


class UnusableAnswerError(httpx.TransportError):
    """A response that is too large, too slow or cannot be decompressed; the part that arrived was discarded."""


def read(response: httpx.Response, *, most_bytes: int, most_seconds: float) -> httpx.Response:
    """Return the whole response of a request with ``stream=True``, and close it.

    :param most_bytes: maximum of its body, decompressed; no more is ever decompressed.
    :param most_seconds: maximum for the body. The client limits the time for each part of it.
    :raises httpx.HTTPError: if it is incomplete, exceeds a limit, or cannot be decompressed.
    """
    try:
        body = _Body(response, most_bytes, most_seconds)
        for chunk in response.iter_raw():
            body.add(chunk)
    finally:
        response.close()
    return body.complete()


async def aread(response: httpx.Response, *, most_bytes: int, most_seconds: float) -> httpx.Response:
    """Do what :func:`read` does, on an event loop."""
    try:
        body = _Body(response, most_bytes, most_seconds)
        async for chunk in response.aiter_raw():
            body.add(chunk)
    finally:
        await response.aclose()
    return body.complete()


class _Body:
    """The received part of a response, decompressed and within its limits."""

    def __init__(self, response: httpx.Response, most_bytes: int, most_seconds: float) -> None:
        self._response, self._most_bytes, self._most_seconds = response, most_bytes, most_seconds
        self._began, self._data = time.monotonic(), bytearray()
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding != "identity" and encoding not in _ZLIB_ENCODINGS:
            raise UnusableAnswerError("the response has a Content-Encoding that was not requested")
        self._decompressor = None if encoding == "identity" else zlib.decompressobj(_EITHER_HEADER)

    def add(self, chunk: bytes) -> None:
        self._data += self._decompressed(chunk)
        if len(self._data) > self._most_bytes:
            raise UnusableAnswerError(f"the response is larger than {self._most_bytes} bytes")
        if time.monotonic() - self._began > self._most_seconds:
            raise UnusableAnswerError(f"the response took longer than {self._most_seconds:.0f} seconds")

    def complete(self) -> httpx.Response:
        if self._decompressor is not None and self._data and not self._decompressor.eof:
            raise UnusableAnswerError("the compressed body of the response is incomplete")
        # Without the headers about encoding and length: the body is already decompressed.
        items = self._response.headers.multi_items()
        headers = [(name, value) for name, value in items if name.lower() in ("content-type", "date")]
        status, request = self._response.status_code, self._response.request
        return httpx.Response(status, headers=headers, content=bytes(self._data), request=request)

    def _decompressed(self, chunk: bytes) -> bytes:
        if self._decompressor is None:
            return chunk
        if self._decompressor.eof:
            raise UnusableAnswerError("the response continues after the end of its compressed body")
        try:
            # One byte above the limit, which shows that the body is too large.
            return self._decompressor.decompress(chunk, self._most_bytes + 1 - len(self._data))
        except zlib.error as error:
            raise UnusableAnswerError("the body of the response cannot be decompressed") from error
