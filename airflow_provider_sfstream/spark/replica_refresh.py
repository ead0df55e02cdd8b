"""Records as they were fetched, and how a table's new row follows from them: Spark expressions only.

A row takes the record as fetched only if it has seen no event since the fetch began (compare and set by ``_sequence``);
else the record may lack a change that the row has, or the row one that it ignored, and the row is to be fetched again.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.spark.avro_columns import ColumnType
from airflow_provider_sfstream.spark.refresh_document import IMAGE_ENVELOPE, TableRefresh
from airflow_provider_sfstream.spark.replica_merge import DROPPED, Deletes
from airflow_provider_sfstream.spark.replica_rows import TABLE_ENVELOPE
from airflow_provider_sfstream.spark.replica_snapshots import Flag, StreamState

_ENVELOPE_TYPES: dict[str, ColumnType] = {**TABLE_ENVELOPE, "_found": "boolean"}
_MOMENT = "yyyy-MM-dd'T'HH:mm:ss[.SSS]XX"
"""As REST (``+0000``) and the Bulk API (``Z``) write it."""


def images(spark: Any, folder: str, refresh: TableRefresh, columns: dict[str, ColumnType]) -> Any:
    """Return one row for each record: :data:`IMAGE_ENVELOPE`, and the columns that were fetched, of the table's types.

    :param folder: the document's folder, as Hadoop names it.
    :param columns: the table's columns.
    :raises ArithmeticException: from Spark, when the rows are read, for a number that its column cannot hold.
    """
    from pyspark.sql import functions as f

    types = {name: _ENVELOPE_TYPES[name] for name in IMAGE_ENVELOPE} | {name: columns[name] for name in refresh.columns}
    schema = ", ".join(f"`{name}` string" for name in types)
    if refresh.files:
        reader = spark.read.schema(schema).option("mode", "FAILFAST")
        rows = reader.json([f"{folder}/{name}" for name in refresh.files])
    else:
        rows = spark.createDataFrame([], schema)
    typed = [_typed(f.col(f"`{name}`"), type_).alias(name) for name, type_ in types.items()]
    return rows.dropDuplicates(["Id"]).select(*typed)


def refreshed_columns(
    columns: dict[str, ColumnType], refresh: TableRefresh, *, deletes: Deletes, moved_on: bool = True
) -> list[Any]:
    """Return the columns of the table's new row over ``base`` and ``change`` (an image), and :data:`DROPPED`.

    1. A row that has seen no event since becomes the record as fetched and is clean; where the org no longer has the
       record, the row keeps its values and is deleted. A record without a row gets one, if all were fetched.
    2. A row that has seen an event since stays as it is, but dirty (``changed_while_refreshed``).
    3. With hard deletes, rows of deleted records are dropped. A record without a row may then be one that was deleted
       since the fetch, so its row is dirty if the replica moved on.

    :param moved_on: whether the stream has had events applied since the fetch began.
    """
    from pyspark.sql import functions as f

    base, image = f.col("base"), f.col("change")
    false, null = f.lit(False), f.lit(None)
    exists, full = base["Id"].isNotNull(), refresh.mode == "full"
    if full:
        unseen = ~exists | (base["_sequence"] <= refresh.applied_sequence)
        concerned = f.lit(True)
    else:
        unseen = base["_sequence"] == image["_sequence"]
        # A row that is clean by now was refreshed by another one; one that is gone was deleted for good.
        concerned = f.coalesce(image["Id"].isNotNull() & base["_dirty"], false)
    current, late = concerned & unseen, concerned & ~unseen
    taken = current & f.coalesce(image["_found"], false)
    unsure = ~exists & f.lit(full and moved_on and deletes == "hard")

    def become(when_current: Any, when_late: Any, name: str) -> Any:
        return f.when(current, when_current).when(late, when_late).otherwise(base[name]).alias(name)

    def take(value: Any, name: str) -> Any:
        return f.when(taken, value).otherwise(base[name]).alias(name)

    changed = f.lit("changed_while_refreshed")
    deleted = f.when(taken, f.coalesce(image["_deleted"], false)).otherwise(True)
    envelope = {name: base[name].alias(name) for name in TABLE_ENVELOPE} | {
        "Id": f.coalesce(base["Id"], image["Id"]).alias("Id"),
        "_deleted": become(deleted, base["_deleted"], "_deleted"),
        "_dirty": become(unsure, f.lit(True), "_dirty"),
        "_dirty_since": become(
            f.when(unsure, image["_refreshed_at"]),
            f.coalesce(base["_dirty_since"], base["_commit_time"]),
            "_dirty_since",
        ),
        "_dirty_reason": become(f.when(unsure, changed).otherwise(null), changed, "_dirty_reason"),
        "_sequence": f.coalesce(base["_sequence"], f.lit(refresh.applied_sequence).cast("bigint")).alias("_sequence"),
        "_refreshed_at": take(f.coalesce(image["_refreshed_at"], base["_refreshed_at"]), "_refreshed_at"),
    }
    fetched = set(refresh.columns)
    own = [take(image[name], name) if name in fetched else base[name].alias(name) for name in columns]
    dropped = current & deleted & ~unsure if deletes == "hard" else false
    if not full:
        dropped = dropped | ~exists
    return [*(envelope[name] for name in TABLE_ENVELOPE), *own, f.coalesce(dropped, false).alias(DROPPED)]


def flag_after(flag: Flag | None, refresh: TableRefresh, stream: StreamState) -> Flag | None:
    """Return the flag of a table that was refreshed: none after a full refresh, unless it was raised since.

    :param stream: the table's stream as it is now.
    """
    unchanged = stream.last.window_id == refresh.last_window
    if flag is None or refresh.mode != "full" or not (unchanged or flag.sequence < refresh.next_sequence):
        return flag
    return None


def _typed(text: Any, type_: ColumnType) -> Any:
    """Return a column of text as one of ``type_``. A text that is no such value is an error, not null."""
    from pyspark.sql import functions as f

    if type_ == "string":
        return text
    if type_ == "timestamp":
        return f.to_timestamp(text, _MOMENT)
    if type_ in ("int", "long"):
        return _whole_number(text).cast("int" if type_ == "int" else "bigint")
    return text.cast(type_)


def _whole_number(text: Any) -> Any:
    """Return a number; of a time the milliseconds since midnight, of a date or a date-time those since the epoch."""
    from pyspark.sql import functions as f

    is_time, is_moment = text.rlike(r"^\d\d:\d\d:\d\d"), text.rlike(r"^\d{4}-\d\d-\d\dT")
    is_date = text.rlike(r"^\d{4}-\d\d-\d\d$")
    # As text of one shape before it is parsed: what an expression is not for is null to it.
    moment = f.when(is_moment, text).when(is_date, f.concat(text, f.lit("T00:00:00.000Z")))
    moment = moment.when(is_time, f.concat(f.lit("1970-01-01T"), text))
    number = f.when(~(is_time | is_moment | is_date), text).cast("decimal(38,9)").cast("bigint")
    return f.coalesce(f.unix_millis(f.to_timestamp(moment, _MOMENT)), number)
