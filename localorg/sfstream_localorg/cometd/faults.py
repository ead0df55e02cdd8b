"""Faults of CometD calls. This module decides when a fault applies; the endpoint applies it."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sfstream_localorg.cometd import replies

DROP = "cometd_drop"
HTTP = "cometd_http"
BLACK_HOLE = "cometd_black_hole"
REVOKE = "cometd_revoke"
FAIL = "cometd_fail"
ADVICE = "cometd_advice"
LOSE = "cometd_lose"
TRUNCATE = "cometd_truncate"
BROKEN_MESSAGE = "cometd_broken_message"
EVENTS_IN_SUBSCRIBE = "cometd_events_in_subscribe"

_FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    DROP: (replies.CONNECT, {}),
    HTTP: (replies.CONNECT, {"status": 500, "text": None}),
    BLACK_HOLE: (replies.CONNECT, {}),
    REVOKE: (replies.CONNECT, {}),
    FAIL: (replies.CONNECT, {"error": None, "failure_reason": None, "advice": None}),
    ADVICE: (replies.HANDSHAKE, {"advice": {}}),
    LOSE: (replies.CONNECT, {"part": 0.0}),
    TRUNCATE: (replies.CONNECT, {"part": 0.5}),
    BROKEN_MESSAGE: (replies.CONNECT, {"kind": "json"}),
    EVENTS_IN_SUBSCRIBE: (replies.SUBSCRIBE, {}),
}
_ALLOCATION = ("times", "every", "probability", "seed", "channel", "topic")
_CHANNELS = (replies.HANDSHAKE, replies.CONNECT, replies.SUBSCRIBE, replies.UNSUBSCRIBE, replies.DISCONNECT, "*")


@dataclass
class CometdFault:
    """A fault that applies to messages of one meta ``channel`` (``*`` for all) about one ``topic`` (``None`` for all).

    It applies ``times`` times (``None``: until it is cleared), to every ``every``-th message, with a ``probability``.
    ``parameters`` are those of the kind of fault.
    """

    name: str
    channel: str
    parameters: dict[str, Any]
    topic: str | None = None
    times: int | None = 1
    every: int = 1
    probability: float = 1.0
    seed: int | None = None
    seen: int = 0
    rng: random.Random = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        counts = [value for value in (self.times, self.every) if value is not None]
        if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in counts):
            raise ValueError("'times' and 'every' must be positive whole numbers")
        if not 0 < self.probability <= 1:
            raise ValueError("'probability' must be above 0 and at most 1")
        if self.channel not in _CHANNELS:
            raise ValueError(f"'channel' must be one of {', '.join(_CHANNELS)}")
        self.rng = random.Random(self.seed)  # noqa: S311 - chance, not secrets

    def strikes(self) -> bool:
        """Return whether the fault applies to the next matching message."""
        self.seen += 1
        return self.seen % self.every == 0 and (self.probability == 1 or self.rng.random() < self.probability)


class CometdFaults:
    """All active faults of CometD calls."""

    def __init__(self) -> None:
        self._faults: list[CometdFault] = []

    @staticmethod
    def names() -> list[str]:
        """Return the names of faults that :meth:`add` accepts."""
        return list(_FAULTS)

    def add(self, name: str, body: Mapping[str, Any]) -> None:
        """Add a fault.

        :param body: body of the request to ``/admin``: when the fault applies, and its parameters.
        :raises ValueError: if the body is invalid; nothing was changed.
        """
        channel, parameters = _FAULTS[name]
        unknown = set(body) - set(parameters) - set(_ALLOCATION)
        if unknown:
            known = ", ".join((*parameters, *_ALLOCATION))
            raise ValueError(f"{name} has no {', '.join(sorted(unknown))}; there are {known}")
        allocation = {key: body[key] for key in _ALLOCATION if key in body}
        given = {key: body.get(key, default) for key, default in parameters.items()}
        _check_parameters(given)
        self._faults.append(CometdFault(name, allocation.pop("channel", channel), given, **allocation))

    def take(self, name: str, channel: str, topics: Collection[str] = ()) -> dict[str, Any] | None:
        """Return the parameters of a fault of this name that applies to a message, and count it; else ``None``.

        :param topics: the topics that the message or its session subscribes to.
        """
        for fault in list(self._faults):
            concerned = fault.channel in ("*", channel) and (fault.topic is None or fault.topic in topics)
            if fault.name != name or not concerned or not fault.strikes():
                continue
            if fault.times is not None:
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
            return fault.parameters
        return None

    def clear(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def as_list(self) -> list[dict[str, Any]]:
        """Return the active faults as JSON values."""
        return [{key: value for key, value in asdict(fault).items() if key != "rng"} for fault in self._faults]


def _check_parameters(given: Mapping[str, Any]) -> None:
    part, status, kind = given.get("part", 0), given.get("status", 500), given.get("kind", "json")
    if isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part < 1:
        raise ValueError("'part' must be a number from 0, and below 1")
    if isinstance(status, bool) or not isinstance(status, int) or not 400 <= status <= 599:
        raise ValueError("'status' must be an HTTP status from 400 to 599")
    if kind not in ("json", "shape"):
        raise ValueError("'kind' must be 'json' or 'shape'")
    if not isinstance(given.get("advice") or {}, dict):
        raise ValueError("'advice' must be an object")
