"""Iceberg catalog of an Airflow connection, with the tables of an output folder."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.arguments import find_connection
from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.redaction import quoted, remember_secrets, remember_user_info

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from airflow_provider_sfstream.tables.delta.table_location import TableLocation

log = logging.getLogger(__name__)

NAMESPACE = "salesforce"
_SECRET = re.compile("secret|password|token|credential|key|sas|auth", re.IGNORECASE)
_S3 = {
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "s3.region",
    "AWS_ENDPOINT_URL": "s3.endpoint",
}
"""Properties of pyiceberg by the options of delta-rs."""


def check_catalog(conn_id: str, namespace: str) -> None:
    """Check the connection and the namespace, before a job writes anything.

    :raises ConfigurationError: if the connection does not exist, or the namespace has an empty level.
    """
    catalog_properties(conn_id)
    if not all(level.strip() for level in namespace.split(".")):
        raise ConfigurationError(
            f"catalog_namespace={namespace!r} has an empty level. Set one or more names with dots between them. "
            "Nothing was written."
        )


def catalog_properties(conn_id: str) -> dict[str, str]:
    """Return the properties of a catalog: the connection's extra, and its fields as in Airflow's type ``iceberg``.

    :raises ConfigurationError: if the connection does not exist.
    """
    require_extra("iceberg")
    connection = find_connection(conn_id)
    if connection is None:
        raise ConfigurationError(
            f"The Airflow connection catalog_conn_id={conn_id!r} does not exist. Create it, with the properties of the "
            "Iceberg catalog in its extra. Nothing was written."
        )
    properties = {name: str(value) for name, value in connection.extra_dejson.items()}
    if connection.host:
        properties["uri"] = connection.host.rstrip("/")
    if connection.login and connection.password:
        properties["credential"] = f"{connection.login}:{connection.password}"
    remember_secrets(connection.password, *(value for name, value in properties.items() if _SECRET.search(name)))
    remember_user_info(properties.get("uri", ""))
    return properties


def catalog_tables(
    output_url: str, output_conn_id: str | None, catalog_conn_id: str, namespace: str, *, sync: bool
) -> Iterator[dict[str, Any]]:
    """Compare each table below ``output_url`` with its Iceberg table; yield the values of :class:`Mirrored`, or the
    ``error`` of the table.

    :param sync: also mirror the table.
    """
    from airflow_provider_sfstream.tables.iceberg.mirror import iceberg_tables

    check_catalog(catalog_conn_id, namespace)
    files = ObjectStorageFiles(output_conn_id)
    catalog = _open(catalog_conn_id, files.table_location(output_url))
    for table in iceberg_tables(files, files.url(output_url), catalog, namespace):
        try:
            state = table.mirror() if sync else table.state()
        except Exception as error:
            yield {"table": table.name, "is_current": False, "error": _text(error)}
        else:
            yield {"table": table.name, "is_current": state.is_current, "error": None, **asdict(state)}


def mirror_tables(output_url: str, output_conn_id: str | None, catalog_conn_id: str, namespace: str) -> dict[str, str]:
    """Mirror each table below ``output_url`` in a catalog. The Delta tables are complete without it: a failure is a
    warning, and the next call repairs the table.

    :return: the error of each table that is not up to date; that of the folder if no table could be compared.
    """
    errors: dict[str, str] = {}
    try:
        for row in catalog_tables(output_url, output_conn_id, catalog_conn_id, namespace, sync=True):
            if row["error"]:
                errors[row["table"]] = row["error"]
            else:
                log.info("%s in the Iceberg catalog has Delta version %d.", row["table"], row["delta_version"])
    except Exception as error:
        errors[output_url] = _text(error)
    for name, text in errors.items():
        log.warning(_NOT_CURRENT, name, text)
    return errors


_NOT_CURRENT = (
    "%s is not up to date in the Iceberg catalog: %s. The Delta tables are complete. The next job of these tables, or "
    "`sfstream catalog sync`, repairs the catalog."
)


def _open(conn_id: str, location: TableLocation) -> Catalog:
    from pyiceberg.catalog import load_catalog

    return load_catalog(conn_id, **{**storage_properties(location), **catalog_properties(conn_id)})


def storage_properties(location: TableLocation) -> dict[str, str]:
    """Return the properties with which pyiceberg accesses the storage of a folder."""
    return {_S3[name]: value for name, value in location.options.items() if name in _S3}


def _text(error: Exception) -> str:
    return f"{type(error).__name__} {quoted(str(error))}"
