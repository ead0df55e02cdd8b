"""What clients asked of the local org, newest last. Holds no token, password or payload."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Request:
    """One HTTP or gRPC call. ``outcome`` is ``"open"`` until it ends: an HTTP status, ``OK``, or an error code."""

    time: float
    kind: str
    method: str
    outcome: str = "open"
    detail: dict[str, Any] = field(default_factory=dict)


class RequestLog:
    """The last ``size`` calls, in memory."""

    def __init__(self, size: int = 20_000) -> None:
        self._requests: deque[Request] = deque(maxlen=size)

    def begin(self, kind: str, method: str, **detail: Any) -> Request:
        """Note a call that has just arrived; the caller fills in its outcome."""
        request = Request(time.time(), kind, method, detail=detail)
        self._requests.append(request)
        return request

    def entries(self) -> list[dict[str, Any]]:
        """Return the calls as JSON-able dictionaries, oldest first."""
        return [asdict(request) for request in self._requests]

    def clear(self) -> None:
        """Forget all calls."""
        self._requests.clear()
