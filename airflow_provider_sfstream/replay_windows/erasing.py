"""Erasing: records are taken out of the landed windows of every stream that can have events of their object."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.landing_erasure import erase_from_window
from airflow_provider_sfstream.landing.pruned import read_pruned
from airflow_provider_sfstream.privacy.record_ids import RecordIds
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import can_carry_changes

log = logging.getLogger(__name__)


def streams_to_search(catalog: LandingCatalog, entity: str) -> list[Stream]:
    """Return the streams of the landing that can have change events of an object: its own, and those of channels.

    :raises ConfigurationError: if windows of one are being pruned. Nothing was erased.
    :raises LandingError: if the storage could not be read.
    """
    found = [stream for stream in catalog.streams() if can_carry_changes(stream.topic, entity)]
    for stream in found:
        pruned = read_pruned(catalog.landing, stream)
        if pruned is not None and pruned.removing:
            raise ConfigurationError(
                f"{stream}: windows are being pruned, or a prune was cut off. Let it end, or run it again, and then "
                "run this. Nothing was erased."
            )
    return found


def erase_from_streams(
    catalog: LandingCatalog, streams: Sequence[Stream], ids: RecordIds, erasure_id: str
) -> dict[str, int]:
    """Erase records from all finished windows of streams; return counts.

    ``events`` is what this erasure has changed over all of its tries. ``unfinished`` folders of windows, which have
    files and no manifest, were not looked into: a drain may be at work there.

    :raises LandingError: if something could not be read or written. Doing it again completes it.
    """
    counted = Counter[str](dict.fromkeys(("windows", "events", "emptied", "shortened", "files", "mentions"), 0))
    counted.update(streams=len(streams), unfinished=0)
    for stream in streams:
        for window_id in catalog.window_ids(stream):
            manifest = catalog.read_manifest(stream, window_id)
            if manifest is None:
                counted["unfinished"] += 1
                continue
            done = erase_from_window(catalog, manifest, ids, erasure_id)
            counted.update(vars(done))
            changed = manifest.erased.get(erasure_id, 0) + done.emptied + done.shortened
            counted.update(windows=bool(changed), events=changed)
    if counted["unfinished"]:
        log.warning(
            "%d folders of windows have no manifest and were not looked into: drains that are at work, or were killed. "
            "Run this again once no drain is running; what is left then, no run will finish. Remove such folders by "
            "hand.",
            counted["unfinished"],
        )
    return dict(counted)
