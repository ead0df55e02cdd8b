"""Slots of managed subscriptions: one stream may use a subscription at a time. Pure.

A slot stays occupied for some time after its stream ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Slot:
    """An occupied slot. ``left_at`` is the end of its stream by the slots' clock, ``None`` while it is active."""

    holder: object
    left_at: float | None = None
    is_half_open: bool = False


class Slots:
    """Slots of all managed subscriptions, by record id. In memory only: a restart of the org frees them.

    :param release_seconds: returns the time for which a slot stays occupied after its stream ended.
    :param half_open_seconds: returns the same time after a client vanished without closing the connection.
    :param clock: returns monotonic seconds.
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
        """Occupy a slot for ``holder``; return false if the slot is not free."""
        if self.state(record_id) != "free":
            return False
        self._slots[record_id] = _Slot(holder)
        return True

    def leave(self, record_id: str, holder: object) -> None:
        """Record the end of a stream. The slot of a vanished client does not change: its end is not noticed."""
        slot = self._slots.get(record_id)
        if slot is not None and slot.holder is holder and slot.left_at is None:
            slot.left_at = self._clock()

    def vanish(self, record_id: str) -> bool:
        """Record the unnoticed loss of the connection to a stream's client; return false if no stream is active."""
        slot = self._slots.get(record_id)
        if slot is None or slot.left_at is not None:
            return False
        slot.left_at, slot.is_half_open = self._clock(), True
        return True

    def freed_at(self, record_id: str, holder: object) -> float | None:
        """Return the time at which the slot of an ended stream becomes free, ``None`` if the stream is active."""
        slot = self._slots.get(record_id)
        if slot is None or slot.holder is not holder or slot.left_at is None:
            return None
        return slot.left_at + (self._half_open_seconds() if slot.is_half_open else self._release_seconds())

    def state(self, record_id: str) -> str:
        """Return the state of a slot: ``free``, ``active``, ``held`` (after the end of a stream) or ``half_open``."""
        slot = self._slots.get(record_id)
        if slot is None:
            return "free"
        freed_at = self.freed_at(record_id, slot.holder)
        if freed_at is None:
            return "active"
        if self._clock() >= freed_at:
            return "free"
        return "half_open" if slot.is_half_open else "held"
