"""Links of this package's tasks in the UI, and URLs of web pages of stored files and of Spark applications.

Airflow reads the links once, in the task's process at the end of a try, and stores each as an XCom. An unknown link is
an empty text, which the UI shows as a disabled button. For links that are useful earlier the task writes the XCom
(:func:`show_now`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from airflow_provider_sfstream._airflow import AirflowNotFoundException
from airflow_provider_sfstream.monitoring.pages import stream_url, task_url
from airflow_provider_sfstream.redaction import has_credentials

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

_DEFAULT_STORAGE = "aws_default"
"""The default connection of Airflow's S3 filesystem."""

GetLink = Callable[..., str]
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
HISTORY_SERVER = "history_server"
"""Key in the extra of a Spark connection: the address of the history server."""
_YARN = "yarn_resourcemanager_webapp_address"
"""The key of YARN's address in Airflow's Spark provider."""
_MASTER = "master_ui"
"""Key in the extra of a Spark connection: the address of the web UI of a standalone master."""


def _empty_if_unknown(get_link: GetLink) -> GetLink:
    """Return an empty text in place of any error: Airflow would write a traceback into the log of an ended task."""

    @wraps(get_link)
    def guarded(self: BaseOperatorLink, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        try:
            return get_link(self, operator, ti_key=ti_key)
        except Exception as error:
            operator.log.debug("The link %r is not available: %s", self.name, type(error).__name__)
            return ""

    return guarded


class StreamLink(BaseOperatorLink):
    """Link to the page of the stream that a task drains, waits for, or has windows of."""

    name = "Stream"

    @_empty_if_unknown
    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return its URL; empty if the task has windows of several streams, or only their manifests."""
        uri = operator.stream_uri
        return "" if uri is None else stream_url(uri)


class ManifestLink(BaseOperatorLink):
    """Link to the manifest of the window that a task landed or received."""

    name = "Manifest"

    @_empty_if_unknown
    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the URL of its web page; empty if there is none, or if there are several windows."""
        manifests = operator.window_manifests
        if len(manifests) != 1:
            return ""
        return file_page(manifests[0], _extra_of(getattr(operator, "landing_conn_id", None) or _DEFAULT_STORAGE))


class PreviousWindowLink(BaseOperatorLink):
    """Link to the task run that landed the previous window."""

    name = "Previous window"

    @_empty_if_unknown
    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the URL of its page; empty for the first window of a stream, and for intervals."""
        manifest = operator.previous_manifest()
        return "" if manifest is None else task_url(manifest.window.run)


class SparkUILink(BaseOperatorLink):
    """Link to the page of the Spark application that a task submitted, if its connection names a server of pages."""

    name = "Spark UI"

    @_empty_if_unknown
    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return its URL; empty if no application started, or no server has a page of it."""
        application = operator.spark_application
        return "" if application is None else application_page(application, _extra_of(operator.spark_conn_id))


def show_now(link: BaseOperatorLink, operator: BaseOperator, task_instance: Any) -> None:
    """Show a link of a running task, if its URL is already known."""
    try:
        if address := link.get_link(operator, ti_key=task_instance):
            task_instance.xcom_push(key=link.xcom_key, value=address)
    except Exception as error:  # must not fail the task; Airflow reads the link again at the end of the try
        operator.log.debug("The link %r cannot be shown yet: %s", link.name, type(error).__name__)


def _extra_of(conn_id: str) -> dict[str, Any]:
    from airflow.sdk import Connection

    try:
        extra: dict[str, Any] = Connection.get(conn_id).extra_dejson
    except AirflowNotFoundException:
        return {}
    return extra


def file_page(url: str, storage_extra: dict[str, Any]) -> str:
    """Return the URL of a file's web page; an empty text if none is known."""
    if has_credentials(url):
        return ""
    scheme, _, location = url.partition("://")
    bucket, _, key = location.partition("/")
    if scheme in ("http", "https"):
        return url
    if scheme in ("s3", "s3a") and not _is_another_s3(storage_extra):
        return f"https://console.aws.amazon.com/s3/object/{quote(bucket)}?prefix={quote(key, safe='')}"
    if scheme in ("gs", "gcs"):
        return f"https://console.cloud.google.com/storage/browser/_details/{quote(bucket)}/{quote(key)}"
    return ""


def application_page(application_id: str, spark_extra: dict[str, Any]) -> str:
    """Return the URL of a Spark application's page: of its history server, else of YARN or its master, which link to
    its own UI while it runs; an empty text if the connection names no server.
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
    """Return whether an S3 storage is not the one of AWS; the console of AWS then does not show its files."""
    services = extra.get("service_config")
    s3 = services.get("s3") if isinstance(services, dict) else None
    endpoints = [extra.get("endpoint_url"), s3.get("endpoint_url") if isinstance(s3, dict) else None]
    return any(endpoints) or any(os.environ.get(name) for name in _ENDPOINT_VARIABLES)


def _address(value: Any) -> str:
    """Return the address of a server without a slash at its end; an empty text if it is invalid, or has a password."""
    text = value.strip().rstrip("/") if isinstance(value, str) else ""
    address = text if not text or "://" in text else f"http://{text}"
    # A scheme such as javascript: must not get into a link of the UI.
    return address if address.startswith(("http://", "https://")) and not has_credentials(address) else ""
