"""Assets of Salesforce streams: watched topics, and landed streams."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Asset, AssetWatcher

from airflow_provider_sfstream._airflow import require_shared_streams
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from airflow_provider_sfstream.salesforce.topics import Topic
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger


def landed_stream_asset(
    salesforce_conn_id: str, topic: str, subscription: str = "airflow", api: str | None = None
) -> Asset:
    """Return the asset of a landed stream: ``sfstream://<connection><topic>?subscription=<name>``.

    A drain emits an event on it for every window, with the counts in ``extra``. The URI contains the subscription, so
    the asset always differs from the asset of the topic, on which a DAG waits for events.

    :param api: as in the drain: ``"pubsub"``, ``"streaming"`` or ``None``.
    :raises InvalidTopicError: if ``topic`` is not a topic name, or ``api`` does not have it.
    :raises ConfigurationError: if another argument is empty or too long.
    """
    return Asset(str(StreamUri(salesforce_conn_id, topic, subscription, api)))


def salesforce_topic_asset(
    topic: str,
    *,
    salesforce_conn_id: str = "salesforce_default",
    api: str | None = None,
    min_events: int = 1,
    max_wait: float | timedelta | None = None,
    min_interval: float | timedelta = 5.0,
) -> Asset:
    """Return a watched topic for a DAG's ``schedule``: the DAG runs when the topic has events.

    Its watcher fires wake-ups; all DAGs that call this function with the same arguments share it. A wake-up may be late
    or repeated. Each drain reads from its own position, so a lost wake-up never loses an event. See
    docs/when-to-run.md.

    The name of the asset is its URI, ``sfstream://<connection><topic>``, which contains conditions other than the
    defaults: DAGs with different conditions watch different assets, because Airflow stores one set of watchers for each
    asset. For the same reason, create the topic's asset with this function only: a plain ``Asset`` of that URI in
    another DAG file has no watcher, and removes this watcher whenever that file is parsed.

    :param topic: ``/event/Order__e``, ``/data/AccountChangeEvent``, ``/data/ChangeEvents`` or a channel;
        ``/topic/MyPushTopic``, or ``/u/MyChannel``.
    :param salesforce_conn_id: Airflow connection of the org.
    :param api: ``"pubsub"`` or ``"streaming"``, as in the drain. ``None``: the Pub/Sub API if it has the topic.
    :param min_events: wake up after this many events since the last wake-up.
    :param max_wait: wake up with fewer events once the oldest is this old, in seconds or as a timedelta.
    :param min_interval: minimum time between two wake-ups, in seconds or as a timedelta, so that a burst of events
        causes one.
    :raises InvalidTopicError: if ``topic`` is not a topic name, or ``api`` does not have it.
    :raises ConfigurationError: if an argument cannot be used, or before Airflow 3.3. Nothing was contacted.
    """
    require_shared_streams()
    uri = StreamUri(
        salesforce_conn_id,
        topic,
        api=api,
        min_events=min_events,
        max_wait=max_wait.total_seconds() if isinstance(max_wait, timedelta) else max_wait,
        min_interval=min_interval.total_seconds() if isinstance(min_interval, timedelta) else min_interval,
    )
    if Topic.parse(topic, api).api == "streaming":
        require_extra("streaming")
    trigger = SalesforceEventTrigger(**uri.watch_arguments())
    return Asset(str(uri), watchers=[AssetWatcher(name=str(uri), trigger=trigger)])
