"""Functions that Airflow calls for ``sfstream://`` URIs. Loaded with any asset, so the module imports little."""

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

    Airflow has already removed a fragment, a trailing slash and, with a warning, user info with a password.

    :raises ValueError: if it is not the URI of a stream, naming the invalid part.
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

    :raises ConfigurationError: naming the invalid argument.
    """
    return Asset(str(StreamUri(salesforce_conn_id, topic, subscription)), extra=extra)


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """Return the OpenLineage dataset of an asset: namespace and name are its URI without the conditions of a watch.

    :param lineage_context: source of the asset; the name does not depend on it.
    :raises ConfigurationError: if the asset is not a stream.
    """
    from openlineage.client.event_v2 import Dataset

    name = name_of_stream(StreamUri.parse(asset.uri))
    return Dataset(namespace=name.namespace, name=name.name)
