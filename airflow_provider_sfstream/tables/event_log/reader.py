"""Reader for event log tables."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles


def read_event_log(spark: Any, output_url: str, table: str, *, version: int | None = None) -> Any:
    """Return the rows of a Delta table of the event log as a DataFrame, without Delta's own package for Spark.

    Each row has all columns of the table; a column that an event's schema lacked is null.

    :param spark: a ``SparkSession`` (not Spark Connect).
    :param output_url: the folder of the tables.
    :param table: name of the event type, for example ``"Order__e"``, or ``"_quarantine"``.
    :param version: version in the table's Delta history; ``None`` for the newest.
    :raises ConfigurationError: if the table or version does not exist, or other writers have enabled table features
        that require Delta's own reader.
    """
    from pyspark.sql.types import StructType

    files = HadoopFiles(spark)
    url = f"{files.url(output_url)}/{table}"
    read = DeltaTableLog(files.table_location(url)).version(version)
    if read.number < 0:
        raise ConfigurationError(f"There is no Delta table {table} below {output_url}.")
    schema = StructType.fromJson(json.loads(read.schema_json))
    if not read.files:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).option("basePath", url).parquet(*(f"{url}/{path}" for path in read.files))
    return rows.select(*schema.names)
