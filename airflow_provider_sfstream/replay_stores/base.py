"""Interface of the replay stores, which record positions, windows and gaps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.replay_ids import check_replay_id
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream, WindowKind


@dataclass(frozen=True)
class Position:
    """The recorded position of a stream.

    ``replay_id`` is ``None`` before anything was recorded. ``fence`` grows with every change of the position, also when
    ``replay_id`` stays equal. Compare-and-set compares both. ``window_id`` is the live window that ended here (``None``
    at the start and after a reset). ``updated_by`` names the writer, for messages.

    ``updated_at`` is the time of the write; it proves no contact with Salesforce. ``contact_at`` is the time of the
    server's last answer to a drain. ``confirmed_at`` is a time at which the server confirmed that the position was the
    end of the stream, or an earlier position if it has not confirmed this one. Both are ``None`` if not known.
    """

    replay_id: bytes | None = None
    fence: int = 0
    window_id: str | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None
    contact_at: datetime | None = None
    confirmed_at: datetime | None = None

    def __str__(self) -> str:
        replay_id = "nothing recorded" if self.replay_id is None else self.replay_id.hex()
        return f"{replay_id}, fence {self.fence}"


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
    """The audit record of one manual reset: user, time, reason, and the replay IDs before and after it."""

    reset_at: datetime
    reset_by: str
    reason: str
    from_replay_id: bytes | None
    to_replay_id: bytes | None


class ReplayStore(Protocol):
    """Store of positions. Every method raises :class:`ReplayStoreError` (or a subclass) when it fails.

    Guarantee: after ``advance`` returns, the position and its window are both recorded; after it raises
    :class:`PositionConflictError`, neither is. All lists of windows have the same order: live windows as they were
    recorded, then backfill windows by id. All times are timezone-aware.
    """

    compares_and_sets: bool
    """``True`` if the store guarantees that of two concurrent ``advance`` calls at most one succeeds."""

    def read(self, stream: Stream) -> Position:
        """Return the recorded position; one with ``fence`` 0 and no replay ID when there is none."""

    def advance(self, stream: Stream, expected: Position, window: ReplayWindow) -> Position:
        """Record a live ``window`` and move the position from ``expected`` to ``window.through``, in one step.

        A window whose ``through`` is ``None`` is recorded and does not change the replay ID (the fence grows). The
        window's ``gap``, if any, is recorded with it. Advancing again with a window that is already recorded changes
        nothing and returns the current position.

        :raises PositionConflictError: if (replay ID, fence) is no longer ``expected``, or a window of this id but
            with another end is recorded.
        :raises ConfigurationError: if ``window`` is a backfill window.
        """

    def record_backfill(self, stream: Stream, window: ReplayWindow) -> None:
        """Record a backfill window (and its gap). Never moves the position. Recording it again changes nothing.

        :raises ConfigurationError: if ``window`` is a live window.
        """

    def windows_of_run(self, stream: Stream, run: RunIdentity) -> list[ReplayWindow]:
        """Return the recorded windows of all tries of ``run``."""

    def windows_overlapping(self, stream: Stream, start: datetime, end: datetime) -> list[ReplayWindow]:
        """Return the recorded windows that concern ``[start, end)``: those whose covered span intersects it, empty ones
        too, and those with an event that may count in it, because ``[counts_from, contact_at]`` intersects it. Where
        ``contact_at`` is not known, their event times decide.
        """

    def window_before(self, stream: Stream, time: datetime) -> ReplayWindow | None:
        """Return the recorded window with a ``through`` that ends last before ``time``, ``None`` if there is none.

        This is the index from time to replay ID: events of ``time`` or later follow its ``through``, or are in a window
        that :meth:`windows_overlapping` returns for that time. A window ends at ``contact_at``, which may equal
        ``time``; where that is not known, at its last event, which must be earlier. Of windows with the same end a live
        one is returned, and of several live or several backfill windows the last in the order of lists.
        """

    def record_gap(self, stream: Stream, gap: Gap) -> None:
        """Record a gap outside of any window. Recording an equal gap again changes nothing."""

    def gaps(self, stream: Stream) -> list[Gap]:
        """Return the recorded gaps, by the time they were detected. A store may keep only the most recent ones."""

    def reset(self, stream: Stream, replay_id: bytes | None, *, reason: str, updated_by: str) -> Position:
        """Set the position unconditionally (``None``: no position), and record user, time, reason and both replay IDs.

        The fence grows, so that a running drain can no longer advance. Windows stay recorded.

        :raises ConfigurationError: if ``replay_id`` is invalid, or ``reason`` or ``updated_by`` is empty.
        """

    def resets(self, stream: Stream) -> list[PositionReset]:
        """Return the audit records of resets, oldest first. A store may keep only the most recent ones."""

    def forget_windows(self, stream: Stream, window_ids: Collection[str]) -> None:
        """Delete the records of windows whose files the caller deletes next. Gaps, resets and the position stay.

        Forgetting again, or windows that are not recorded, changes nothing. A store that uses the manifest as the
        record of a window does nothing.

        :raises ConfigurationError: if the position refers to one of them.
        """

    def close(self) -> None:
        """Close the connections of the store. The store may be used again afterwards."""


def require_not_at_position(stream: Stream, position: Position, window_ids: Collection[str]) -> None:
    """Raise :class:`ConfigurationError` if the window that the next one will refer to would be deleted."""
    if position.window_id in window_ids:
        raise ConfigurationError(
            f"{stream}: the position refers to window {position.window_id}, so its record cannot be deleted. "
            "Nothing was deleted."
        )


def require_kind(stream: Stream, window: ReplayWindow, kind: WindowKind) -> None:
    """Raise :class:`ConfigurationError` if a window is of the other kind, before anything is written."""
    if window.kind != kind:
        remedy = "record_backfill" if window.kind == "backfill" else "advance"
        raise ConfigurationError(
            f"{stream}: window {window.window_id} is a {window.kind} window; record it with {remedy}(). "
            "Nothing was recorded or moved."
        )


def conflict_message(stream: Stream, expected: Position, current: Position, window: ReplayWindow) -> str:
    """Return the text of a :class:`PositionConflictError`: the other writer, and the state of this window."""
    writer = current.updated_by or "an unknown writer"
    when = "" if current.updated_at is None else f" at {current.updated_at.isoformat()}"
    return (
        f"{stream}: {writer} moved the position first{when}. The position is now {current}; {window.run} drained from "
        f"{expected}. Window {window.window_id} was not recorded and this run did not move the position: the files of "
        "the window are landed but will never be read, and none of its events is lost. Retry the task: it drains from "
        "the new position. If this error repeats, two DAGs share one subscription: set a separate subscription name "
        "for each."
    )


def require_reset(stream: Stream, replay_id: bytes | None, reason: str, updated_by: str) -> None:
    """Raise :class:`ConfigurationError` if a reset lacks the facts of its audit record, or its replay ID is invalid."""
    if replay_id is not None:
        check_replay_id(stream, replay_id, "Nothing was changed.")
    if not reason.strip() or not updated_by.strip():
        raise ConfigurationError(
            f"{stream}: a reset requires a reason and the name of the user, for its audit record. Nothing was changed."
        )
