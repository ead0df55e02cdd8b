"""Records as they were fetched: read as rows, and what a refresh does with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.refresh_document import IMAGE_ENVELOPE, TableRefresh
from airflow_provider_sfstream.tables.replica.snapshots import Flag, StreamState
from airflow_provider_sfstream.tables.rows.merging import Columns, ColumnsMerge, Merge, RefreshMerge
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE

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

    types = _image_types(refresh, columns)
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


def image_schema(refresh: TableRefresh, columns: Columns) -> pa.Schema:
    """Return the Arrow schema of :func:`images`."""
    return pa.schema([(name, arrow_type(type_)) for name, type_ in _image_types(refresh, columns).items()])


def refresh_merge(
    columns: Columns, refresh: TableRefresh, computed: Collection[str], *, deletes: Deletes, moved_on: bool
) -> Merge:
    """Return how a table takes these records.

    :param computed: those of the columns fetched that no event carries.
    :param moved_on: whether the stream has had events applied since the fetch began.
    """
    if refresh.mode == "computed":
        return ColumnsMerge(columns, tuple(sorted(computed)), None)
    if refresh.mode == "columns":
        return ColumnsMerge(columns, refresh.columns, refresh.applied_sequence)
    return RefreshMerge(
        columns=columns,
        fetched=refresh.columns,
        computed=frozenset(computed),
        is_full=refresh.mode == "full",
        applied_sequence=refresh.applied_sequence,
        deletes=deletes,
        moved_on=moved_on,
    )


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


def _image_types(refresh: TableRefresh, columns: Columns) -> Columns:
    return {name: _ENVELOPE_TYPES[name] for name in IMAGE_ENVELOPE} | {name: columns[name] for name in refresh.columns}


def _typed(text: Any, type_: ColumnType) -> Any:
    """Return a column of text as one of ``type_``. A text that is no such value is an error, not null."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_type

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
