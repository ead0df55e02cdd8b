"""A stream with its landing and its replay store, and what these know of it together.

Guarantee: nobody begins a stream anew whose windows are landed, without being told to. A store that knows nothing of it
was lost, or is another one: from ``"latest"`` a drain would skip what came since the last landed window, from
``"earliest"`` what aged out since; a backfill would call landed hours lost.

A store knows a stream from the first thing that is recorded of its position on: a window, a mark, or a reset by hand,
also one to nothing, which is how somebody decides to begin anew. Backfill windows are no sign of a loss, because a
stream may be backfilled before its first live run.

The very first window of a stream, landed and never recorded, looks the same as a loss. The run that made it adopts it
when it is tried again. Any other run stops, and restoring adopts it then: nothing is lost, whatever ``start_from``
says. So that a first run that is only slower than another one beside it stops nobody, the store is asked once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import ReplayStoreLostError
from airflow_provider_sfstream.protocol.streams import ReplayWindow, RunIdentity, Stream, window_id_for

if TYPE_CHECKING:
    from airflow_provider_sfstream.landing.catalog import LandingCatalog
    from airflow_provider_sfstream.protocol.manifest import Manifest
    from airflow_provider_sfstream.stores.base import Position, ReplayStore


@dataclass(frozen=True)
class LandedStream:
    """A stream, where it is landed, and where its position is recorded.

    Every method raises :class:`SalesforceStreamError` if the replay store or the landing cannot be read.
    """

    stream: Stream
    catalog: LandingCatalog
    store: ReplayStore

    def position(self) -> Position:
        """Return the recorded position."""
        return self.store.read(self.stream)

    def manifest(self, window_id: str | None) -> Manifest | None:
        """Return the manifest of a window, ``None`` where there is none."""
        return self.catalog.read_manifest(self.stream, window_id) if window_id else None

    def known_position(self, run: RunIdentity) -> Position:
        """Return the position that ``run`` is to go on from; nothing recorded only if nothing was landed either.

        :raises ReplayStoreLostError: the landing has windows of the stream, and the store knows nothing of it.
        """
        position = self.position()
        newest = self.newest_unknown(position)
        if newest is None:
            return position
        position = self.position()
        # Whether the run made its window before anything was recorded, and no window follows a recorded one.
        if position.fence > 0 or (newest.fence == 0 and self.finished(run, position)[1] is not None):
            return position
        raise ReplayStoreLostError(
            f"{self.stream}: the replay store knows nothing of it, but the landing {self.catalog.landing.url} has "
            f"windows of it, the newest {newest.window.window_id} of {newest.window.run}. The store was lost, or is "
            "another one than before (replay_store, replay_store_conn_id), or it was never told of the stream's first "
            "window. Nothing was read from Salesforce and nothing was moved. To go on where the landing ends, run "
            'RestoreReplayPositionOperator. A first window with advance="manual" whose commit is still to come needs '
            "CommitReplayPositionOperator instead. To begin anew at start_from, run ResetReplayPositionOperator with "
            "replay_id=None."
        )

    def newest_unknown(self, position: Position) -> Manifest | None:
        """Return the newest live window in the landing of a stream that the store, with ``position``, knows nothing of.

        ``None`` if the store knows the stream, which is said without a look at the landing, or if there is no window.
        """
        return None if position.fence > 0 else self.catalog.newest_live(self.stream)

    def recorded_window(self, run: RunIdentity) -> ReplayWindow | None:
        """Return the live window that the store holds for ``run``, of any try; ``None`` if it made none."""
        recorded = [window for window in self.store.windows_of_run(self.stream, run) if window.kind == "live"]
        return recorded[-1] if recorded else None

    def finished(self, run: RunIdentity, position: Position) -> tuple[str, Manifest | None]:
        """Return the id of the window that ``run`` makes from ``position``, and its manifest if a try finished it."""
        window_id = window_id_for(run, "live", position.replay_id, position.fence)
        return window_id, self.manifest(window_id)

    def already_drained(self, run: RunIdentity, position: Position) -> bool:
        """Return whether an earlier try of ``run`` made its window: then a drain returns it and reads no event.

        It is recorded, or finished from ``position`` and not recorded yet.
        """
        return self.recorded_window(run) is not None or self.finished(run, position)[1] is not None

    def advance(self, position: Position, window: ReplayWindow) -> None:
        """Record a live ``window`` and move the position over it.

        :raises PositionConflictError: the position is not ``position`` any more.
        """
        self.store.advance(self.stream, position, window)
