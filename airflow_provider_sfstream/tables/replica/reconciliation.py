"""A table compared with all records of the org: what became of each, and checksums of both sides by id range.

A comparison is as of a moment: that of the last change that the table has. A record that changed later is not compared,
since its event may not have come yet; nor is a dirty row, of which the replica says so itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, get_args

import pyarrow as pa

from airflow_provider_sfstream.tables.job_config import Deletes

Verdict = Literal["equal", "different", "missing", "gone", "changed_since", "dirty"]
"""What a comparison says of a record: its row has the same values or others, there is no row for it, or no record for a
row that is not deleted; it was changed after the moment of the comparison; its row is dirty."""

RANGE_LETTERS = 12
"""Ids with the same first letters are a range: at most 62^3, made one after another.

Reports and metrics name a range by these letters, never by a whole id: an erasure cannot reach every copy of a result.
"""

IDS = pa.schema([("Id", pa.string())])
"""Layout of what :func:`wrong` gives."""
_WRONG = ("different", "missing", "gone")


def moment(rows: Any) -> Any:
    """Return when the last change was committed that a table's rows have, ``None`` if they have none."""
    from pyspark.sql import functions as f

    return rows.agg(f.max("_commit_time")).first()[0]


def verdicts(rows: Any, images: Any, columns: Collection[str], applied_sequence: int, *, deletes: Deletes) -> Any:
    """Return ``Id``, ``verdict``, and the checksums ``org`` and ``replica`` of each record that either side has.

    :param rows: of the table.
    :param images: the records, as they were fetched.
    :param columns: what is compared, beside whether a record is deleted.
    :param applied_sequence: of the last event applied when the fetch began: a row that has seen later ones is not
        compared.
    :param deletes: with ``"hard"``, a deleted record has no row.
    """
    from pyspark.sql import functions as f

    names = ["_deleted", *columns]
    # Salesforce keeps SystemModstamp to the second: what changed in the second of the moment may have changed after it.
    since = rows.agg(f.date_trunc("second", f.max("_commit_time")).alias("_moment"))
    base = rows.select("Id", "_dirty", "_sequence", "_deleted", _checksum(names).alias("replica"))
    record = images.select("Id", "_refreshed_at", f.col("_deleted").alias("_binned"), _checksum(names).alias("org"))
    both = base.alias("row").join(record.alias("record"), "Id", "full_outer").crossJoin(f.broadcast(since))
    here, there = f.col("replica").isNotNull(), f.col("org").isNotNull()
    later = f.coalesce(f.col("_refreshed_at") >= f.col("_moment"), f.col("_moment").isNull())
    later = later | f.coalesce(f.col("_sequence") > applied_sequence, f.lit(False))
    no_row_is_right = ~here & f.lit(deletes == "hard") & f.col("_binned")
    no_record_is_right = ~there & f.coalesce(f.col("_deleted"), f.lit(False))
    verdict = (
        f.when(f.coalesce(f.col("_dirty"), f.lit(False)), "dirty")
        .when(f.col("org") == f.col("replica"), "equal")
        .when(no_row_is_right | no_record_is_right, None)
        .when(there & later, "changed_since")
        .when(~there & f.coalesce(f.col("_sequence") > applied_sequence, f.lit(False)), "changed_since")
        .when(~here, "missing")
        .when(~there, "gone")
        .otherwise("different")
    )
    return both.select("Id", verdict.alias("verdict"), "org", "replica").where("verdict IS NOT NULL")


def ranges(compared: Any) -> list[dict[str, Any]]:
    """Return the ranges of ids in order: ``id_prefix`` (the first letters of the ids), the number of records of each
    verdict, and the checksum of either side over the compared records, as hex. Equal checksums: nothing is wrong.

    :param compared: as :func:`verdicts` gives it.
    """
    from pyspark.sql import functions as f

    was_compared = f.col("verdict").isin("equal", *_WRONG)
    counts = [f.count_if(f.col("verdict") == verdict).alias(verdict) for verdict in get_args(Verdict)]
    sums = [f.hex(f.coalesce(f.bit_xor(f.when(was_compared, f.col(side))), f.lit(0))) for side in ("org", "replica")]
    grouped = compared.groupBy(f.substring("Id", 1, RANGE_LETTERS).alias("id_prefix")).agg(
        *counts,
        *(each.alias(f"{side}_checksum") for each, side in zip(sums, ("org", "replica"), strict=True)),
    )
    return [row.asDict() for row in grouped.orderBy("id_prefix").collect()]


def totals(found: Collection[dict[str, Any]]) -> dict[str, int]:
    """Return how many records there are of each verdict in all ranges."""
    return {verdict: sum(each[verdict] for each in found) for verdict in get_args(Verdict)}


def wrong(compared: Any) -> Any:
    """Return the ids of the records whose rows are not as they should be."""
    from pyspark.sql import functions as f

    return compared.where(f.col("verdict").isin(*_WRONG)).select("Id")


def _checksum(names: Collection[str]) -> Any:
    from pyspark.sql import functions as f

    # A hash leaves nulls out, and would not tell (null, 1) from (1, null).
    values = [f.col(f"`{name}`") for name in names]
    return f.xxhash64(*values, *(value.isNull() for value in values))
