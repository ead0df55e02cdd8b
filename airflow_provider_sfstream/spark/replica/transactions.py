"""Where the last whole transaction of the landed rows ends.

A drain that stops at a limit may stop inside a transaction. The end of one is marked by nothing but the next one's
first event (Change Data Capture guide, transaction-based replication), so the last transaction of such a window is held
back until a later window shows more. An event that cannot be read tells nothing of transactions: it ends none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_provider_sfstream.spark.decode.avro_decoding import DecoderChoice
from airflow_provider_sfstream.spark.rows.change_batches import transactions


def last_whole_sequence(
    windows: Iterable[tuple[Any, int]], schemas: dict[str, str], decoder: DecoderChoice
) -> int | None:
    """Return the sequence of the last event before the last transaction; ``None`` if there is no other one.

    :param windows: the landed rows of each window that has any, read as the only one, and the sequence of its first
        event; the last of the stream first. Mostly one is looked through.
    :param schemas: Avro schemas by id.
    """
    from pyspark.sql import functions as f

    last: str | None = None
    for rows, first_sequence in windows:
        keys = rows.mapInArrow(
            transactions(schemas, (first_sequence,), decoder), "_sequence bigint, _transaction_key string"
        )
        keys = keys.where(f.col("_transaction_key").isNotNull()).persist()
        try:
            if last is None:
                newest = keys.agg(f.max(f.struct("_sequence", "_transaction_key")).alias("newest")).first()["newest"]
                if newest is None:
                    continue
                last = newest["_transaction_key"]
            others = keys.where(f.col("_transaction_key") != last)
            found = others.agg(f.max("_sequence").alias("found")).first()["found"]
        finally:
            keys.unpersist()
        if found is not None:
            return int(found)
    return None
