"""The key of hashes: from an Airflow connection, to the driver of a Spark job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE


def hash_key(hash_conn_id: str | None) -> str | None:
    """Return the password of an Airflow connection, ``None`` where none is named, or it has none.

    :raises ConfigurationError: if there is no such connection.
    """
    if not hash_conn_id:
        return None
    from airflow.sdk import Connection

    from airflow_provider_sfstream._airflow import AirflowNotFoundException

    try:
        connection: Any = Connection.get(hash_conn_id)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"There is no Airflow connection hash_conn_id={hash_conn_id!r}, whose password is the key of hashes. Make "
            "it; nothing was written."
        ) from None
    password: str | None = connection.password
    return password


@contextmanager
def key_in_environment(key: str | None) -> Iterator[None]:
    """Give the key to the processes that are started meanwhile. An argument would show it to ``ps``."""
    import os

    if not key:
        yield
        return
    os.environ[HASH_KEY_VARIABLE] = key
    try:
        yield
    finally:
        del os.environ[HASH_KEY_VARIABLE]
