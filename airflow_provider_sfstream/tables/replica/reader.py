"""Read access to replica tables without a jar: the files of the versions that a snapshot names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles
from airflow_provider_sfstream.tables.replica.delta_sink import HISTORY
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.history_batches import holding_versions, version_schema
from airflow_provider_sfstream.tables.rows.merging import table_schema
from airflow_provider_sfstream.tables.runner.on_spark import read_files


def read_replica(spark: Any, output_url: str, table: str, *, snapshot: int | None = None) -> Any:
    """Return the rows of a replica table as a DataFrame.

    All tables read at one ``snapshot`` show one moment: a transaction on several objects is in all or in none.

    :param spark: a ``SparkSession``.
    :param output_url: the replica's folder.
    :param table: API name of the Salesforce object, for example ``"Account"``.
    :param snapshot: number of the snapshot; ``None`` for the current one.
    :raises ConfigurationError: if there is no table of this name.
    :raises FileNotFoundError: if the snapshot was removed.
    """
    files, base, state = _table(spark, output_url, table, snapshot)
    return read_version(spark, files, base, table, state.version, table_schema(dict(state.columns)))


def read_history(spark: Any, output_url: str, table: str, *, snapshot: int | None = None) -> Any:
    """Return every known version of a table's records, as a DataFrame.

    The columns are those of :data:`~airflow_provider_sfstream.tables.rows.history_batches.VERSION_ENVELOPE`,
    ``_is_current`` (``_valid_to`` is null) and the record's own. A version is valid from ``_valid_from`` (inclusive) to
    ``_valid_to`` (exclusive), by commit times. Versions of one record are ordered by ``_sequence``, then by
    ``_valid_from``.

    :param spark: a ``SparkSession``.
    :param output_url: the replica's folder.
    :param table: API name of the Salesforce object, for example ``"Account"``.
    :param snapshot: number of the snapshot; ``None`` for the current one.
    :raises ConfigurationError: if there is no table of this name, or it has no history.
    :raises FileNotFoundError: if the snapshot was removed.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    files, base, state = _table(spark, output_url, table, snapshot)
    if state.history is None:
        raise ConfigurationError(
            f"The table {table} below {output_url} has no history. Run the job with --history to store versions from "
            "then on. Versions that ended before that run are not available."
        )
    columns = dict(state.columns)
    rows = read_version(spark, files, base, table, state.version, table_schema(columns))
    schema = version_schema(columns)
    current_versions = rows.mapInArrow(holding_versions(columns), from_arrow_schema(schema))
    ended_versions = read_version(spark, files, base, HISTORY.format(table), state.history, schema)
    versions = current_versions.unionByName(ended_versions).withColumn("_is_current", f.col("_valid_to").isNull())
    record_columns = [name for name in schema.names if name in columns]
    return versions.select(*(name for name in schema.names if name not in columns), "_is_current", *record_columns)


def read_version(spark: Any, files: HadoopFiles, base: str, name: str, number: int, schema: pa.Schema) -> Any:
    """Return the rows of a version of a table as a DataFrame.

    :param base: the output folder, as Hadoop names it.
    :param number: version number; -1 for no version.
    """
    log = DeltaTableLog(files.table_location(base).below(name))
    paths = log.version(number).files if number >= 0 else ()
    return read_files(spark, f"{base}/{name}", paths, schema)


def _table(spark: Any, output_url: str, table: str, snapshot: int | None) -> tuple[HadoopFiles, str, TableState]:
    files = HadoopFiles(spark)
    base = files.url(output_url)
    store = SnapshotStore(files, base)
    tables = (store.current() if snapshot is None else store.read(snapshot)).tables
    if table not in tables:
        names = ", ".join(sorted(tables)) or "none yet"
        raise ConfigurationError(f"The replica below {output_url} has no table {table}. Its tables: {names}.")
    return files, base, tables[table]
