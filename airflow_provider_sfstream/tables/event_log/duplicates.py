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
from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from airflow_provider_sfstream.tables.rows.arrow_rows import NO_PLACES, PLACES, Numbers, Places, places_of
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows, WindowReference
from airflow_provider_sfstream.tables.rows.shuffle import gathered
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame

EVENT_KEYS = pa.schema(
    [("stream", pa.int32()), ("replay_id", pa.binary()), ("place", pa.int64()), ("owner", pa.int32())]
)
"""A landed row, by its place, or a row of a table, by the number of the window that wrote it (``owner``)."""
_COPIES = pa.schema([("places", pa.binary()), ("stay", pa.binary())])
_QUARANTINED = pa.schema([("window_id", pa.string()), ("ordinal", pa.int64())])
_NONE = -1
"""Owner of rows of tables that no window of the run wrote; place of any row of a table."""
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
            pairs = [(streams.get((org_id, topic)), numbers.get(window, _NONE)) for org_id, topic, window in stored]
            stream, owner = (pa.array([pair[n] for pair in pairs], pa.int32()) for n in (0, 1))
            keys = [stream, batch.column("_replay_id"), pa.nulls(len(batch), pa.int64()), owner]
            yield pa.RecordBatch.from_arrays(keys, schema=EVENT_KEYS).filter(stream.is_valid())

    return rows


def _copies(unreadable: Places) -> Rows:
    """Return a function for ``mapInArrow`` that compares all keys of some events, those of landed rows first. It yields
    the places of the landed rows of events that have several rows that are not consecutive, or that the tables have
    from a window that is not of the run, and for each whether it stays.

    :param unreadable: rows that cannot be decoded, as far as is known.
    """

    def rows(batches: Batches) -> Batches:
        keys = pa.Table.from_batches(_of_landed_events(batches), EVENT_KEYS)
        ids = keys["replay_id"].combine_chunks().dictionary_encode()
        if len(ids.dictionary) == len(keys):
            return  # each event has one row
        events, count = _numbered_events(ids.indices, keys["stream"])
        places, owner = (pc.fill_null(keys[name], _NONE).to_numpy() for name in ("place", "owner"))
        del keys
        is_landed = places != _NONE
        owners, foreign = np.full(count, _NONE), np.zeros(count, bool)
        np.maximum.at(owners, events[~is_landed], owner[~is_landed])
        foreign[events[~is_landed & (owner == _NONE)]] = True
        places, events = places[is_landed], events[is_landed]
        order = np.lexsort((places, events))
        places, events = places[order], events[order]
        first = np.flatnonzero(np.diff(events, prepend=-1))
        counts = np.diff(first, append=len(events))
        suspicious = (places[first + counts - 1] - places[first] + 1 != counts) | foreign[events[first]]
        mask = np.repeat(suspicious, counts)
        places, events = places[mask], events[mask]
        # The remaining rows are in the order of event and place.
        begins = np.diff(events, prepend=-1) != 0
        first, event = np.flatnonzero(begins), np.cumsum(begins) - 1
        # The same number for consecutive rows, and different numbers for others.
        follows = places - (np.arange(len(places)) - first[event])
        in_table = places // PLACES == owners[events]
        best = np.lexsort((places, ~in_table, unreadable.include(places), event))[first]
        stay = (follows == follows[best][event]) & ~foreign[events]
        if len(places):
            yield pa.RecordBatch.from_pydict({"places": [places.tobytes()], "stay": [stay.tobytes()]}, _COPIES)

    return rows


def _of_landed_events(batches: Batches) -> Batches:
    """Yield the keys of landed rows, and then those of the tables' rows with the same replay IDs."""
    landed: list[pa.Array] = []
    ids: pa.Array | None = None
    for _, keys in gathered(batches, BATCH_BYTES):  # each lookup hashes all IDs first
        is_landed = keys.column("place").is_valid()
        found = keys if is_landed.true_count == len(keys) else keys.filter(is_landed)
        if ids is None:
            yield found
            landed.append(found.column("replay_id"))
            if len(found) == len(keys):
                continue
            ids = pc.unique(pa.chunked_array(landed))
        elif len(found):
            raise RuntimeError("A key of a landed row was received after the keys of tables.")
        is_stored = pc.and_(pc.invert(is_landed), pc.is_in(keys.column("replay_id"), value_set=ids))
        yield keys.filter(is_stored)


def _numbered_events(ids: pa.Array, streams: pa.ChunkedArray) -> tuple[Numbers, int]:
    """Return the number of the event of each row, from 0, and the number of events."""
    numbers = ids.to_numpy().astype(np.int64) * (1 + pc.max(streams).as_py()) + streams.to_numpy()
    events = pa.array(numbers).dictionary_encode()
    return events.indices.to_numpy(), len(events.dictionary)
