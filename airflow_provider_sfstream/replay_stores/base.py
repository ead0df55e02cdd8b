"""The contract of a replay store, where positions, windows and gaps are recorded; and the names of the stores."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, get_args

from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidReplayIdError
from airflow_provider_sfstream.salesforce.replay_ids import LONGEST
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream, WindowKind

PositionStoreKind = Literal["variable", "table"]
"""The stores that tell a stream's position without its landing."""
ReplayStoreKind = Literal[PositionStoreKind, "landing"]
POSITION_STORES: tuple[str, ...] = get_args(PositionStoreKind)
REPLAY_STORES: tuple[str, ...] = get_args(ReplayStoreKind)


@dataclass(frozen=True)
class Position:
    """What a store knows of a stream's position.

    ``replay_id`` is ``None`` before anything was recorded. ``fence`` grows with every change of the position, also one
    that leaves ``replay_id`` equal: together they are what compare-and-set compares. ``window_id`` is the live window
    that ended here (``None`` at the start and after a reset). ``updated_by`` names who wrote it, for messages.

    ``updated_at`` says that somebody wrote, and nothing of Salesforce. What was shown is in ``contact_at``, when the
    server last answered a drain, and ``confirmed_at``, a moment at which it said that the position was the end of the
    stream, or an earlier one if it has not said so since. Both ``None`` where nothing is known.
    """

    replay_id: bytes | None = None
    fence: int = 0
    window_id: str | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None
    contact_at: datetime | None = None
    confirmed_at: datetime | None = None

    def __str__(self) -> str:
        where = "nothing recorded" if self.replay_id is None else self.replay_id.hex()
        return f"{where}, fence {self.fence}"


def advanced(position: Position, window: ReplayWindow, updated_at: datetime) -> Position:
    """Return the position after a live ``window`` that began at ``position``."""
    return Position(
        replay_id=position.replay_id if window.through is None else window.through,
        fence=position.fence + 1,
        window_id=window.window_id,
        updated_at=updated_at,
        updated_by=str(window.run),
        contact_at=window.contact_at or position.contact_at,
        confirmed_at=window.covered_until,
    )


@dataclass(frozen=True)
class PositionReset:
    """The audit record of one reset: who moved the position by hand, when, why, from where and to where."""

    reset_at: datetime
    reset_by: str
    reason: str
    from_replay_id: bytes | None
    to_replay_id: bytes | None


class ReplayStore(Protocol):
    """Records positions. Every method raises :class:`ReplayStoreError` (or a subclass) when it cannot do its work.

    Guarantee: after ``advance`` returns, the position and its window are both recorded; after it raises
    :class:`PositionConflictError`, neither is. Lists of windows are in one order everywhere: live windows as they were
    recorded, then backfill windows by id. All times are timezone-aware.
    """

    compares_and_sets: bool
    """Whether two concurrent ``advance`` calls can never both succeed."""

    def read(self, stream: Stream) -> Position:
        """Return the recorded position; one with ``fence`` 0 and no replay ID when there is none."""
        ...

    def advance(self, stream: Stream, expected: Position, window: ReplayWindow) -> Position:
        """Record a live ``window`` and move the position from ``expected`` to ``window.through``, in one step.

        A window whose ``through`` is ``None`` is recorded and leaves the replay ID as it is (the fence grows).
        The window's ``gap``, if any, is recorded with it. Advancing again with a window that is already recorded
        changes nothing and returns the position as it is now.

        :raises PositionConflictError: if (replay ID, fence) is no longer ``expected``, or a window of this id but
            with another end is recorded.
        :raises ConfigurationError: if ``window`` is a backfill window.
        """
        ...

    def record_backfill(self, stream: Stream, window: ReplayWindow) -> None:
        """Record a backfill window (and its gap). Never moves the position. Recording it again changes nothing.

        :raises ConfigurationError: if ``window`` is a live window.
        """
        ...

    def windows_of_run(self, stream: Stream, run: RunIdentity) -> list[ReplayWindow]:
        """Return the recorded windows that any try of ``run`` made."""
        ...

    def windows_overlapping(self, stream: Stream, start: datetime, end: datetime) -> list[ReplayWindow]:
        """Return the recorded windows that have to do with ``[start, end)``: those that answer for a part of it, empty
        ones too (their covered span intersects it), and those with an event that may count in it, because
        ``[counts_from, contact_at]`` meets it. Where ``contact_at`` is not known, their event times tell.
        """
        ...

    def window_before(self, stream: Stream, time: datetime) -> ReplayWindow | None:
        """Return the recorded window with a ``through`` that ends last before ``time``, ``None`` if there is none.

        This is the index from time to replay ID: what happened at ``time`` or later comes after its ``through``, or is
        in a window that :meth:`windows_overlapping` finds for that time. A window ends at ``contact_at``, which may
        be ``time`` itself; one of which that is not known after its last event, which has to be earlier. Of windows
        with one end it is a live one, and of several live ones, or several backfill ones, the last in the lists' order.
        """
        ...

    def record_gap(self, stream: Stream, gap: Gap) -> None:
        """Record a gap outside of any window. Recording an equal gap again changes nothing."""
        ...

    def gaps(self, stream: Stream) -> list[Gap]:
        """Return the recorded gaps, by the time they were detected. A store may keep only the most recent ones."""
        ...

    def reset(self, stream: Stream, replay_id: bytes | None, *, reason: str, updated_by: str) -> Position:
        """Set the position whatever it was (``None``: forget it); keep an audit record of who, when, why, from and to.

        The fence grows, so that a drain under way can no longer advance. Windows stay recorded.

        :raises ConfigurationError: if ``replay_id`` cannot be one, or ``reason`` or ``updated_by`` is empty.
        """
        ...

    def resets(self, stream: Stream) -> list[PositionReset]:
        """Return the audit records of resets, oldest first. A store may keep only the most recent ones."""
        ...

    def forget_windows(self, stream: Stream, window_ids: Collection[str]) -> None:
        """Remove the record of windows whose files are about to be removed. Gaps, resets and the position stay.

        Forgetting again, or windows that are not recorded, changes nothing. A store whose record of a window is its
        manifest has nothing to do.

        :raises ConfigurationError: if the position stands on one of them.
        """
        ...

    def close(self) -> None:
        """Release what the store holds open. The store may be used again afterwards."""
        ...


def require_not_at_position(stream: Stream, position: Position, window_ids: Collection[str]) -> None:
    """Refuse to forget the window that the next one is linked to.

    :raises ConfigurationError: if it is among ``window_ids``.
    """
    if position.window_id in window_ids:
        raise ConfigurationError(
            f"{stream}: the position stands on window {position.window_id}, which has to stay. Nothing was removed."
        )


def require_kind(stream: Stream, window: ReplayWindow, kind: WindowKind) -> None:
    """Refuse a window of the other kind before anything is written.

    :raises ConfigurationError: if ``window`` is not of ``kind``.
    """
    if window.kind != kind:
        remedy = "record_backfill" if window.kind == "backfill" else "advance"
        raise ConfigurationError(
            f"{stream}: window {window.window_id} is a {window.kind} window; record it with {remedy}(). "
            "Nothing was recorded or moved."
        )


def conflict_message(stream: Stream, expected: Position, current: Position, window: ReplayWindow) -> str:
    """Return the text of a :class:`PositionConflictError`: who won, and what became of the loser's window."""
    who = current.updated_by or "somebody unknown"
    when = "" if current.updated_at is None else f" at {current.updated_at.isoformat()}"
    return (
        f"{stream}: {who} moved the position first{when}. It is {current}; {window.run} had drained from {expected}. "
        f"Window {window.window_id} was not recorded and the position was not moved by this run: its files are landed "
        "but will never be read, and none of its events is lost. Retry the task: it drains from the new position. "
        "If this keeps happening, two DAGs share one subscription: give each its own subscription name."
    )


def require_reset(stream: Stream, replay_id: bytes | None, reason: str, updated_by: str) -> None:
    """Refuse a reset that its audit record could not explain, or to something that is no replay ID.

    :raises InvalidReplayIdError: if ``replay_id`` is empty or too long.
    :raises ConfigurationError: if ``reason`` or ``updated_by`` is empty.
    """
    if replay_id is not None and not 0 < len(replay_id) <= LONGEST:
        raise InvalidReplayIdError(
            f"{stream}: cannot reset to a replay ID of {len(replay_id)} bytes; one has 1 to {LONGEST}. "
            "Nothing was changed."
        )
    if not reason.strip() or not updated_by.strip():
        raise ConfigurationError(
            f"{stream}: a reset is recorded with a reason and with who did it; give both. Nothing was changed."
        )
