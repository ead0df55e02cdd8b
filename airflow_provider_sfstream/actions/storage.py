"""Object storage on the worker, with Airflow's connections: paths, and the folders that arguments name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fsspec.implementations.local import LocalFileSystem

from airflow_provider_sfstream._airflow import storage_conn_id
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.storage import is_local, never_remember_listings
from airflow_provider_sfstream.redaction import has_credentials

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_sfstream.landing.catalog import LandingCatalog
    from airflow_provider_sfstream.landing.location import Landing


def storage_path(url: str, conn_id: str | None) -> Any:
    """Return the ``ObjectStoragePath`` of ``url``, whose folders are listed as they are now."""
    path = path_of_this_process(url, conn_id)
    never_remember_listings(path.fs)
    return path


def path_of_this_process(url: str, conn_id: str | None) -> ObjectStoragePath:
    """Return the path of ``url`` on a filesystem that this process may use.

    Airflow keeps one filesystem for each connection. That of an object store has a thread, and refuses to work in a
    process that was forked since, for example that of a listener of OpenLineage.

    :raises ValueError: if no filesystem serves the URL.
    """
    from airflow.sdk import ObjectStoragePath
    from airflow.sdk.io import attach

    # Airflow 3.1 takes None for a connection that was named, and forgets the one in the URL.
    named = {} if conn_id is None else {"conn_id": conn_id}
    path = ObjectStoragePath(url, **named)
    protocol, store_conn_id = path.protocol or "file", storage_conn_id(path)
    # Airflow would import the filesystems of all providers, a quarter of a second, to find this one.
    local = LocalFileSystem() if protocol == "file" and store_conn_id is None else None
    store = attach(protocol, store_conn_id, fs=local)
    if getattr(store.fs, "_pid", os.getpid()) == os.getpid():
        return path
    del store.fs  # the next access creates another one
    return ObjectStoragePath(url, **named)


def open_landing(landing_url: str, landing_conn_id: str | None) -> LandingCatalog:
    """Return the catalog of the landing at ``landing_url``, a URL or path that :class:`ObjectStoragePath` takes.

    :raises ConfigurationError: if the URL is empty or contains a credential, or no filesystem serves it.
    """
    from airflow_provider_sfstream.landing.catalog import LandingCatalog

    return LandingCatalog(open_folder("landing", landing_url, landing_conn_id))


def open_folder(name: str, url: str, conn_id: str | None) -> Landing:
    """Return the folder of the arguments ``{name}_url`` and ``{name}_conn_id``.

    :raises ConfigurationError: if the URL is empty or contains a credential, or no filesystem serves it.
    """
    from airflow_provider_sfstream.landing.location import Landing

    content = "windows" if name == "landing" else name
    if not isinstance(url, str) or not url.strip():
        raise ConfigurationError(
            f"{name}_url is empty. Set the URL of the folder for {content}, for example s3://lake/{name}."
        )
    if has_credentials(url):
        raise ConfigurationError(
            f"{name}_url contains a password or a signature. Store the credentials in an Airflow connection and set "
            f"{name}_conn_id. Nothing was written."
        )
    try:
        path = path_of_this_process(url, conn_id)
        filesystem = path.fs
    except (ValueError, ImportError, KeyError) as error:
        raise ConfigurationError(
            f"{name}_url={url!r} cannot be used: {error}. Install the provider of this URL scheme, or correct the URL. "
            "Nothing was written."
        ) from error
    # From the URL: Airflow does not resolve ~, and Airflow 3.1 puts a relative local path below the root folder.
    has_conn_id = "@" in url.partition("://")[2]
    base = filesystem._strip_protocol(path.path if has_conn_id else url) if is_local(filesystem) else path.path
    # Without the connection id, which only Airflow's own notation has (s3://conn@bucket).
    return Landing(filesystem, base, filesystem.unstrip_protocol(base))
