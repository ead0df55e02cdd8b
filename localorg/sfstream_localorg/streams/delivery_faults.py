"""Delivery faults: stalled topics, whose events are withheld, and streams that seek through their backlog first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

_ALL_TOPICS = "*"


@dataclass(frozen=True)
class Seek:
    """Fault that sends ``responses`` empty responses before a stream's first event, one every ``seconds``."""

    responses: int
    seconds: float


class DeliveryFaults:
    """Active stalls and seeks, by topic."""

    def __init__(self) -> None:
        self._stalled: set[str] = set()
        self._seeks: dict[str, Seek] = {}

    def stall(self, topic: str | None, *, on: bool) -> None:
        """Withhold the events of a topic (``None`` for every topic), or deliver them again."""
        if not on and topic is None:
            self._stalled.clear()
        elif on:
            self._stalled.add(topic or _ALL_TOPICS)
        elif topic not in self._stalled and _ALL_TOPICS in self._stalled:
            raise ValueError(f"every topic is stalled: end that before the stall of {topic} alone")
        else:
            self._stalled.discard(topic or _ALL_TOPICS)

    def is_stalled(self, topic: str) -> bool:
        """Return whether the events of a topic are withheld."""
        return _ALL_TOPICS in self._stalled or topic in self._stalled

    def set_seek(self, topic: str | None, responses: object, seconds: object) -> None:
        """Set the seek of later streams of a topic (``None`` for every topic).

        :param responses: number of empty responses; 0 ends the fault.
        :raises ValueError: if a number is invalid; nothing was changed.
        """
        if isinstance(responses, bool) or not isinstance(responses, int) or responses < 0:
            raise ValueError(f"responses={responses!r} must be a whole number of at least 0")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 3600:
            raise ValueError(f"seconds={seconds!r} must be a number above 0 and below 3600")
        if responses:
            self._seeks[topic or _ALL_TOPICS] = Seek(responses, float(seconds))
        elif topic is None:
            self._seeks.clear()
        else:
            self._seeks.pop(topic, None)

    def seek(self, topic: str) -> Seek | None:
        """Return the seek of a new stream of a topic, ``None`` without the fault."""
        return self._seeks.get(topic) or self._seeks.get(_ALL_TOPICS)

    def clear(self) -> None:
        """Remove all faults."""
        self._stalled.clear()
        self._seeks.clear()

    def as_dict(self) -> dict[str, Any]:
        """Return the active faults as JSON values."""
        return {
            "stalled": sorted(self._stalled),
            "seeks": {topic: asdict(seek) for topic, seek in sorted(self._seeks.items())},
        }
