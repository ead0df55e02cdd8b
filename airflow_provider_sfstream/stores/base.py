"""The contract of a replay store: where positions, windows and gaps are recorded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from airflow_provider_sfstream.protocol.streams import Gap, ReplayWindow, RunIdentity, Stream


@dataclass(frozen=True)
class Position:
    """What a store knows of a stream's position.

    ``replay_id`` is ``None`` before anything was recorded. ``fence`` grows with every change of the position, also one
    that leaves ``replay_id`` equal: together they are what compare-and-set compares. ``window_id`` is the live window that
    ended here (``None`` at the start and after a reset). ``updated_by`` names who wrote it, for messages.
    """

    replay_id: bytes | None = None
    fence: int = 0
    window_id: str | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None


class ReplayStore(Protocol):
    """Records positions. Every method raises :class:`ReplayStoreError` (or a subclass) when it cannot do its work.

    Guarantee: after ``advance`` returns, the position and its window are both recorded; after it raises
    :class:`PositionConflictError`, neither is.
    """

    compares_and_sets: bool
    """Whether two concurrent ``advance`` calls can never both succeed."""

    def read(self, stream: Stream) -> Position:
        """Return the recorded position; one with ``fence`` 0 and no replay ID when there is none."""
        ...

    def advance(self, stream: Stream, expected: Position, window: ReplayWindow) -> Position:
        """Record a live ``window`` and move the position from ``expected`` to ``window.through``, in one step.

        A window whose ``through`` is ``None`` is recorded and leaves the replay ID as it is (the fence grows). The window's ``gap``, if any,
        is recorded with it. Advancing again with the window that the position already stands on
        returns the position unchanged.

        :raises PositionConflictError: if (replay ID, fence) is no longer ``expected``.
        """
        ...

    def record_backfill(self, stream: Stream, window: ReplayWindow) -> None:
        """Record a backfill window (and its gap). Never moves the position. Recording it again changes nothing."""
        ...

    def windows_of_run(self, stream: Stream, run: RunIdentity) -> list[ReplayWindow]:
        """Return the recorded windows that any try of ``run`` made, oldest first."""
        ...

    def windows_overlapping(self, stream: Stream, start: datetime, end: datetime) -> list[ReplayWindow]:
        """Return recorded, non-empty windows with an event time in ``[start, end)`` by their bounds, oldest first."""
        ...

    def record_gap(self, stream: Stream, gap: Gap) -> None:
        """Record a gap outside of any window."""
        ...

    def gaps(self, stream: Stream) -> list[Gap]:
        """Return all recorded gaps, oldest first."""
        ...

    def reset(self, stream: Stream, replay_id: bytes | None, *, reason: str, updated_by: str) -> Position:
        """Set the position whatever it was (``None``: forget it), and keep an audit record of who, when, why, from and to."""
        ...
