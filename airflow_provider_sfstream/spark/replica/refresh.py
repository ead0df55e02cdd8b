"""Records as they were fetched, and how a table's new row follows from them: Spark expressions only.

A row takes the record as fetched only if it has seen no event since the fetch began (compare and set by ``_sequence``);
else the record may lack a change that the row has, or the row one that it ignored, and the row is to be fetched again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.replica.refresh_document import IMAGE_ENVELOPE, TableRefresh
from airflow_provider_sfstream.spark.replica.snapshots import Flag, StreamState
from airflow_provider_sfstream.spark.rows.replica_merge import DROPPED, Deletes
from airflow_provider_sfstream.spark.rows.replica_rows import TABLE_ENVELOPE

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


def differing(rows: Any, images: Any, columns: Iterable[str]) -> Any:
    """Return the images of those rows that have another value in one of some columns.

    :param rows: of the table. A column that they lack is null.
    """
    from pyspark.sql import functions as f

    names = list(columns)
    if not names:
        return images.where("false")
    values = [f.col(name) if name in rows.columns else f.lit(None) for name in names]
    base = rows.select(
        "Id", f.struct(*(each.alias(name) for each, name in zip(values, names, strict=True))).alias("_row")
    )
    same = [f.col(f"_row.`{name}`").eqNullSafe(f.col(f"`{name}`")) for name in names]
    return images.join(base, "Id").where(~reduce(and_, same, f.lit(True))).drop("_row")


def refreshed_columns(
    columns: dict[str, ColumnType],
    refresh: TableRefresh,
    computed: Collection[str] = (),
    *,
    deletes: Deletes,
    moved_on: bool = True,
) -> list[Any]:
    """Return the columns of the table's new row over ``base`` and ``change`` (an image), and :data:`DROPPED`.

    1. A row that has seen no event since becomes the record as fetched and is clean; where the org no longer has the
       record, the row keeps its values and is deleted. A record without a row gets one, if all were fetched.
    2. A row that has seen an event since stays as it is, but dirty (``changed_while_refreshed``).
    3. With hard deletes, rows of deleted records are dropped. A record without a row may then be one that was deleted
       since the fetch, so its row is dirty if the replica moved on.

    With some columns only, a row takes those and is else as it was; without a row, there is none. A column that no
    event carries is as it was fetched in every row, whatever events the row has seen.

    :param computed: those of the columns fetched that no event carries.
    :param moved_on: whether the stream has had events applied since the fetch began.
    """
    from pyspark.sql import functions as f

    if refresh.mode == "columns":
        return _some_columns(columns, refresh)
    if refresh.mode == "computed":
        return _computed_columns(columns, computed)
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
    found = f.coalesce(image["_found"], false)
    taken = current & found
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
    when = dict.fromkeys(refresh.columns, taken) | dict.fromkeys(computed, found)
    own = [
        (f.when(when[name], image[name]).otherwise(base[name]) if name in when else base[name]).alias(name)
        for name in columns
    ]
    dropped = current & deleted & ~unsure if deletes == "hard" else false
    if not full:
        dropped = dropped | ~exists
    return [*(envelope[name] for name in TABLE_ENVELOPE), *own, f.coalesce(dropped, false).alias(DROPPED)]


def _some_columns(columns: dict[str, ColumnType], refresh: TableRefresh) -> list[Any]:
    from pyspark.sql import functions as f

    base, image = f.col("base"), f.col("change")
    known = base["Id"].isNotNull() & image["Id"].isNotNull()
    taken = known & (base["_sequence"] <= refresh.applied_sequence)
    late = known & ~taken & ~base["_dirty"]
    changed = {
        "_dirty": base["_dirty"] | late,
        "_dirty_since": f.when(late, base["_commit_time"]).otherwise(base["_dirty_since"]),
        "_dirty_reason": f.when(late, f.lit("changed_while_refreshed")).otherwise(base["_dirty_reason"]),
        **{name: f.when(taken, image[name]).otherwise(base[name]) for name in refresh.columns},
    }
    new = [changed.get(name, base[name]).alias(name) for name in (*TABLE_ENVELOPE, *columns)]
    return [*new, base["Id"].isNull().alias(DROPPED)]


def _computed_columns(columns: dict[str, ColumnType], computed: Collection[str]) -> list[Any]:
    from pyspark.sql import functions as f

    base, image = f.col("base"), f.col("change")
    taken = {name: f.when(image["Id"].isNotNull(), image[name]).otherwise(base[name]) for name in computed}
    new = [taken.get(name, base[name]).alias(name) for name in (*TABLE_ENVELOPE, *columns)]
    return [*new, base["Id"].isNull().alias(DROPPED)]


def flag_after(flag: Flag | None, refresh: TableRefresh, stream: StreamState) -> Flag | None:
    """Return the flag of a table that was refreshed: none after all that it is for was fetched, unless it was raised
    since. It stays for the columns that the user of the refresh does not see.

    :param stream: the table's stream as it is now.
    """
    if flag is None or refresh.mode in ("records", "computed"):
        return flag
    if refresh.mode == "columns" and flag.reason != "schema":
        return flag
    unchanged = stream.last.window_id == refresh.last_window
    if not unchanged and flag.sequence >= refresh.next_sequence:
        return flag
    return replace(flag, reason="schema", columns=refresh.hidden) if refresh.hidden else None


def _typed(text: Any, type_: ColumnType) -> Any:
    """Return a column of text as one of ``type_``. A text that is no such value is an error, not null."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_type

    from airflow_provider_sfstream.spark.decode.arrow_columns import arrow_type

    if type_ == "string":
        return text
    if isinstance(type_, dict):  # no query gives it: the column of a field that is gone
        return f.lit(None).cast(from_arrow_type(arrow_type(type_)))
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
