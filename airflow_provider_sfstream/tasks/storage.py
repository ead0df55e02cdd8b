"""Paths of object storage on the worker, as Airflow's connections lead there."""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.landing.storage import never_remember_listings


def storage_path(url: str, conn_id: str | None) -> Any:
    """Return the ``ObjectStoragePath`` of ``url``, whose folders are listed as they are now.

    :param conn_id: Airflow connection of the storage, where it needs one.
    """
    from airflow.sdk import ObjectStoragePath

    path = ObjectStoragePath(url, conn_id=conn_id)
    never_remember_listings(path.fs)
    return path
