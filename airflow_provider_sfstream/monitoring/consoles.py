"""Addresses under which a browser shows what a URL of storage, or an application of Spark, stands for."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from airflow_provider_sfstream.redaction import has_credentials

_OWN_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
HISTORY_SERVER = "history_server"
"""Key in the extra of a Spark connection: the address of the history server."""
_YARN = "yarn_resourcemanager_webapp_address"
"""The key by which Airflow's own Spark provider finds YARN."""
_MASTER = "master_ui"
"""Key in the extra of a Spark connection: the address of the web UI of a standalone master."""


def file_page(url: str, storage_extra: dict[str, Any]) -> str:
    """Return where a browser shows a file; an empty text where nothing is known that does.

    :param url: of the file, without a connection in it.
    :param storage_extra: of the Airflow connection of the storage.
    """
    if has_credentials(url):
        return ""
    scheme, _, place = url.partition("://")
    bucket, _, key = place.partition("/")
    if scheme in ("http", "https"):
        return url
    if scheme in ("s3", "s3a") and not _is_another_s3(storage_extra):
        return f"https://console.aws.amazon.com/s3/object/{quote(bucket)}?prefix={quote(key, safe='')}"
    if scheme in ("gs", "gcs"):
        return f"https://console.cloud.google.com/storage/browser/_details/{quote(bucket)}/{quote(key)}"
    return ""


def application_page(application_id: str, spark_extra: dict[str, Any]) -> str:
    """Return where a browser shows an application of Spark: its history server's page, else YARN's or its master's,
    which lead on to its own UI as long as it runs; an empty text where the connection names none.

    :param application_id: as Spark gives it.
    :param spark_extra: of the Airflow connection of Spark.
    """
    history, yarn, master = (_address(spark_extra.get(key)) for key in (HISTORY_SERVER, _YARN, _MASTER))
    quoted = quote(application_id, safe="")
    if history:
        return f"{history}/history/{quoted}/jobs/"
    if yarn and application_id.startswith("application_"):
        return f"{yarn}/cluster/app/{quoted}"
    if master and application_id.startswith("app-"):
        return f"{master}/app/?appId={quoted}"
    return ""


def _is_another_s3(extra: dict[str, Any]) -> bool:
    """Tell whether an S3 is not AWS's own, whose console would lead nowhere."""
    services = extra.get("service_config")
    of_s3 = services.get("s3") if isinstance(services, dict) else None
    endpoints = [extra.get("endpoint_url"), of_s3.get("endpoint_url") if isinstance(of_s3, dict) else None]
    return any(endpoints) or any(os.environ.get(name) for name in _OWN_ENDPOINTS)


def _address(given: Any) -> str:
    """Return the address of a server without a slash at its end; an empty text if it is none, or has a password."""
    text = given.strip().rstrip("/") if isinstance(given, str) else ""
    address = text if not text or "://" in text else f"http://{text}"
    return address if address.startswith(("http://", "https://")) and not has_credentials(address) else ""
