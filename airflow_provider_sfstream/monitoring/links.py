"""The links that the UI shows beside a task of this package.

Airflow asks for them once, in the task's own process when its try has ended, and keeps each as an XCom. A link of which
nothing is known is an empty text, which the UI shows as a button that cannot be pressed. One that is of use before,
the task leaves itself (:func:`show_now`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from airflow_provider_sfstream.monitoring.consoles import application_page, file_page
from airflow_provider_sfstream.monitoring.pages import stream_url, task_url

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

_DEFAULT_STORAGE = "aws_default"
"""The connection that Airflow's S3 filesystem uses where none is named."""

GetLink = Callable[..., str]


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
