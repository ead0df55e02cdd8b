"""Who uses a managed subscription: one stream at a time, and nobody for a while after it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Slot:
    """``left_at`` is on the slots' clock, ``None`` while the stream is there."""

    holder: object
    left_at: float | None = None
    is_half_open: bool = False


class Slots:
    """The slots of all managed subscriptions, by record id. In memory: a restart of the org frees them.

    :param release_seconds: how long a slot stays taken after its stream ended.
    :param half_open_seconds: the same after its client vanished without closing the connection.
    :param clock: seconds, never set back.
    """

    def __init__(
        self,
        *,
        release_seconds: Callable[[], float],
        half_open_seconds: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._release_seconds = release_seconds
        self._half_open_seconds = half_open_seconds
        self._clock = clock
        self._slots: dict[str, _Slot] = {}

    def take(self, record_id: str, holder: object) -> bool:
        """Return whether ``holder`` has the slot now; it has not while the slot is another's."""
        if self.state(record_id) != "free":
            return False
        self._slots[record_id] = _Slot(holder)
        return True

    def leave(self, record_id: str, holder: object) -> None:
        """Note that a stream ended. The slot of a vanished client stays as it is: nobody noticed."""
        slot = self._slots.get(record_id)
        if slot is not None and slot.holder is holder and slot.left_at is None:
            slot.left_at = self._clock()

    def vanish(self, record_id: str) -> bool:
        """Note that the network to a stream's client was cut, unnoticed; return whether there was a stream."""
        slot = self._slots.get(record_id)
        if slot is None or slot.left_at is not None:
            return False
        slot.left_at, slot.is_half_open = self._clock(), True
        return True

    def freed_at(self, record_id: str, holder: object) -> float | None:
        """Return when the slot of a vanished client is freed, ``None`` if the client is there."""
        slot = self._slots.get(record_id)
        if slot is None or slot.holder is not holder or slot.left_at is None:
            return None
        return slot.left_at + (self._half_open_seconds() if slot.is_half_open else self._release_seconds())

    def state(self, record_id: str) -> str:
        """Return ``"free"``, ``"active"``, ``"held"`` after a stream's end, or ``"half_open"``."""
        slot = self._slots.get(record_id)
        if slot is None:
            return "free"
        freed_at = self.freed_at(record_id, slot.holder)
        if freed_at is None:
            return "active"
        if self._clock() >= freed_at:
            return "free"
        return "half_open" if slot.is_half_open else "held"
