"""Request log: the calls of clients, oldest first, without tokens, passwords and payloads."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Request:
    """One HTTP or gRPC call. ``outcome`` is ``"open"`` until its end, then an HTTP status, ``OK`` or an error code."""

    time: float
    kind: str
    method: str
    outcome: str = "open"
    detail: dict[str, Any] = field(default_factory=dict)


class RequestLog:
    """Log of the last ``size`` calls, in memory."""

    def __init__(self, size: int = 20_000) -> None:
        self._requests: deque[Request] = deque(maxlen=size)

    def begin(self, kind: str, method: str, **detail: Any) -> Request:
        """Add an entry for a new call and return it. The caller sets its outcome."""
        request = Request(time.time(), kind, method, detail=detail)
        self._requests.append(request)
        return request

    def entries(self) -> list[dict[str, Any]]:
        """Return the calls as JSON values, oldest first."""
        return [asdict(request) for request in self._requests]

    def clear(self) -> None:
        """Delete all entries."""
        self._requests.clear()
