"""Advances of a replay store, compared with the last recorded position in the landing.

``recorded.json``, in the folder of its stream, is replaced after each advance: data files, manifest, position,
``recorded.json``. It is therefore never ahead of the position that it was written for, and a store whose position
precedes it was restored from a backup, or is another store.

Guarantees, with every store:

- The next drain detects a store whose position was moved back (a backup, another store, the late write of a task that
  was considered dead): the landing names a recorded window that the position's chain does not contain.
- :meth:`RecordedPositions.advance` returns only if the window is in the chain. It writes ``recorded.json`` before its
  last read of the store, and a late write is followed by a read of ``recorded.json``. Of a task that moves the position
  back and one that has just moved it, at least one therefore detects the other, and repeats the advance.

A reset by hand moves the position without this module. It is a decision and not a loss: a reset since the last recorded
position explains any position before it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import LandingError, ManifestError, PositionConflictError
from airflow_provider_sfstream.landing.replaced_files import StoredDocument
from airflow_provider_sfstream.replay_stores.base import Position, ReplayStore, conflict_message
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream

if TYPE_CHECKING:
    from airflow_provider_sfstream.landing.catalog import LandingCatalog
    from airflow_provider_sfstream.landing.location import Landing
    from airflow_provider_sfstream.landing.manifest import Manifest

log = logging.getLogger(__name__)

LONGEST_LINK = 100
"""Maximum number of windows to follow between the last recorded position and the store's. More than one is rare."""

_ROUNDS = 5
"""Maximum number of times to record windows again before another writer is reported: each round is one late write."""


@dataclass(frozen=True)
class RecordedPosition:
    """A position that a replay store had at ``recorded_at``, by the clock of the worker.

    ``window_id`` is ``None`` if the position had been set by hand.
    """

    stream: Stream
    window_id: str | None
    fence: int
    replay_id: bytes | None
    recorded_at: datetime


_DOCUMENT = StoredDocument(
    RecordedPosition,
    format="sfstream-recorded-position",
    version=1,
    noun="record of a position",
    remedy=", or a newer version of this package wrote it. The replay store was not changed. Restore or remove the "
    "file; without it, a store that was restored from a backup is not detected.",
)


def read_recorded(landing: Landing, stream: Stream) -> RecordedPosition | None:
    """Return the last recorded position of ``stream``, ``None`` if the landing has none."""
    path = landing.recorded_path(stream)
    recorded = _DOCUMENT.read(landing.filesystem, path)
    if recorded is not None and recorded.stream != stream:
        raise ManifestError(
            f"{path} belongs to another stream, {recorded.stream}. It was copied or moved. The replay store was not "
            "changed. Remove the file."
        )
    return recorded


def write_recorded(landing: Landing, recorded: RecordedPosition) -> None:
    """Store ``recorded``, which replaces the position before."""
    what = f"The last recorded position of {recorded.stream}"
    _DOCUMENT.write(landing.filesystem, landing.recorded_path(recorded.stream), recorded, what)


@dataclass(frozen=True)
class RecordedPositions:
    """Positions of one stream in its replay store and in its landing."""

    stream: Stream
    catalog: LandingCatalog
    store: ReplayStore

    def last_recorded(self) -> RecordedPosition | None:
        """Return the last recorded position in the landing, for comparison with a position that is read later."""
        return read_recorded(self.catalog.landing, self.stream)

    def is_before(self, position: Position, recorded: RecordedPosition | None) -> bool:
        """Return whether the store was moved back: ``position`` does not contain a window that was ``recorded``.

        Reads nothing if both are the same, which is the case between two runs. False if the recorded window is missing
        from the landing, or if a user set the position by hand since.
        """
        if recorded is None or recorded.window_id == position.window_id is not None:
            return False
        for manifest in self._chain(position.window_id):
            if manifest.window.window_id == recorded.window_id:
                return False
            if manifest.fence < recorded.fence < position.fence:
                # Each fence has one window, unless the chain belongs to another store.
                return manifest.fence + 1 == recorded.fence
        if position.fence > recorded.fence:
            return False
        if (recorded.window_id, recorded.fence) == (position.window_id, position.fence):
            return False
        if recorded.window_id and self.catalog.read_manifest(self.stream, recorded.window_id) is None:
            return False
        return not any(reset.reset_at > recorded.recorded_at for reset in self.store.resets(self.stream)[-1:])

    def advance(self, expected: Position, window: ReplayWindow) -> Position:
        """Record a live ``window``, move the position over it, and return the position once the window is in the chain.

        :raises PositionConflictError: the position is not ``expected``, or another writer replaced it. The window is
            not recorded.
        """
        new_position = self.store.advance(self.stream, expected, window)
        try:
            current = self._confirm_advance(new_position)
        except LandingError as error:
            log.warning(
                "%s: window %s is recorded, but the last recorded position in the landing may be outdated: %s",
                self.stream,
                window.window_id,
                error,
            )
            current = self.store.read(self.stream)
        if current.window_id != window.window_id and not self.is_recorded(window):
            if current.fence >= new_position.fence:
                self.write_last_recorded(current)
            raise PositionConflictError(conflict_message(self.stream, expected, current, window))
        return current

    def write_last_recorded(self, position: Position) -> None:
        """Store ``position`` as the last recorded one. A failure is logged: the store has the position."""
        recorded_at = position.updated_at or datetime.now(UTC)
        recorded = RecordedPosition(self.stream, position.window_id, position.fence, position.replay_id, recorded_at)
        try:
            write_recorded(self.catalog.landing, recorded)
        except LandingError as error:
            log.warning("%s The position is recorded in the replay store.", error)

    def _confirm_advance(self, new_position: Position) -> Position:
        """Return the store's position after writing it to ``recorded.json``; repeat advances that a late write undid.

        The order matters: a task that moves the position back writes the store, then reads ``recorded.json``; a task
        that has moved the position writes ``recorded.json``, then reads the store.
        """
        current = new_position
        for _ in range(_ROUNDS):
            recorded = self.last_recorded()
            if recorded is not None and recorded.fence > new_position.fence:
                later_windows = self._between(new_position, recorded.window_id)
                if later_windows:
                    new_position = self._repeat(new_position, later_windows)
                    continue
            if recorded is None or (recorded.window_id, recorded.fence) != (new_position.window_id, new_position.fence):
                self.write_last_recorded(new_position)
            current = self.store.read(self.stream)
            later_windows = self._between(current, new_position.window_id) if current.fence < new_position.fence else []
            if not later_windows:
                break
            new_position = self._repeat(current, later_windows)
        return current

    def _repeat(self, position: Position, later_windows: list[Manifest]) -> Position:
        """Record again the windows after ``position``, which were recorded before it was moved back."""
        log.warning(
            "%s: a task that ran too long moved the position back to %s. The %d windows up to %s are recorded again.",
            self.stream,
            position,
            len(later_windows),
            later_windows[-1].window.window_id,
        )
        for manifest in later_windows:
            position = self.store.advance(self.stream, position, manifest.window)
        return position

    def _between(self, position: Position, head: str | None) -> list[Manifest]:
        """Return the windows after ``position`` up to ``head``, oldest first; none if ``head`` does not follow it."""
        later_windows: list[Manifest] = []
        for manifest in self._chain(head):
            if manifest.window.window_id == position.window_id:
                return later_windows[::-1]
            later_windows.append(manifest)
        return []

    def _chain(self, head: str | None) -> Iterator[Manifest]:
        """Yield the newest windows of the chain that ends with ``head``, newest first."""
        return islice(() if head is None else self.catalog.chain(self.stream, head), LONGEST_LINK)

    def is_recorded(self, window: ReplayWindow) -> bool:
        """Return whether the store has recorded a window, of any kind."""
        recorded = self.store.windows_of_run(self.stream, window.run)
        return any(earlier.window_id == window.window_id for earlier in recorded)
