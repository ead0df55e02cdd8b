"""Where the last whole transaction of the landed rows ends.

A drain that stops at a limit may stop inside a transaction. The end of one is marked by nothing but the next one's
first event (Change Data Capture guide, transaction-based replication), so the last transaction of such a window is held
back until a later window shows more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_sfstream.spark.avro_decoding import DecoderChoice
from airflow_provider_sfstream.spark.change_batches import transactions


def last_whole_sequence(
    rows: Any,
    schemas: dict[str, str],
    first_sequences: tuple[int, ...],
    windows: Sequence[int],
    decoder: DecoderChoice,
) -> int | None:
    """Return the sequence of the last event before the last transaction; ``None`` if there is no other one.

    :param rows: landed rows, with the number of their window.
    :param schemas: Avro schemas by id.
    :param first_sequences: for each window number, the sequence of its first event.
    :param windows: numbers of the windows with rows, the last of the stream first. Mostly one is looked through.
    """
    from pyspark.sql import functions as f

    last: tuple[str | None] | None = None
    for number in windows:
        keys = rows.where(f.col("window") == number).mapInArrow(
            transactions(schemas, first_sequences, decoder), "_sequence bigint, _transaction_key string"
        )
        keys = keys.persist()
        try:
            if last is None:
                newest = keys.agg(f.max(f.struct("_sequence", "_transaction_key")).alias("newest")).first()["newest"]
                last = (newest["_transaction_key"],)
            others = keys.where(~f.col("_transaction_key").eqNullSafe(f.lit(last[0])))
            found = others.agg(f.max("_sequence").alias("found")).first()["found"]
        finally:
            keys.unpersist()
        if found is not None:
            return int(found)
    return None
