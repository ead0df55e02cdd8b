"""The two ways in which a table's rows become files. Both replace whole window partitions, and tell how many rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.event_log.tables import EventTables, Partition
from airflow_provider_sfstream.spark.rows.event_batches import Rows, TablePlan
from airflow_provider_sfstream.spark.storage.arrow_files import WRITTEN, write_files

WriterChoice = Literal["auto", "arrow", "spark"]
TableWriter: TypeAlias = Callable[[EventTables, str, Any, Rows, TablePlan], int]


def choose_writer(choice: WriterChoice, master: str, tables: EventTables) -> TableWriter:
    """Return the writer for ``choice``.

    :raises ConfigurationError: if ``"arrow"`` is asked for and the tables are not in a file system.
    """
    in_files = tables.local_path() is not None
    if choice == "arrow" and not in_files:
        raise ConfigurationError(
            f"{tables.base} is not in a file system, where executors could write by themselves. Leave out "
            "--writer arrow; nothing was written."
        )
    return (
        write_with_arrow
        if choice == "arrow" or (choice == "auto" and in_files and _is_local(master))
        else write_with_spark
    )


def write_with_spark(tables: EventTables, table: str, rows: Any, decode: Rows, plan: TablePlan) -> int:
    """Let Spark write: slower, and wherever it can."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    observation = Observation()
    decoded = rows.mapInArrow(decode, from_arrow_schema(plan.arrow_schema()))
    tables.replace(table, decoded.observe(observation, f.count(f.lit(1)).alias("rows")))
    return int(observation.get["rows"])


def write_with_arrow(tables: EventTables, table: str, rows: Any, decode: Rows, plan: TablePlan) -> int:
    """Let the executors' Python write, into a folder that they share with the driver."""
    from pyspark.sql.pandas.types import from_arrow_schema

    staged, folder = tables.stage(table)
    written = rows.mapInArrow(write_files(decode, folder), from_arrow_schema(WRITTEN)).collect()
    files: dict[Partition, list[str]] = {}
    for file in written:
        files.setdefault((file["event_date"], file["window_id"]), []).append(file["name"])
    tables.replace_with_files(table, staged, files)
    return sum(file["rows"] for file in written)


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")
