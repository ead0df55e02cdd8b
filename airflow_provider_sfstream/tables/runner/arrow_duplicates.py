"""Which landed rows are the same event, by the rules that ``spark_duplicates`` has in Spark's words.

Replay IDs and places of all landed rows are held at once, of the tables' rows a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.rows.event_batches import WindowReference
from airflow_provider_sfstream.tables.runner.arrow_frames import ArrowFrame
from airflow_provider_sfstream.tables.runner.engine import PLACES, TableKeys

_Numbers = np.ndarray[Any, np.dtype[Any]]
_NOBODY = -1
"""Owner of rows that no running window wrote."""


@dataclass(frozen=True)
class Duplicates:
    """``places`` of the rows of events that have several, in their order, and whether each ``stays``."""

    places: _Numbers
    stays: _Numbers

    @property
    def count(self) -> int:
        return int((~self.stays).sum())

    def remove_from(self, rows: ArrowFrame) -> ArrowFrame:
        """Return the landed rows without the duplicates."""
        gone = self.places[~self.stays]
        return rows.filtered(lambda batch: ~_is_in(_places(batch), gone)) if len(gone) else rows

    def chosen(self, rows: ArrowFrame) -> ArrowFrame:
        """Return the landed rows that stay, of events of which another landed row does not."""
        return rows.filtered(lambda batch: _is_in(_places(batch), self.places[self.stays]))


def find_duplicates(
    rows: ArrowFrame,
    keys: TableKeys,
    windows: tuple[WindowReference, ...],
    unreadable: Callable[[ArrowFrame], list[ArrowFrame]],
) -> Duplicates:
    """Find the landed rows that must not be written, as :meth:`Engine.find_duplicates` says."""
    suspects = _suspects(rows, keys, windows)
    numbers = {window.partition: number for number, window in enumerate(windows)}
    known = np.array([], np.int64)
    while True:
        duplicates = suspects.duplicates(known)
        if not len(duplicates.places):
            return duplicates
        found = [
            numbers[window_id] * PLACES + ordinal
            for frame in unreadable(duplicates.chosen(rows))
            for batch in frame.select("window_id", "ordinal").batches(None)
            for window_id, ordinal in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        ]
        if not set(found).difference(known.tolist()):
            return duplicates
        known = np.union1d(known, found)


@dataclass(frozen=True)
class _Suspects:
    """Landed rows of events that have several, in the order of event and place: of each row the number of its event,
    its place, and of its event which window wrote it before, and whether another partition has it."""

    events: _Numbers
    places: _Numbers
    owners: _Numbers
    foreign: _Numbers

    def duplicates(self, unreadable: _Numbers) -> Duplicates:
        """Choose the rows that stay, these places being known not to be decodable."""
        count = np.arange(len(self.events))
        first = np.flatnonzero(np.diff(self.events, prepend=-1))
        group = np.searchsorted(first, count, side="right") - 1
        # The same number for rows that follow each other, and another one for others.
        follows = self.places - (count - first[group])
        in_table, readable = self.places // PLACES == self.owners, ~np.isin(self.places, unreadable)
        best = np.lexsort((self.places, ~in_table, ~readable, group))[first]
        stays = (follows == follows[best][group]) & ~self.foreign
        order = np.argsort(self.places)
        return Duplicates(self.places[order], stays[order])


def _suspects(rows: ArrowFrame, keys: TableKeys, windows: tuple[WindowReference, ...]) -> _Suspects:
    """Return the landed rows of events that have several rows which do not follow each other, or that another partition
    of the tables has.

    :raises ValueError: if a landed row has no replay ID.
    """
    streams = {stream: n for n, stream in enumerate(sorted({(each.org_id, each.topic) for each in windows}))}
    stream_of = np.array([streams[window.org_id, window.topic] for window in windows])
    narrow = list(rows.select("window", "ordinal", "replay_id").batches(None))
    ids = pa.chunked_array([batch.column("replay_id") for batch in narrow], pa.binary()).combine_chunks()
    if ids.null_count:
        raise ValueError(f"{ids.null_count} landed rows have no replay ID. Nothing was written.")
    encoded = pc.dictionary_encode(ids)
    places = np.concatenate([_places(batch) for batch in narrow])
    events = encoded.indices.to_numpy() * len(streams) + stream_of[places // PLACES]
    order = np.lexsort((places, events))
    events, places = events[order], places[order]
    first = np.flatnonzero(np.diff(events, prepend=-1))
    counts = np.diff(first, append=len(events))
    owners, foreign = np.full(len(first), _NOBODY), np.zeros(len(first), bool)
    for stored, owner in _stored(keys, windows, streams, encoded.dictionary):
        at = np.searchsorted(events[first], stored)
        at[at == len(first)] = 0
        known = events[first][at] == stored
        np.maximum.at(owners, at[known], owner[known])
        foreign[at[known & (owner == _NOBODY)]] = True
    suspicious = (places[first + counts - 1] - places[first] + 1 != counts) | foreign
    chosen = np.repeat(suspicious, counts)
    return _Suspects(
        events[chosen], places[chosen], np.repeat(owners, counts)[chosen], np.repeat(foreign, counts)[chosen]
    )


def _stored(
    keys: TableKeys, windows: tuple[WindowReference, ...], streams: dict[tuple[str, str], int], ids: pa.Array
) -> Iterator[tuple[_Numbers, _Numbers]]:
    """Yield the numbers of events that rows of the tables may be, and the number of the window that wrote each.

    :param ids: the replay IDs of the landed rows, each once.
    """
    numbers = {window.partition: number for number, window in enumerate(windows)}
    for frame in (*keys.with_window, *keys.others):
        for batch in frame.batches(None):
            batch = batch.filter(pc.is_in(batch.column("_replay_id"), value_set=ids))
            has_window = "window_id" in batch.schema.names
            windows_of = batch.column("window_id") if has_window else pa.nulls(len(batch), pa.string())
            columns = (batch.column("_org_id"), batch.column("_topic"), windows_of)
            found = list(zip(*(column.to_pylist() for column in columns), strict=True))
            places = pc.index_in(batch.column("_replay_id"), value_set=ids).to_numpy()
            mine = np.array([(org_id, topic) in streams for org_id, topic, _ in found], bool)
            stream = np.array([streams.get((org_id, topic), 0) for org_id, topic, _ in found], np.int64)
            owner = np.array([numbers.get(window, _NOBODY) for _, _, window in found], np.int64)
            yield (places * len(streams) + stream)[mine], owner[mine]


def _places(batch: pa.RecordBatch) -> _Numbers:
    window = batch.column("window").to_numpy().astype(np.int64)
    return window * PLACES + batch.column("ordinal").to_numpy()  # type: ignore[no-any-return]


def _is_in(places: _Numbers, known: _Numbers) -> _Numbers:
    """Tell which places are in an ordered array."""
    at = np.searchsorted(known, places)
    at[at == len(known)] = 0
    return known[at] == places if len(known) else np.zeros(len(places), bool)
