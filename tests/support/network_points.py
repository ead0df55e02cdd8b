"""Points in the bytes of a connection at which a :class:`~tests.support.network.Network` can run an action.

A point is a description; ``watch()`` returns an object that searches one connection for the point. It receives every
byte of the connection once, in order, and returns the offsets of the point in each chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Direction(Enum):
    """Direction of bytes."""

    TO_CLIENT = "to_client"
    TO_SERVER = "to_server"


TO_CLIENT, TO_SERVER = Direction
BOTH = frozenset(Direction)


class Watch(Protocol):
    """Search for a point in one connection."""

    def places(self, direction: Direction, data: bytes) -> list[int]:
        """Return the ascending offsets of the point in ``data``, the next bytes of this direction."""


class Point(Protocol):
    """Point in the bytes of a connection."""

    def watch(self) -> Watch:
        """Start the search for the point in one connection."""


@dataclass(frozen=True)
class ByteCount:
    """Point after ``count`` bytes in one direction, counted from the registration of the rule."""

    count: int
    direction: Direction = TO_CLIENT

    def watch(self) -> Watch:
        return _CarriedWatch(self)


class _CarriedWatch:
    def __init__(self, point: ByteCount) -> None:
        self._direction, self._left = point.direction, point.count

    def places(self, direction: Direction, data: bytes) -> list[int]:
        if direction is not self._direction or self._left < 0:
            return []
        before, self._left = self._left, self._left - len(data)
        if self._left > 0:
            return []
        self._left = -1
        return [before]


@dataclass(frozen=True)
class TextMatch:
    """Point after a text in one direction, or ``before`` it, on connections without TLS.

    If the text is spread over several segments, only its bytes in the last segment can be held back.
    """

    text: bytes
    direction: Direction = TO_CLIENT
    before: bool = False

    def watch(self) -> Watch:
        return _SeenWatch(self)


class _SeenWatch:
    def __init__(self, point: TextMatch) -> None:
        self._point = point
        self._tail = b""

    def places(self, direction: Direction, data: bytes) -> list[int]:
        if direction is not self._point.direction:
            return []
        text, known = self._point.text, len(self._tail)
        looked_at = self._tail + data
        found = []
        place = looked_at.find(text)
        while place >= 0:
            found.append(max(0, place - known) if self._point.before else place + len(text) - known)
            place = looked_at.find(text, place + len(text))
        self._tail = looked_at[len(looked_at) - len(text) + 1 :] if len(text) > 1 else b""
        return found


@dataclass(frozen=True)
class TlsHandshake:
    """Point right after the client's Finished message, which ends the TLS 1.3 handshake for the client.

    The point is found by the record headers, which are not encrypted.
    """

    def watch(self) -> Watch:
        return _TlsWatch()


class _TlsWatch:
    def __init__(self) -> None:
        self._records = _Frames(5, lambda header: 5 + int.from_bytes(header[3:5]))
        self._over = False

    def places(self, direction: Direction, data: bytes) -> list[int]:
        if direction is TO_CLIENT or self._over:
            return []
        # The first record of a client that looks like application data is its Finished.
        found = [end for record, end in self._records.completed(data) if record[0] == 23][:1]
        self._over = bool(found)
        return found


@dataclass(frozen=True)
class GrpcResponse:
    """Point after a response message of a Pub/Sub API call, on connections without TLS: ``GrpcResponse("Subscribe")``.

    It finds only the first call of the method on a connection, because HTTP/2 abbreviates the names of later calls.
    Further messages in the same frame are forwarded too.

    :param number: number of the message, from 1.
    """

    method: str
    number: int = 1

    def watch(self) -> Watch:
        return _GrpcWatch(self)


class _GrpcWatch:
    def __init__(self, point: GrpcResponse) -> None:
        path = f"/eventbus.v1.PubSub/{point.method}".encode()
        self._path, self._left = bytes([len(path)]) + path, point.number
        self._frames = {direction: _Frames(9, _http2_frame_size) for direction in Direction}
        self._messages = _Frames(5, lambda header: 5 + int.from_bytes(header[1:5]))
        self._stream: bytes | None = None

    def places(self, direction: Direction, data: bytes) -> list[int]:
        found = []
        for frame, end in self._frames[direction].completed(data):
            kind, stream, payload = frame[3], frame[5:9], frame[9:]
            if direction is TO_SERVER and kind == _HEADERS and self._stream is None and self._path in payload:
                self._stream = stream
            elif direction is TO_CLIENT and kind == _DATA and stream == self._stream and self._left > 0:
                self._left -= len(self._messages.completed(payload))
                found += [end] if self._left <= 0 else []
        return found


_DATA, _HEADERS = 0, 1


def _http2_frame_size(header: bytes) -> int:
    return 24 if header.startswith(b"PRI * ") else 9 + int.from_bytes(header[:3])


class _Frames:
    """Assembler of frames from the segments of a stream; the header of a frame contains its size."""

    def __init__(self, header: int, size: Callable[[bytes], int]) -> None:
        self._header, self._size = header, size
        self._begun = bytearray()

    def completed(self, data: bytes) -> list[tuple[bytes, int]]:
        """Return the frames that end in ``data``, with the offset of each end."""
        self._begun += data
        frames = []
        while len(self._begun) >= self._header:
            size = self._size(bytes(self._begun[: self._header]))
            if len(self._begun) < size:
                break
            frame = bytes(self._begun[:size])
            del self._begun[:size]
            frames.append((frame, len(data) - len(self._begun)))
        return frames
