"""Landed rows of the same event: same org, topic and replay ID, in the windows of the run or already in the tables.

Consecutive rows of a window with one replay ID are several events: Salesforce creates them from a change of several
records on a channel that enriches or filters, and drains land them together. They stay, or are dropped, together. Only
narrow columns are read for this, and no payload leaves the task that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.event_log.delta_tables import EventPlan
from airflow_provider_sfstream.tables.rows.arrow_rows import NO_PLACES, PLACES, Numbers, Places, places_of
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows, WindowReference
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame

EVENT_KEYS = pa.schema(
    [("stream", pa.int32()), ("replay_id", pa.binary()), ("place", pa.int64()), ("owner", pa.int32())]
)
"""A landed row, by its place, or a row of a table, by the number of the window that wrote it (``owner``)."""
_COPIES = pa.schema([("places", pa.binary()), ("stay", pa.binary())])
_QUARANTINED = pa.schema([("window_id", pa.string()), ("ordinal", pa.int64())])
_NO_OWNER = -1
"""Owner of rows of tables that no window of the run wrote."""
_ROWS_OF_A_TASK = 1_000_000
"""Rows whose keys a task compares: about 100 MiB."""


def find_duplicates(engine: Engine, rows: Frame, stored: Sequence[Frame], count: int, plan: EventPlan) -> Places:
    """Return the landed rows to drop, so that one readable copy of each event stays, if there is any.

    For each replay ID, consecutive rows of one window stay: those of the window whose rows the table already has, so
    that running windows again, alone or together, changes nothing; otherwise the first, in the order of
    ``landed_windows.reading_order``, and there the lowest ordinal. Rows that cannot be decoded stay only if no others
    of their event in these windows can. None stay if the table has the event from a window that is not of the run.

    :param stored: ``tables.KEYS`` of stored rows; without ``window_id`` if this run does not write their partitions.
    :param count: number of rows in ``rows`` and ``stored``.
    """
    keys = [rows.select("window", "ordinal", "replay_id").map_batches(_landed_keys(plan.windows), EVENT_KEYS)]
    keys += [frame.map_batches(_stored_keys(plan.windows), EVENT_KEYS) for frame in stored]
    compared = engine.shuffle(keys, ("stream", "replay_id"), 1 + count // _ROWS_OF_A_TASK)
    partitions = {window.partition: number for number, window in enumerate(plan.windows)}
    unreadable = NO_PLACES
    while True:
        copies = compared.map_batches(_copies(unreadable), _COPIES).collect()
        places = np.concatenate([np.frombuffer(row["places"], np.int64) for row in copies] or [NO_PLACES.starts])
        stay = np.concatenate([np.frombuffer(row["stay"], bool) for row in copies] or [np.array([], bool)])
        duplicates = Places.from_numbers(places[~stay])
        if not stay.any():
            return duplicates
        candidates = Places.from_numbers(places[stay])
        undecodable = np.array(
            [
                partitions[row["window_id"]] * PLACES + row["ordinal"]
                for row in rows.map_batches(_undecodable(plan, candidates), _QUARANTINED).collect()
            ],
            np.int64,
        )
        if unreadable.include(undecodable).all():
            return duplicates
        # Another copy of the event may be decodable, so choose again without the undecodable ones.
        unreadable = Places.from_numbers(np.union1d(unreadable.numbers(), undecodable))


def _undecodable(plan: EventPlan, candidates: Places) -> Rows:
    """Return a function for ``mapInArrow`` that yields window and ordinal of the undecodable candidates."""

    def rows(batches: Batches) -> Batches:
        filtered = (batch.filter(pa.array(candidates.include(places_of(batch)))) for batch in batches)
        for _, decoded in plan.decode(batch for batch in filtered if len(batch)):
            yield from (batch.select(_QUARANTINED.names) for batch in decoded.quarantined)

    return rows


def _streams(windows: Sequence[WindowReference]) -> dict[tuple[str, str], int]:
    streams = sorted({(window.org_id, window.topic) for window in windows})
    return {stream: number for number, stream in enumerate(streams)}


def _landed_keys(windows: Sequence[WindowReference]) -> Rows:
    streams = _streams(windows)
    stream_of = np.array([streams[window.org_id, window.topic] for window in windows], np.int32)

    def rows(batches: Batches) -> Batches:
        for batch in batches:
            if batch.column("replay_id").null_count:
                raise ValueError(f"{batch.column('replay_id').null_count} landed rows have no replay ID.")
            stream = pa.array(stream_of[batch.column("window").to_numpy()])
            columns = [stream, batch.column("replay_id"), pa.array(places_of(batch)), pa.nulls(len(batch), pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, schema=EVENT_KEYS)

    return rows


def _stored_keys(windows: Sequence[WindowReference]) -> Rows:
    streams = _streams(windows)
    numbers = {window.partition: number for number, window in enumerate(windows)}

    def rows(batches: Batches) -> Batches:
        for batch in batches:
            has_window = "window_id" in batch.schema.names
            partitions = batch.column("window_id") if has_window else pa.nulls(len(batch), pa.string())
            columns = (batch.column("_org_id"), batch.column("_topic"), partitions)
            stored = zip(*(column.to_pylist() for column in columns), strict=True)
            pairs = [(streams.get((org_id, topic)), numbers.get(window, _NO_OWNER)) for org_id, topic, window in stored]
            stream, owner = (pa.array([pair[n] for pair in pairs], pa.int32()) for n in (0, 1))
            keys = [stream, batch.column("_replay_id"), pa.nulls(len(batch), pa.int64()), owner]
            yield pa.RecordBatch.from_arrays(keys, schema=EVENT_KEYS).filter(stream.is_valid())

    return rows


def _copies(unreadable: Places) -> Rows:
    """Return a function for ``mapInArrow`` that compares all keys of some events, those of landed rows first. It yields
    the places of the landed rows of events with several rows, and for each whether it stays."""

    def rows(batches: Batches) -> Batches:
        landed = _Landed()
        for batch in batches:
            landed.add(batch)
        places, stay = landed.copies(unreadable)
        if len(places):
            yield pa.RecordBatch.from_arrays(
                [pa.array([places.tobytes()]), pa.array([stay.tobytes()], pa.binary())], schema=_COPIES
            )

    return rows


class _Landed:
    """Keys of landed rows, and the stored rows of their events in the tables."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._ids: pa.Array | None = None
        self._events = self._places = np.array([], np.int64)

    def add(self, keys: pa.RecordBatch) -> None:
        is_landed = keys.column("place").is_valid()
        if self._ids is None:
            self._batches.append(keys.filter(is_landed))
            if pc.all(is_landed).as_py():
                return
            self._encode()
        elif pc.any(is_landed).as_py():
            raise RuntimeError("A key of a landed row was received after the keys of tables.")
        self._record_stored(keys.filter(pc.invert(is_landed)))

    def _encode(self) -> None:
        keys = pa.Table.from_batches(self._batches, EVENT_KEYS)
        self._batches.clear()
        encoded = keys["replay_id"].combine_chunks().dictionary_encode()
        self._ids = encoded.dictionary
        self._streams = 1 + (pc.max(keys["stream"]).as_py() or 0)
        events = encoded.indices.to_numpy().astype(np.int64) * self._streams + keys["stream"].to_numpy()
        places = keys["place"].to_numpy()
        order = np.lexsort((places, events))
        self._events, self._places = events[order], places[order]
        self._first = np.flatnonzero(np.diff(self._events, prepend=-1))
        self._owners = np.full(len(self._first), _NO_OWNER)
        self._foreign = np.zeros(len(self._first), bool)

    def _record_stored(self, keys: pa.RecordBatch) -> None:
        """Record which events the tables already have."""
        keys = keys.filter(pc.less(keys.column("stream"), self._streams))
        id_numbers = pc.index_in(keys.column("replay_id"), value_set=self._ids)
        keys, id_numbers = keys.filter(id_numbers.is_valid()), id_numbers.drop_null().to_numpy().astype(np.int64)
        if not len(keys):
            return
        stored, owner = id_numbers * self._streams + keys.column("stream").to_numpy(), keys.column("owner").to_numpy()
        events = self._events[self._first]
        at = np.minimum(np.searchsorted(events, stored), len(events) - 1)
        is_landed = events[at] == stored
        np.maximum.at(self._owners, at[is_landed], owner[is_landed])
        self._foreign[at[is_landed & (owner == _NO_OWNER)]] = True

    def copies(self, unreadable: Places) -> tuple[Numbers, Numbers]:
        """Return the places of the landed rows of events that have several rows that are not consecutive, or that the
        tables have from a window that is not of the run, and a mask of the rows that stay.

        :param unreadable: rows that cannot be decoded, as far as is known.
        """
        if self._ids is None:
            self._encode()
        counts = np.diff(self._first, append=len(self._events))
        last = self._places[self._first + counts - 1] if len(counts) else self._places
        suspicious = (last - self._places[self._first] + 1 != counts) | self._foreign
        mask = np.repeat(suspicious, counts)
        places = self._places[mask]
        owners, foreign = (np.repeat(values, counts)[mask] for values in (self._owners, self._foreign))
        # The remaining rows are in the order of event and place.
        number = np.arange(len(places))
        first = np.flatnonzero(np.diff(self._events[mask], prepend=-1))
        event = np.searchsorted(first, number, side="right") - 1
        # The same number for consecutive rows, and different numbers for others.
        follows = places - (number - first[event])
        in_table = places // PLACES == owners
        best = np.lexsort((places, ~in_table, unreadable.include(places), event))[first]
        return places, (follows == follows[best][event]) & ~foreign
