"""Which landed rows are the same event: same org, topic and replay ID, in the windows at hand or in the table already.

Rows with one replay ID that follow each other in one window are several events: Salesforce makes them of a change of
several records on a channel that enriches or filters, and drains land them together. They stay, or go, together.
Only narrow columns are read for this. Rows are told apart by their ``place``, a number made of window and ordinal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_provider_sfstream.tables.rows.event_batches import WindowReference
from airflow_provider_sfstream.tables.runner.engine import PLACES, TableKeys
from airflow_provider_sfstream.tables.runner.spark_frames import SparkFrame, union


@dataclass(frozen=True)
class Duplicates:
    """``count`` landed rows are duplicates. ``copies``: the ``place`` of each row of an event that has several, and
    whether it is one that ``stays``; ``None`` where no event has."""

    count: int
    copies: Any | None

    def remove_from(self, rows: SparkFrame) -> SparkFrame:
        """Return the landed rows without the duplicates."""
        return rows if self.copies is None else self._joined(rows, self.copies.where("NOT stays"), "left_anti")

    def chosen(self, rows: SparkFrame) -> SparkFrame | None:
        """Return the landed rows that stay, of events of which another landed row does not; ``None`` if there are
        none."""
        return None if self.copies is None else self._joined(rows, self.copies.where("stays"), "left_semi")

    def _joined(self, rows: SparkFrame, copies: Any, how: str) -> SparkFrame:
        return rows.of(rows.rows.withColumn("place", _place()).join(copies, "place", how).drop("place"))


def find_duplicates(
    rows: SparkFrame,
    keys: TableKeys,
    windows: tuple[WindowReference, ...],
    unreadable: Callable[[SparkFrame], list[SparkFrame]],
) -> Duplicates:
    """Find the landed rows that must not be written, as :meth:`Engine.find_duplicates` says."""
    known: Any | None = None
    while True:
        duplicates = _found(rows.rows, _table_keys(keys), windows, known)
        chosen = duplicates.chosen(rows)
        if chosen is None:
            return duplicates
        outcasts = union(frame.rows for frame in unreadable(chosen))
        found = outcasts.withColumn("window", _number_of_partition(windows)).select(_place().alias("place"))
        found = (found if known is None else found.join(known, "place", "left_anti")).persist()
        if found.isEmpty():
            return duplicates
        known = found if known is None else known.unionByName(found)


def _table_keys(keys: TableKeys) -> Any | None:
    """Return the rows of the tables with ``window_id``."""
    parts = [
        frame.rows.selectExpr("_org_id org_id", "_topic topic", "_replay_id replay_id", f"{window} window_id")
        for frames, window in ((keys.with_window, "window_id"), (keys.others, "''"))
        for frame in frames
    ]
    return union(parts) if parts else None


def _found(
    rows: Any, table_keys: Any | None, windows: tuple[WindowReference, ...], unreadable: Any | None
) -> Duplicates:
    """Find the landed rows that must not be written, those ``unreadable`` (places, each once) being known so far."""
    from pyspark.sql import functions as f

    landed = rows.select(
        _stream_of_window(windows).alias("stream"),
        "replay_id",
        _place().alias("place"),
        f.lit(None).cast("int").alias("owner"),
    )
    keys = landed if table_keys is None else landed.unionByName(_owned(table_keys, windows))
    # Numbers only, so that Spark aggregates by hash and not by sorting.
    events = keys.groupBy("stream", "replay_id").agg(
        f.count("place").alias("landed"),
        f.max("owner").alias("owner"),
        f.max((f.col("owner") < 0).cast("int")).alias("foreign"),
        (f.max("place") - f.min("place") + 1).alias("span"),
    )
    has_copies = (f.col("span") != f.col("landed")) | f.coalesce(f.col("foreign") == 1, f.lit(False))
    found = (
        events.where("landed > 0")
        .agg(
            f.coalesce(f.max(has_copies), f.lit(False)).alias("has_copies"),
            f.coalesce(f.sum(f.when(f.col("replay_id").isNull(), f.col("landed"))), f.lit(0)).alias("nameless"),
        )
        .first()
    )
    if found["nameless"]:
        raise ValueError(f"{found['nameless']} landed rows have no replay ID. Nothing was written.")
    if not found["has_copies"]:
        return Duplicates(0, None)
    copies = _copies(landed, events.where(has_copies), unreadable)
    return Duplicates(copies.where("NOT stays").count(), copies)


def _copies(landed: Any, events: Any, unreadable: Any | None) -> Any:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    suspects = landed.drop("owner").join(events, ["stream", "replay_id"])
    readable = f.lit(True)
    if unreadable is not None:
        suspects = suspects.join(unreadable.withColumn("readable", f.lit(False)), "place", "left")
        readable = f.coalesce("readable", f.lit(True))
    in_table = f.col("place").between(f.col("owner") * f.lit(PLACES), (f.col("owner") + 1) * f.lit(PLACES) - 1)
    order = Window.partitionBy("stream", "replay_id").orderBy(
        readable.desc(), f.coalesce(in_table, f.lit(False)).desc(), "place"
    )
    # The same number for rows that follow each other, and another one for others.
    follows = f.col("place") - f.row_number().over(Window.partitionBy("stream", "replay_id").orderBy("place"))
    stays = (f.col("follows") == f.first("follows").over(order)) & ~f.coalesce(f.col("foreign") == 1, f.lit(False))
    return suspects.withColumn("follows", follows).select("place", stays.alias("stays")).persist()


def _place() -> Any:
    from pyspark.sql import functions as f

    return f.col("window").cast("long") * f.lit(PLACES) + f.col("ordinal")


def _number_of_partition(windows: tuple[WindowReference, ...]) -> Any:
    """Return the number of the running window that a partition of the table is of; null for another's."""
    from pyspark.sql import functions as f

    numbers = [f.lit(value) for number, window in enumerate(windows) for value in (window.partition, number)]
    return f.create_map(*numbers)[f.col("window_id")]


def _streams(windows: tuple[WindowReference, ...]) -> list[tuple[str, str]]:
    return sorted({(window.org_id, window.topic) for window in windows})


def _stream_of_window(windows: tuple[WindowReference, ...]) -> Any:
    from pyspark.sql import functions as f

    streams = _streams(windows)
    numbers = [streams.index((window.org_id, window.topic)) for window in windows]
    return f.element_at(f.array(*map(f.lit, numbers)), f.col("window") + 1)


def _owned(table_keys: Any, windows: tuple[WindowReference, ...]) -> Any:
    """Return table rows as keys: ``owner`` is the number of the running window that wrote one, or -1 for another's."""
    from pyspark.sql import functions as f

    owner = f.coalesce(_number_of_partition(windows), f.lit(-1))
    parts = [
        table_keys.where((f.col("org_id") == org_id) & (f.col("topic") == topic)).select(
            f.lit(number).alias("stream"),
            "replay_id",
            f.lit(None).cast("long").alias("place"),
            owner.alias("owner"),
        )
        for number, (org_id, topic) in enumerate(_streams(windows))
    ]
    return union(parts)
