"""Assets that stand for Salesforce streams."""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk import Asset

from airflow_provider_sfstream.protocol.topics import Topic


def landed_stream_asset(salesforce_conn_id: str, topic: str, subscription: str = "airflow") -> Asset:
    """Return the asset of a stream as it has been landed: ``sfstream://<connection><topic>?subscription=<name>``.

    A drain emits an event on it for every window, with the counts in ``extra``. The subscription is part of
    it, so that a DAG scheduled on what was landed can never be mistaken for one that waits on the topic itself.

    :raises InvalidTopicError: if ``topic`` is not a topic name.
    """
    path = quote(Topic.parse(topic).name, safe="/")
    return Asset(f"sfstream://{quote(salesforce_conn_id, safe='')}{path}?subscription={quote(subscription, safe='')}")
