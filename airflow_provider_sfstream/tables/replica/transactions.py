"""End of the last complete transaction in the landed rows.

A drain that stops at a limit may stop inside a transaction. Only the first event of the next transaction shows that one
has ended (Change Data Capture guide, transaction-based replication). So the last transaction of these windows is held
back until a later window shows more. An unreadable event does not end a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.rows.change_batches import TRANSACTION, sequences_of, transactions
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
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
"""Landed rows of one schema in one window; several are merged: number of rows, sequence numbers of the first, of the
last and of the last with the requested replay ID (``again``), and replay ID of the last."""


def seen_sequences(applied_id: bytes, first_sequences: tuple[int, ...]) -> Rows:
    """Return a function for ``mapInArrow`` that yields :data:`SEEN` of landed rows.

    :param applied_id: the requested replay ID; an empty one matches no event.
    """

    def seen(batches: Batches) -> Batches:
        for batch in batches:
            sequences = sequences_of(batch, first_sequences)
            is_applied = pc.equal(batch.column("replay_id"), pa.scalar(applied_id, pa.binary()))
            again = pc.if_else(is_applied, sequences, pa.scalar(None, pa.int64()))
            columns = [batch.column("schema_id"), batch.column("window"), sequences, again]
            rows = pa.table(columns, ["schema_id", "window", "sequence", "again"])
            counted = rows.group_by(["schema_id", "window"], use_threads=False).aggregate(
                [("sequence", "count"), ("again", "max"), ("sequence", "min"), ("sequence", "max")]
            )
            last = pc.index_in(counted.column("sequence_max"), value_set=sequences)
            seen_rows = counted.append_column("last_id", batch.column("replay_id").take(last.combine_chunks()))
            yield from seen_rows.rename_columns(SEEN.names).cast(SEEN).to_batches()

    return seen


def last_transaction(
    windows: Iterable[tuple[Frame, int, int]], schemas: dict[str, str]
) -> tuple[tuple[int, str] | None, str | None]:
    """Return the sequence number and the replay ID (hex) of the last event before the last transaction (``None``: there
    is no other one), and the key of the last transaction (``None``: no event is readable).

    :param windows: for each window with rows: its landed rows, read as the only window, the sequence number of its
        first event, and that of the last event applied; the last window of the stream first. Usually one is read.
    :param schemas: Avro schemas by ID.
    """
    last_key: str | None = None
    for rows, first_sequence, applied in windows:
        payloads = rows.select("window", "ordinal", "schema_id", "payload", "replay_id")
        ends = payloads.map_batches(_last_two(schemas, first_sequence, applied), TRANSACTION).collect()
        ends.sort(key=lambda end: int(end["_sequence"]))
        if last_key is None and ends:
            last_key = ends[-1]["_transaction_key"]
        earlier = [end for end in ends if end["_transaction_key"] != last_key]
        if earlier:
            return (earlier[-1]["_sequence"], bytes(earlier[-1]["replay_id"]).hex()), last_key
    return None, last_key


def _last_two(schemas: dict[str, str], first_sequence: int, applied: int) -> Rows:
    """Return a function for ``mapInArrow`` that yields, for each batch of a window's landed rows after the sequence
    number ``applied``, the last event of a transaction, and the last one of another.

    Whichever transaction is the last of all, the last event of the other transactions is among these.
    """
    keys = transactions(schemas, (first_sequence,))

    def ends(batches: Batches) -> Batches:
        unapplied = (batch.filter(pc.greater(sequences_of(batch, (first_sequence,)), applied)) for batch in batches)
        for batch in keys(unapplied):
            keyed = batch.filter(batch.column("_transaction_key").is_valid())
            if not len(keyed):
                continue
            keyed = keyed.take(pc.sort_indices(keyed, [("_sequence", "descending")]))
            of_other_keys = keyed.filter(
                pc.not_equal(keyed.column("_transaction_key"), keyed.column("_transaction_key")[0])
            )
            yield from (rows.slice(0, 1) for rows in (keyed, of_other_keys))

    return ends
