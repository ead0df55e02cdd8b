"""Where the last whole transaction of the landed rows ends.

A drain that stops at a limit may stop inside a transaction. The end of one is marked by nothing but the next one's
first event (Change Data Capture guide, transaction-based replication), so the last transaction of such a window is held
back until a later window shows more. An event that cannot be read tells nothing of transactions: it ends none.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.rows.change_batches import transaction_schema, transactions
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows, by_value
from airflow_provider_sfstream.tables.runner.engine import Frame

SEEN = pa.schema(
    [
        ("schema_id", pa.string()),
        ("window", pa.int32()),
        ("rows", pa.int64()),
        ("again", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("last_id", pa.binary()),
    ]
)
"""Of landed rows of one schema in one window: how many, the sequences of the first and the last of them and of the last
one with a replay ID that was asked for, and the last one's replay ID. There are several of them to be put together."""


def seen_sequences(applied_id: bytes) -> Rows:
    """Return a function for ``mapInArrow`` that gives :data:`SEEN` of landed rows with their ``_sequence``.

    :param applied_id: a replay ID; an empty one is that of no event.
    """

    def seen(batches: Batches) -> Batches:
        for batch in batches:
            for schema_id, part in by_value(batch, "schema_id"):
                for window, rows in by_value(part, "window"):
                    sequences = rows.column("_sequence")
                    again = sequences.filter(pc.equal(rows.column("replay_id"), pa.scalar(applied_id, pa.binary())))
                    first, last = pc.min_max(sequences).values()
                    last_id = rows.column("replay_id")[pc.index(sequences, last).as_py()]
                    values = (schema_id, window, len(rows), pc.max(again), first, last, last_id)
                    told = [each.as_py() if isinstance(each, pa.Scalar) else each for each in values]
                    yield pa.RecordBatch.from_pylist([dict(zip(SEEN.names, told, strict=True))], schema=SEEN)

    return seen


def last_whole_sequence(windows: Iterable[tuple[Frame, int]], schemas: dict[str, str]) -> int | None:
    """Return the sequence of the last event before the last transaction; ``None`` if there is no other one.

    :param windows: the landed rows of each window that has any, read as the only one, and the sequence of its first
        event; the last of the stream first. Mostly one is looked through.
    :param schemas: Avro schemas by id.
    """
    last: str | None = None
    for rows, first_sequence in windows:
        ends = rows.made(_last_two(transactions(schemas, (first_sequence,))), transaction_schema()).collected()
        found = sorted((end["_sequence"], end["_transaction_key"]) for end in ends)
        if last is None and found:
            last = found[-1][1]
        others = [sequence for sequence, key in found if key != last]
        if others:
            return int(others[-1])
    return None


def _last_two(keys: Rows) -> Rows:
    """Return a function that gives of each batch the last event of a transaction, and the last one of another.

    Whichever the last transaction of all is, the last event of others is among them.
    """

    def ends(batches: Batches) -> Batches:
        for batch in keys(batches):
            known = batch.filter(batch.column("_transaction_key").is_valid())
            if not len(known):
                continue
            known = known.take(pc.sort_indices(known, [("_sequence", "descending")]))
            others = known.filter(pc.not_equal(known.column("_transaction_key"), known.column("_transaction_key")[0]))
            yield from (each.slice(0, 1) for each in (known, others))

    return ends
