"""A replay store that knows nothing of a stream whose windows are landed: it was lost, or it is another one.

Guarantee: nobody begins such a stream anew without being told to. From ``"latest"`` a drain would skip what came since
the last landed window, from ``"earliest"`` what aged out since; a backfill would call landed hours lost.

A store knows a stream from the first thing that is recorded of its position on: a window, a mark, or a reset by hand,
also one to nothing, which is how somebody decides to begin anew. Backfill windows are no sign of a loss, because a
stream may be backfilled before its first live run.

The very first window of a stream, landed and never recorded, looks the same as a loss. The run that made it adopts it
when it is tried again. Any other run stops, and restoring adopts it then: nothing is lost, whatever ``start_from``
says. So that a first run that is only slower than another one beside it stops nobody, the store is asked once more.
"""

from __future__ import annotations

from airflow_provider_sfstream.exceptions import ReplayStoreLostError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.protocol.manifest import Manifest
from airflow_provider_sfstream.protocol.streams import RunIdentity, Stream, window_id_for
from airflow_provider_sfstream.stores.base import Position, ReplayStore


def newest_unknown(stream: Stream, position: Position, catalog: LandingCatalog) -> Manifest | None:
    """Return the newest live window in the landing of a stream that the store, with ``position``, knows nothing of.

    ``None`` if the store knows the stream, which is said without a look at the landing, or if there is no such window.

    :raises LandingError: if the landing could not be read.
    """
    return None if position.fence > 0 else catalog.newest_live(stream)


def known_position(stream: Stream, run: RunIdentity, *, store: ReplayStore, catalog: LandingCatalog) -> Position:
    """Return the position that ``run`` is to go on from; nothing recorded only if nothing was landed either.

    :raises ReplayStoreLostError: the landing has windows of the stream, and the store knows nothing of it.
    :raises SalesforceStreamError: if the replay store or the landing cannot be read.
    """
    position = store.read(stream)
    newest = newest_unknown(stream, position, catalog)
    if newest is None:
        return position
    position = store.read(stream)
    if position.fence > 0 or _is_of_an_earlier_try(newest, run, position, catalog):
        return position
    raise ReplayStoreLostError(
        f"{stream}: the replay store knows nothing of it, but the landing {catalog.landing.url} has windows of it, the "
        f"newest {newest.window.window_id} of {newest.window.run}. The store was lost, or is another one than before "
        "(replay_store, replay_store_conn_id), or it was never told of the stream's first window. Nothing was read "
        "from Salesforce and nothing was moved. To go on where the landing ends, run RestoreReplayPositionOperator. A "
        'first window with advance="manual" whose commit is still to come needs CommitReplayPositionOperator instead. '
        "To begin anew at start_from, run ResetReplayPositionOperator with replay_id=None."
    )


def _is_of_an_earlier_try(newest: Manifest, run: RunIdentity, position: Position, catalog: LandingCatalog) -> bool:
    """Return whether ``run`` made its window before anything was recorded, and no window follows a recorded one."""
    own = window_id_for(run, "live", position.replay_id, position.fence)
    return newest.fence == 0 and catalog.read_manifest(newest.stream, own) is not None
