"""Store of the status of streams, from Airflow's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_sfstream._airflow import conf
from airflow_provider_sfstream.hooks.replay_store import ReplayStoreHook

if TYPE_CHECKING:
    from airflow_provider_sfstream.monitoring.status_store import StatusStore
    from airflow_provider_sfstream.monitoring.table_status import TableStatusStore


def status_conn_id() -> str | None:
    """Return the Airflow connection of the status store's database; ``None``: status is stored in Airflow Variables."""
    return conf.get("sfstream", "status_conn_id", fallback="").strip() or None


def open_status_store() -> StatusStore:
    """Return the store of status documents. Blocks: it may read a connection.

    :raises ConfigurationError: if the connection is not for a supported database.
    """
    from airflow_provider_sfstream.monitoring.status_store import VariableStatusStore

    conn_id = status_conn_id()
    return VariableStatusStore() if conn_id is None else table_status_store(conn_id)


def table_status_store(conn_id: str) -> TableStatusStore:
    """Return the store in the database of an Airflow connection.

    :raises ConfigurationError: if the connection is not for a supported database.
    """
    from airflow_provider_sfstream.monitoring.table_status import TableStatusStore

    return TableStatusStore(ReplayStoreHook(conn_id).url())
