"""Replay stores by the argument ``replay_store``, the hook of the table store's database, and the status store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from airflow_provider_sfstream._airflow import conf
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.replay_stores.kinds import STORE_KINDS, ReplayStoreKind

if TYPE_CHECKING:
    from sqlalchemy import URL

    from airflow_provider_sfstream.landing.catalog import LandingCatalog
    from airflow_provider_sfstream.monitoring.status_store import StatusStore
    from airflow_provider_sfstream.replay_stores.base import ReplayStore
    from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore


class ReplayStoreHook(BaseHook):
    """Open the table replay store of a database connection (``sqlite``, ``postgres`` or ``mysql``).

    This package owns the tables. Tasks cannot reach Airflow's metadata database, so use another database or schema.

    :param replay_store_conn_id: the Airflow connection of the database.
    """

    conn_name_attr = "replay_store_conn_id"
    default_conn_name = "sfstream_replay_store"
    hook_name = "Salesforce replay store"

    def __init__(self, replay_store_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.replay_store_conn_id = replay_store_conn_id

    def get_conn(self) -> TableReplayStore:
        """Return the store, after creating or upgrading its tables if necessary.

        :raises ConfigurationError: if the connection is not for a supported database.
        :raises ReplayStoreError: if the database cannot be reached.
        """
        from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore

        return TableReplayStore(self.url())

    def url(self) -> URL:
        """Return the database's SQLAlchemy URL, which may hold a password."""
        from airflow_provider_sfstream.replay_stores.table.urls import sqlalchemy_url

        connection = self.get_connection(self.replay_store_conn_id)
        try:
            return sqlalchemy_url(
                connection.conn_type or "",
                connection.host,
                connection.port,
                connection.schema,
                connection.login,
                connection.password,
                connection.extra_dejson,
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"Airflow connection {self.replay_store_conn_id!r}: {error}") from None


def open_replay_store(kind: ReplayStoreKind, conn_id: str, catalog: LandingCatalog | None = None) -> ReplayStore:
    """Return the replay store that an argument names. Blocks: it may read a connection and contact a database.

    :param kind: name of the store.
    :param conn_id: Airflow connection of the database; only for ``"table"``.
    :param catalog: the landing. The Variable store requires it for all operations except those on positions,
        ``"landing"`` for all.
    :raises ConfigurationError: if ``kind`` is ``"landing"`` and there is no landing.
    """
    return STORE_KINDS[kind].open(catalog, ReplayStoreHook(conn_id).url)


def status_conn_id() -> str | None:
    """Return the Airflow connection of the status store's database; ``None``: status is stored in Airflow Variables."""
    return conf.get("sfstream", "status_conn_id", fallback="").strip() or None


def open_status_store() -> StatusStore:
    """Return the store of status documents. Blocks: it may read a connection."""
    conn_id = status_conn_id()
    if conn_id is None:
        from airflow_provider_sfstream.monitoring.status_store import VariableStatusStore

        return VariableStatusStore()
    from airflow_provider_sfstream.monitoring.table_status import TableStatusStore

    return TableStatusStore(ReplayStoreHook(conn_id).url())
