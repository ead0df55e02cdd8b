"""Lineage of tasks, for Airflow's OpenLineage provider and for Airflow's collector, which other catalogues read.

Names of datasets follow the conventions of OpenLineage, so that lineage of other producers refers to the same datasets.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_sfstream._airflow import hook_lineage_collector, sends_lineage
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import has_credentials, quoted
from airflow_provider_sfstream.salesforce.stream_uris import SCHEME, StreamUri

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

log = logging.getLogger(__name__)

_BUCKETS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs"}
"""Schemes in dataset names, by the scheme of a URL whose authority is a bucket."""
_CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes whose paths begin without a slash too; the part before the ``@`` is the container, not a user."""
_BELOW_THE_STREAM = 6
"""Path parts of a manifest's URL below the stream's folder: ``windows/yyyy/mm/dd/{window id}/manifest.json``."""


def stream_folder(manifest_url: str) -> str:
    """Return the URL of a stream's folder in a landing, from the manifest of one of its windows."""
    return manifest_url.rsplit("/", _BELOW_THE_STREAM)[0]


@dataclass(frozen=True, order=True)
class DatasetName:
    """Identifier of a dataset in OpenLineage."""

    namespace: str
    name: str


def name_of_stream(uri: StreamUri) -> DatasetName:
    """Return the name of a topic, or of the landed stream of a subscription.

    Namespace and name together are the URI of the asset. They contain neither the conditions of a watch nor the API of
    a topic: both do not change the topic.
    """
    landed = uri.subscription is not None
    identity = StreamUri(uri.salesforce_conn_id, uri.topic, uri.subscription, uri.api if landed else None)
    namespace = _org(uri.salesforce_conn_id)
    return DatasetName(namespace, str(identity).removeprefix(namespace))


def name_of_object(salesforce_conn_id: str, sobject: str) -> DatasetName:
    """Return the name of an sObject, for example ``Account``, in the org of a connection."""
    return DatasetName(_org(salesforce_conn_id), sobject)


def name_of_url(url: str) -> DatasetName:
    """Return the name of a folder or file."""
    if has_credentials(url):
        raise ConfigurationError("A URL with a password or a signature cannot name a dataset. Remove it from the URL.")
    scheme, separator, location = url.partition("://")
    if not separator or scheme == "file":
        return DatasetName("file", f"/{(location if separator else url).strip('/')}")
    authority, _, path = location.partition("/")
    path = path.rstrip("/")
    if scheme in _BUCKETS:  # Airflow's notation has the connection before the bucket
        return DatasetName(f"{_BUCKETS[scheme]}://{authority.rpartition('@')[2]}", path)
    if scheme in _CONTAINERS:
        return DatasetName(f"{scheme}://{authority}", path)
    return DatasetName(f"{scheme}://{authority.rpartition('@')[2]}", f"/{path}")


def name_of_landed(manifest_url: str) -> DatasetName:
    """Return the name of a stream's folder in a landing, from the manifest of one of its windows."""
    return name_of_url(stream_folder(manifest_url))


def _org(salesforce_conn_id: str) -> str:
    return f"{SCHEME}://{quote(salesforce_conn_id, safe='')}"


class LineageMixin:
    """Mixin of operators with the methods that Airflow's OpenLineage provider calls; they use :meth:`lineage`.

    Imports happen only when the provider calls them. Errors are logged, never raised.
    """

    _lineage_of_run: OperatorLineage | None = None

    @abstractmethod
    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the datasets that the task reads and writes.

        :param has_ended: whether the task has run, also with a failure. The method may then read storage.
        """

    def keep_lineage(self) -> None:
        """Determine the lineage now, at the end of the task, if it will be sent: the provider calls its methods in a
        forked process, in which Delta's library aborts if this one has used it."""
        if sends_lineage():
            self._lineage_of_run = self._lineage_or_none(has_ended=True)

    def get_openlineage_facets_on_start(self) -> OperatorLineage | None:
        """Return the lineage that is known before the run; ``None`` after an error."""
        return self._lineage_or_none(has_ended=False)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage | None:
        """Return the lineage of a run that has succeeded or failed; ``None`` after an error."""
        return self._lineage_of_run or self._lineage_or_none(has_ended=True)

    def _lineage_or_none(self, *, has_ended: bool) -> OperatorLineage | None:
        try:
            return self.lineage(has_ended=has_ended)
        except Exception as error:  # lineage must not fail the task
            log.warning("The lineage of this task is unavailable: %s (%s)", type(error).__name__, quoted(str(error)))
            return None


def collect_lineage(hook: Any, landed: StreamUri, manifests: Sequence[str]) -> None:
    """Add the topic as input and the folder of the landed stream as output to Airflow's collector.

    Errors are logged, never raised.

    :param manifests: URLs of the manifests of the landed windows; without one, nothing was written.
    """
    topic = StreamUri(landed.salesforce_conn_id, landed.topic, api=landed.api)
    try:
        collector = hook_lineage_collector()
        collector.add_input_asset(context=hook, uri=str(topic))
        for folder in sorted(set(map(stream_folder, manifests))):
            collector.add_output_asset(context=hook, uri=folder)
    except Exception as error:  # the windows are landed: an error of lineage must not fail the task
        log.info("The lineage of this drain cannot be collected: %s", type(error).__name__)
