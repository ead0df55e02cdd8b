"""Kinds of replay stores, by the argument ``replay_store``. A new store is registered here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from airflow_provider_sfstream.exceptions import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy import URL

    from airflow_provider_sfstream.landing.catalog import LandingCatalog
    from airflow_provider_sfstream.replay_stores.base import ReplayStore

PositionStoreKind = Literal["variable", "table"]
"""The stores that can read a stream's position without its landing."""
ReplayStoreKind = Literal[PositionStoreKind, "landing"]


def _in_variables(catalog: LandingCatalog | None, _: Callable[[], URL]) -> ReplayStore:
    from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore

    return DocumentReplayStore(catalog)


def _in_table(_: LandingCatalog | None, database_url: Callable[[], URL]) -> ReplayStore:
    from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore

    return TableReplayStore(database_url())


def _in_landing(catalog: LandingCatalog | None, _: Callable[[], URL]) -> ReplayStore:
    from airflow_provider_sfstream.landing.replaced_files import PositionFiles
    from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore

    if catalog is None:
        raise ConfigurationError(
            'replay_store="landing" stores positions in the landing, and no landing is set. Nothing was moved.'
        )
    return DocumentReplayStore(catalog, PositionFiles(catalog.landing))


class StoreKind(NamedTuple):
    """A kind of replay store: its documentation, and the function that opens it.

    The arguments of ``open`` are the landing, if there is one, and a function that reads the URL of the database from
    the Airflow connection ``replay_store_conn_id``. Imports of ``open`` stay inside of it: DAG files load this module.
    """

    description: str
    open: Callable[[LandingCatalog | None, Callable[[], URL]], ReplayStore]


STORE_KINDS: Mapping[ReplayStoreKind, StoreKind] = {
    "variable": StoreKind("an Airflow Variable (one writer at a time)", _in_variables),
    "table": StoreKind("a database table that is safe with concurrent runs", _in_table),
    "landing": StoreKind("a file of the landing (one writer at a time)", _in_landing),
}
POSITION_STORES: tuple[str, ...] = get_args(PositionStoreKind)
REPLAY_STORES: tuple[ReplayStoreKind, ...] = tuple(STORE_KINDS)
