"""Functions for Airflow's use of ``sfstream://`` URIs. Loaded with any asset, so it imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from airflow.sdk import Asset

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.monitoring.lineage import name_of_stream
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri

if TYPE_CHECKING:
    from openlineage.client.event_v2 import Dataset


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the canonical form of an ``sfstream://`` URI, so that two spellings are one asset.

    Airflow has by then taken off a fragment, a trailing slash and, with a warning, user info that holds a password.

    :raises ValueError: if it is not the URI of a stream, saying which part is wrong.
    """
    try:
        return urlsplit(str(StreamUri.parse(urlunsplit(uri))))
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


def create_asset(
    *, salesforce_conn_id: str, topic: str, subscription: str | None = None, extra: dict[str, Any] | None = None
) -> Asset:
    """Return the asset of a topic, or of the landed stream of ``subscription``, for lineage. No watcher uses it.

    Airflow calls this as ``get_hook_lineage_collector().add_input_asset(..., scheme="sfstream", asset_kwargs={...})``.
    To schedule a DAG, use
    :func:`~airflow_provider_sfstream.assets.salesforce_stream.salesforce_topic_asset`, which attaches the watcher.

    :raises ConfigurationError: naming the argument that cannot be used.
    """
    return Asset(str(StreamUri(salesforce_conn_id, topic, subscription)), extra=extra)


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """Return the dataset of OpenLineage that an asset is: namespace and name are its URI, without what a watch waits
    for.

    :param lineage_context: source of the asset; its name does not depend on it.
    :raises ConfigurationError: if the asset is no stream.
    """
    from openlineage.client.event_v2 import Dataset

    name = name_of_stream(StreamUri.parse(asset.uri))
    return Dataset(namespace=name.namespace, name=name.name)
