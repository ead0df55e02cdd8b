"""Links that the UI shows beside a task of this package, and addresses under which a browser shows a file of a storage
or an application of Spark.

Airflow asks for them once, in the task's own process when its try has ended, and keeps each as an XCom. A link of which
nothing is known is an empty text, which the UI shows as a button that cannot be pressed. One that is of use before,
the task leaves itself (:func:`show_now`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from airflow_provider_sfstream.monitoring.pages import stream_url, task_url
from airflow_provider_sfstream.redaction import has_credentials

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

_DEFAULT_STORAGE = "aws_default"
"""The connection that Airflow's S3 filesystem uses where none is named."""

GetLink = Callable[..., str]
_OWN_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
HISTORY_SERVER = "history_server"
"""Key in the extra of a Spark connection: the address of the history server."""
_YARN = "yarn_resourcemanager_webapp_address"
"""The key by which Airflow's own Spark provider finds YARN."""
_MASTER = "master_ui"
"""Key in the extra of a Spark connection: the address of the web UI of a standalone master."""


def _empty_if_unknown(get_link: GetLink) -> GetLink:
    """Give an empty text in place of any error: Airflow would write its trace into the log of a task that is done."""

    @wraps(get_link)
    def guarded(self: BaseOperatorLink, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        try:
            return get_link(self, operator, ti_key=ti_key)
        except Exception as error:
            operator.log.debug("The link %r cannot be told: %s", self.name, type(error).__name__)
            return ""

    return guarded


class StreamLink(BaseOperatorLink):
    """The page of the stream that a task drains, waits for, or was given windows of."""

    name = "Stream"

    @_empty_if_unknown
    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return its address; empty where the task has windows of several streams, or only their manifests."""
        uri = operator.stream_uri
        return "" if uri is None else stream_url(uri)


class ManifestLink(BaseOperatorLink):
    """The manifest of the window that a task landed, or was given."""

    name = "Manifest"

    @_empty_if_unknown
    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return where a browser shows it; empty where none does, or where there are several windows."""
        manifests = operator.window_manifests
        if len(manifests) != 1:
            return ""
        return file_page(manifests[0], _extra_of(getattr(operator, "landing_conn_id", None) or _DEFAULT_STORAGE))


class PreviousWindowLink(BaseOperatorLink):
    """The task run that landed the window before."""

    name = "Previous window"

    @_empty_if_unknown
    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address of its page; empty for the first window of a stream, and for intervals."""
        manifest = operator.previous_manifest()
        return "" if manifest is None else task_url(manifest.window.run)


class SparkUILink(BaseOperatorLink):
    """The page of the Spark application that a task submitted, where its connection names who has one."""

    name = "Spark UI"

    @_empty_if_unknown
    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return its address; empty where no application began, or nobody keeps a page of it."""
        application = operator.spark_application
        return "" if application is None else application_page(application, _extra_of(operator.spark_conn_id))


def show_now(link: BaseOperatorLink, operator: BaseOperator, task_instance: Any) -> None:
    """Show a link of a task that is still at work, if it leads anywhere yet."""
    try:
        if address := link.get_link(operator, ti_key=task_instance):
            task_instance.xcom_push(key=link.xcom_key, value=address)
    except Exception as error:  # it is shown at the end, then
        operator.log.debug("The link %r cannot be shown yet: %s", link.name, type(error).__name__)


def _extra_of(conn_id: str) -> dict[str, Any]:
    """Return the extra of a connection; nothing if it does not exist."""
    from airflow.sdk import Connection

    from airflow_provider_sfstream._airflow import AirflowNotFoundException

    try:
        extra: dict[str, Any] = Connection.get(conn_id).extra_dejson
    except AirflowNotFoundException:
        return {}
    return extra


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
