"""Order in which the windows of a stream were committed, for readers that store a place in it.

A manifest alone does not prove that its window counts: its run may have died before the position moved, or another run
may have moved it first. A window counts if it is the position of the replay store, or if a later window begins where it
ends: that one was drained from a position on this window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.pruned import read_pruned
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream


def newest_committed(catalog: LandingCatalog, stream: Stream, position: str | None = None) -> str | None:
    """Return the ID of the newest window that certainly counts, ``None`` if there is none.

    :param position: the window that the replay store's position is on, if known. Without it the newest window counts
        only after another window follows it.
    """
    if position is not None:
        return position
    newest = catalog.newest_live(stream)
    return None if newest is None else newest.window.previous_window_id


def windows_after(
    catalog: LandingCatalog,
    stream: Stream,
    start: str | None,
    head: str,
    recorded: Callable[[], Sequence[ReplayWindow]] | None = None,
) -> list[Manifest]:
    """Return the live windows after ``start``, up to and including ``head``, in the order of their chain.

    :param start: ``None``: from the first existing window. Windows before it that were pruned are omitted.
    :param head: ID of a window that counts. The result is empty if ``start`` is this window or a later one.
    :param recorded: returns all live windows of the replay store, in the order in which they were recorded. A position
        that was set back by hand breaks the chain; only the store has the windows before it that count.
    :raises ManifestError: if a window between is missing, or the windows between are unknown.
    """
    manifests: list[Manifest] = []
    link: str | None = head
    if head != start:
        for manifest in catalog.chain(stream, head):
            manifests.append(manifest)
            link = manifest.window.previous_window_id
            if link == start:
                break
    manifests.reverse()
    if link is not None and link == start:
        return manifests
    if link is not None and start is None and _may_be_pruned(catalog, stream, link):
        return manifests
    if link is None and start is None and not _has_other_windows_before(catalog, stream, manifests):
        return manifests
    if start is not None and any(manifest.window.window_id == head for manifest in catalog.chain(stream, start)):
        return []
    if link is None and recorded is not None:
        return _recorded_after(catalog, stream, start, head, recorded())
    raise ManifestError(_broken_chain_message(stream, start, link, head))


def _may_be_pruned(catalog: LandingCatalog, stream: Stream, window_id: str) -> bool:
    """Return whether a missing window may have been pruned: its run was due before the pruned windows finished."""
    pruned = read_pruned(catalog.landing, stream)
    return pruned is not None and window_id[:16] <= f"{pruned.finished_before.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _has_other_windows_before(catalog: LandingCatalog, stream: Stream, chain: Sequence[Manifest]) -> bool:
    """Return whether there are live windows of runs that were due no later than that of the first window of the chain,
    and which do not follow a window of the chain."""
    first, first_due = catalog.first_day(stream), chain[0].window.run.run_after
    if first is None:
        return False
    ids = [manifest.window.window_id for manifest in chain]
    candidates = catalog.windows_between(stream, first, first_due.astimezone(UTC).date(), without=ids)
    windows = [manifest.window for manifest in candidates if manifest.window.previous_window_id not in ids]
    return any(window.kind == "live" and window.run.run_after <= first_due for window in windows)


def _recorded_after(
    catalog: LandingCatalog, stream: Stream, start: str | None, head: str, recorded: Sequence[ReplayWindow]
) -> list[Manifest]:
    ids = [window.window_id for window in recorded if window.kind == "live"]
    if head not in ids or (start is not None and start not in ids):
        raise ManifestError(_broken_chain_message(stream, start, None, head))
    between = ids[0 if start is None else ids.index(start) + 1 : ids.index(head) + 1]
    manifests = [catalog.read_manifest(stream, window_id) for window_id in between]
    existing = [manifest for manifest in manifests if manifest is not None]
    if len(existing) < len(manifests):
        raise ManifestError(_broken_chain_message(stream, start, between[manifests.index(None)], head))
    return existing


def _broken_chain_message(stream: Stream, start: str | None, link: str | None, head: str) -> str:
    origin = "the beginning" if start is None else f"window {start}"
    if link is None:
        return (
            f"{stream}: the windows up to {head} do not follow {origin}: the position was set back by hand, or the "
            "stream was started again. No window was read, and no event is lost. Set the option replay_store: only the "
            "replay store records which of the windows before that count. Or list them in the option manifests."
        )
    return (
        f"{stream}: window {link}, which follows {origin} and was not read yet, is missing: it was pruned, or lost. "
        f"Its events, and those of windows between {origin} and it, cannot be read; those after it up to {head} are "
        "landed. Restore it, or start a new query with another checkpoint, which begins with the remaining windows."
    )
