"""Assets that stand for Salesforce streams: a topic that is watched, and a stream that was landed."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Asset, AssetWatcher

from airflow_provider_sfstream._airflow import require_shared_streams
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger


def landed_stream_asset(
    salesforce_conn_id: str, topic: str, subscription: str = "airflow", api: str | None = None
) -> Asset:
    """Return the asset of a stream as it has been landed: ``sfstream://<connection><topic>?subscription=<name>``.

    A drain emits an event on it for every window, with the counts in ``extra``. The subscription is part of
    it, so that a DAG scheduled on what was landed can never be mistaken for one that waits on the topic itself.

    :param api: as the drain has it: ``"pubsub"``, ``"streaming"`` or ``None``.
    :raises InvalidTopicError: if ``topic`` is not a topic name, or ``api`` does not carry it.
    :raises ConfigurationError: if one of the others is empty or too long.
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
    """Return a watched topic for a DAG's ``schedule``: the DAG runs when events are there.

    Its watcher, one for all DAGs that make this call with the same arguments, fires wake-ups: "there is
    something". They may come late or twice. What a run reads is decided by its drain's own position, so no event is
    lost with one. See docs/when-to-run.md.

    The asset is named by its URI, ``sfstream://<connection><topic>``, which holds conditions other than the defaults:
    DAGs that watch under different conditions watch different assets, as Airflow keeps one set of watchers for each.
    For the same reason, name the topic's asset by this call only: a bare ``Asset`` of that URI in another DAG file
    has no watcher and takes this one away whenever that file is parsed.

    :param topic: ``/event/Order__e``, ``/data/AccountChangeEvent``, ``/data/ChangeEvents`` or a channel;
        ``/topic/MyPushTopic``, or ``/u/MyChannel``.
    :param salesforce_conn_id: Airflow connection of the org.
    :param api: ``"pubsub"`` or ``"streaming"``, as the drain has it. ``None``: the Pub/Sub API wherever it carries the
        topic.
    :param min_events: wake once this many events have come since the last wake-up.
    :param max_wait: wake with fewer once the oldest of them is this old, in seconds or as a timedelta.
    :param min_interval: from one wake-up to the next at least, in seconds or as a timedelta. A burst collapses.
    :raises InvalidTopicError: if Salesforce cannot have such a topic, or ``api`` does not carry it.
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
    trigger = SalesforceEventTrigger(**uri.watch_arguments())
    return Asset(str(uri), watchers=[AssetWatcher(name=str(uri), trigger=trigger)])
