"""Answers of httpx that take no process down: so many bytes, so many seconds, and nothing that unpacks to more."""

from __future__ import annotations

import time

import httpx

UNPACKED = {"Accept-Encoding": "identity"}
"""The header of requests whose answers are read here."""


class UnusableAnswerError(httpx.TransportError):
    """An answer is too large, too slow or packed; what had come of it was thrown away."""


def read(response: httpx.Response, *, most_bytes: int, most_seconds: float) -> httpx.Response:
    """Return the whole of an answer that was asked for with ``stream=True``, and end it.

    :param most_bytes: of its body.
    :param most_seconds: that the body may take. What one part of it may take is the client's own limit.
    :raises UnusableAnswerError: if it is more.
    :raises httpx.HTTPError: if it broke off.
    """
    began, body = time.monotonic(), bytearray()
    try:
        _check_encoding(response)
        for chunk in response.iter_raw():
            body += chunk
            _check(len(body), most_bytes, time.monotonic() - began, most_seconds)
    finally:
        response.close()
    return _whole(response, bytes(body))


async def aread(response: httpx.Response, *, most_bytes: int, most_seconds: float) -> httpx.Response:
    """Do what :func:`read` does, on an event loop."""
    began, body = time.monotonic(), bytearray()
    try:
        _check_encoding(response)
        async for chunk in response.aiter_raw():
            body += chunk
            _check(len(body), most_bytes, time.monotonic() - began, most_seconds)
    finally:
        await response.aclose()
    return _whole(response, bytes(body))


def _check_encoding(response: httpx.Response) -> None:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise UnusableAnswerError("the answer is compressed, which was not asked for")


def _check(size: int, most_bytes: int, seconds: float, most_seconds: float) -> None:
    if size > most_bytes:
        raise UnusableAnswerError(f"the answer is larger than {most_bytes} bytes")
    if seconds > most_seconds:
        raise UnusableAnswerError(f"the answer took longer than {most_seconds:.0f} seconds")


def _whole(response: httpx.Response, body: bytes) -> httpx.Response:
    # Without the headers that tell how the body came, which is here as it is.
    kept = [(name, value) for name, value in response.headers.multi_items() if name.lower() == "content-type"]
    return httpx.Response(response.status_code, headers=kept, content=body, request=response.request)
