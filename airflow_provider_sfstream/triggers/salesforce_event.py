"""Trigger that waits for events of a topic: once for a deferred task, without end for an asset watcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import closing
from datetime import timedelta
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_sfstream._airflow import require_shared_streams
from airflow_provider_sfstream.exceptions import ConfigurationError, SalesforceStreamError
from airflow_provider_sfstream.hooks.event_topics import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.replay_stores.kinds import POSITION_STORES, PositionStoreKind
from airflow_provider_sfstream.salesforce.events import StartFrom, described
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_text
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import Topic
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions, error_payload, payload

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import SharedStreamProducer

    from airflow_provider_sfstream.hooks.event_topics import EventHook


class SalesforceEventTrigger(BaseEventTrigger):
    """Wait for events of a Salesforce topic. Reads their replay IDs and number, never their payloads.

    **Deferred** by a task it fires once, with a dict: ``reason``, ``stream`` (``org_id``, ``api``, ``topic``,
    ``subscription``), ``first_replay_id``, ``through`` (hex text or ``None``) and ``event_count``. It continues after
    dropped streams, restarts and expired sessions; a permanent error fires ``reason: error`` with the
    ``error`` (its class) and ``message``. It requests at most ``min_events`` events from Salesforce. With
    ``until_confirmed`` it also fires when Salesforce confirms that there are no new events: ``reason: quiet``, and
    ``confirmed_at``, a time (ISO 8601) for which that is true.

    **In an** ``AssetWatcher``, from Airflow 3.3 on, it fires repeatedly. Watchers of one topic with equal
    arguments share one subscription, and the watch position, stored in the asset's state, advances only over events
    that Airflow has persisted: each event is reported at least once. Without a watch position, or if it can no longer
    be read, it first fires ``reason: started`` or ``replay_lost``, because there may be unread events. After an error
    it logs the error and tries again.

    In both cases an event is a wake-up: the drain reads from its own position, so that a lost or repeated wake-up costs
    time and never data.

    Arguments are checked when the trigger is serialized, so when a DAG is parsed or a task defers. The
    constructor raises nothing, because Airflow's triggerer would end with it.

    :param topic: ``/event/Order__e``, ``/data/AccountChangeEvent``, ``/data/ChangeEvents`` or a channel;
        ``/topic/MyPushTopic``, or ``/u/MyChannel``.
    :param salesforce_conn_id: Airflow connection of the org.
    :param api: ``"pubsub"`` or ``"streaming"``. ``None``: the Pub/Sub API if it has the topic.
    :param subscription: name of the consumer, in the event and for its stored position.
    :param managed_subscription: of a deferred task: wait for events that this managed event subscription (developer
        name or ID) has not committed. Nothing is committed, and during the wait no other client can read the
        subscription. A watcher of an asset watches the topic itself instead.
    :param after: wait for events after this one (hex text).
    :param replay_store: without ``after``, wait for events after the position that ``"variable"`` or ``"table"``
        holds.
    :param replay_store_conn_id: Airflow connection of the table store's database.
    :param start_from: if neither has a replay ID: ``"latest"`` or ``"earliest"``.
    :param min_events: fire once this many events follow.
    :param max_wait: fire with fewer once the oldest is this old, in seconds or as a timedelta.
    :param until_confirmed: of a deferred task: fire also when Salesforce confirms the end of the stream.
    :param min_interval: minimum seconds between two events of a watcher, so that a burst of events wakes it once.
    """

    supports_triggerer_queue = True

    def __init__(
        self,
        *,
        topic: str,
        salesforce_conn_id: str = "salesforce_default",
        api: Literal["pubsub", "streaming"] | None = None,
        subscription: str = "airflow",
        managed_subscription: str | None = None,
        after: str | None = None,
        replay_store: PositionStoreKind | None = None,
        replay_store_conn_id: str = "sfstream_replay_store",
        start_from: Literal["latest", "earliest"] = "latest",
        min_events: int = 1,
        max_wait: float | timedelta | None = None,
        min_interval: float | timedelta = 5.0,
        until_confirmed: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.topic = topic
        self.salesforce_conn_id = salesforce_conn_id
        self.api = api
        self.subscription = subscription if managed_subscription is None else managed_subscription
        self.managed_subscription = managed_subscription
        self.after = after
        self.replay_store = replay_store
        self.replay_store_conn_id = replay_store_conn_id
        self.start_from = start_from
        self.min_events = min_events
        self.max_wait = max_wait.total_seconds() if isinstance(max_wait, timedelta) else max_wait
        self.min_interval = min_interval.total_seconds() if isinstance(min_interval, timedelta) else min_interval
        self.until_confirmed = until_confirmed

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments. None of them is a secret: the connection is named, not copied.

        :raises ConfigurationError: if an argument cannot be used.
        """
        self._check()
        arguments = {name: getattr(self, name) for name in signature(type(self)).parameters}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fire once: when the conditions are met, or with a permanent error.

        :raises ConfigurationError: for a watcher of an asset, before Airflow 3.3; the triggerer logs it.
        """
        if self.trigger_id is not None and self.task_instance is None:  # a watcher: the triggerer runs it for no task
            require_shared_streams()
        try:
            self._check()
            # In a thread: the import of gRPC or Arrow would block the event loop for too long.
            wake_ups = await asyncio.to_thread(import_module, "airflow_provider_sfstream.streams.watch.wake_ups")
            async with self.hook().async_client() as client:
                stream = self.stream(await client.org_id())
                source, after = await self._source(client, stream)
                self.log.info("Waiting on the triggerer for events of %s, from %s.", stream, described(after))
                wake_up = await wake_ups.Watch(source, self.topic, after, self.conditions).first_wake_up()
            event = payload(stream, wake_up)
        except SalesforceStreamError as error:
            self.log.error("%s: waiting ended, nothing was read or moved: %s", self.topic, error)  # noqa: TRY400
            event = error_payload(error)
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    def shared_stream_key(self) -> Hashable | None:
        """Return the common key of watchers that share a subscription; a deferred task shares none."""
        if self.task_instance is not None:
            return None
        _, arguments = self.serialize()
        arguments["api"] = Topic.parse(self.topic, self.api).api
        if self.replay_store is None:
            del arguments["subscription"]
        return tuple(arguments.items())

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the watch that all watchers of one key share."""
        from airflow_provider_sfstream.triggers.topic_watch import TopicWatch

        return TopicWatch(cls(**kwargs))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Fire for each wake-up of the shared watch."""
        from airflow_provider_sfstream.triggers.topic_watch import fired

        async for event in fired(self, shared_stream):
            yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    @property
    def conditions(self) -> WakeUpConditions:
        """Conditions under which it fires."""
        return WakeUpConditions(
            min_events=self.min_events,
            max_wait=self.max_wait,
            min_interval=self.min_interval,
            until_confirmed=self.until_confirmed,
        )

    def hook(self) -> EventHook:
        """Return the hook of the connection. Nothing is contacted yet."""
        return event_hook(Topic.parse(self.topic, self.api).api, self.salesforce_conn_id)

    async def _source(self, client: Any, stream: Stream) -> tuple[Any, bytes | StartFrom]:
        """Return the source of a deferred task, the topic or a managed subscription, and its position."""
        if self.managed_subscription is None:
            return client, await self.start(stream)
        managed = await asyncio.to_thread(import_module, "airflow_provider_sfstream.streams.managed.source")
        subscription = ManagedSubscription(self.managed_subscription)
        return managed.AsyncManagedSource(client, subscription), StartFrom.COMMITTED

    def stream(self, org_id: str) -> Stream:
        """Return the awaited stream, in the org of the connection."""
        return Stream(org_id, Topic.parse(self.topic, self.api).api, self.topic, self.subscription)

    async def start(self, stream: Stream) -> bytes | StartFrom:
        """Return the start of the wait: ``after``, else the stored position, else ``start_from``."""
        if self.after is not None:
            return replay_id_from_text(self.after)
        if self.replay_store is not None:
            # In a thread, because the replay stores have no asynchronous methods.
            position = await asyncio.to_thread(self._stored_position, stream)
            if position is not None:
                return position
        return StartFrom(self.start_from)

    def _stored_position(self, stream: Stream) -> bytes | None:
        assert self.replay_store is not None  # noqa: S101 - narrowed by the caller
        with closing(open_replay_store(self.replay_store, self.replay_store_conn_id)) as store:
            return store.read(stream).replay_id

    def _check(self) -> None:
        topic = Topic.parse(self.topic, self.api)
        if self.managed_subscription is not None:
            ManagedSubscription(self.managed_subscription)
            if topic.api != "pubsub" or self.after is not None:
                raise ConfigurationError(
                    f"{self.topic}: a managed_subscription requires the Pub/Sub API and has its own position. Remove "
                    "after and api='streaming'."
                )
        if self.after is not None:
            replay_id_from_text(self.after)
        for name, choices in (("replay_store", (None, *POSITION_STORES)), ("start_from", ("latest", "earliest"))):
            value = getattr(self, name)
            if value not in choices:
                raise ConfigurationError(
                    f"{self.topic}: {name}={value!r} must be one of {', '.join(map(repr, choices))}."
                )
        for name in ("salesforce_conn_id", "subscription", "replay_store_conn_id"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ConfigurationError(f"{self.topic}: {name}={value!r} must be a name.")
        _ = self.conditions
