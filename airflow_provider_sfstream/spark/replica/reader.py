"""Replica tables as their readers see them."""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.replica.files import ReplicaFiles
from airflow_provider_sfstream.spark.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.spark.replica.snapshots import Snapshot, TableState
from airflow_provider_sfstream.spark.rows.replica_rows import BUCKET
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles


def read_replica(spark: Any, output_url: str, table: str, *, snapshot: int | None = None) -> Any:
    """Return the rows of a Parquet replica table as a DataFrame.

    All tables read at one ``snapshot`` are of one moment: transactions over several objects are in all or in none.

    :param spark: a ``SparkSession``.
    :param output_url: the replica's folder.
    :param table: API name of the Salesforce object, for example ``"Account"``.
    :param snapshot: number of the snapshot; ``None`` for the current one.
    :raises ConfigurationError: if there is no such table, or it is kept in another format.
    :raises FileNotFoundError: if the snapshot is not kept any longer.
    """
    files = HadoopFiles(spark)
    base = files.url(output_url)
    store = SnapshotStore(files, base)
    state = table_of(store.current() if snapshot is None else store.read(snapshot), table, output_url)
    if state.table_format != "parquet":
        raise ConfigurationError(f"{table} below {output_url} is a table of {state.table_format}: read it as one.")
    by_bucket = {bucket: list(names) for bucket, names in state.files.items()}
    return ReplicaFiles(spark, files, base).read(table, by_bucket, state.columns.columns).drop(BUCKET)


def table_of(snapshot: Snapshot, table: str, where: str) -> TableState:
    """Return one table of a snapshot.

    :raises ConfigurationError: if there is none of that name.
    """
    try:
        return snapshot.tables[table]
    except KeyError:
        names = ", ".join(sorted(snapshot.tables)) or "no table yet"
        raise ConfigurationError(f"There is no replica of {table} below {where}; there is {names}.") from None
