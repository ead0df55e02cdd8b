"""Paths of object storage on the worker, as Airflow's connections lead there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import storage_conn_id
from airflow_provider_sfstream.landing.storage import never_remember_listings

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath


def storage_path(url: str, conn_id: str | None) -> Any:
    """Return the ``ObjectStoragePath`` of ``url``, whose folders are listed as they are now.

    :param conn_id: Airflow connection of the storage, where it needs one.
    """
    path = path_of_this_process(url, conn_id)
    never_remember_listings(path.fs)
    return path


def path_of_this_process(url: str, conn_id: str | None) -> ObjectStoragePath:
    """Return the path of ``url`` on a filesystem that this process may use.

    Airflow keeps one filesystem for each connection. One of an object store has a thread, which is not in a process
    that was forked since, and refuses to work there: as where a listener of OpenLineage asks for lineage.

    :raises ValueError: if no filesystem serves the URL.
    """
    from airflow.sdk import ObjectStoragePath
    from airflow.sdk.io import attach

    # Airflow 3.1 takes None for a connection that was named, and forgets the one in the URL.
    named = {} if conn_id is None else {"conn_id": conn_id}
    path = ObjectStoragePath(url, **named)
    store = attach(path.protocol or "file", storage_conn_id(path))
    if getattr(store.fs, "_pid", os.getpid()) == os.getpid():
        return path
    del store.fs  # it is made anew when it is asked for
    return ObjectStoragePath(url, **named)
