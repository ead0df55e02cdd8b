"""Wait for events of a Salesforce topic, without reading their payloads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from airflow_provider_sfstream._airflow import conf
from airflow_provider_sfstream.actions.arguments import (
    DEFAULT_SUBSCRIPTION,
    consumer_name,
    landed_stream_uri,
    wake_up_conditions,
)
from airflow_provider_sfstream.actions.drain.waiting import awaited, event_trigger, log_wake_up
from airflow_provider_sfstream.actions.failures import airflow_errors, soft_failing
from airflow_provider_sfstream.actions.retries import RetriedOperator
from airflow_provider_sfstream.actions.status import report_section
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.exceptions import ConfigurationError, SalesforceStreamError, SessionExpiredError
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.hooks.event_topics import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.monitoring.links import StreamLink
from airflow_provider_sfstream.replay_stores.kinds import POSITION_STORES, PositionStoreKind
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_text
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import Topic
from airflow_provider_sfstream.streams.watch.conditions import payload

if TYPE_CHECKING:
    from airflow_provider_sfstream.hooks.event_topics import EventHook
    from airflow_provider_sfstream.streams.watch.conditions import WakeUp


class SalesforceEventSensor(RetriedOperator, BaseSensorOperator):
    """Wait until events follow a position on a Salesforce topic.

    It never moves a position: a later drain of the same ``topic`` and ``subscription`` lands the events, and a
    second sensor receives them again. A replay ID that can no longer be read ends the wait with a warning, and the
    drain's ``on_invalid_replay`` applies.

    With ``deferrable`` the triggerer waits, without a worker slot. Otherwise each poke counts all events after the
    position, so that ``mode="reschedule"`` works too. Each wait or poke requests at most ``min_events`` events from
    Salesforce, and delivered events count against the org's delivery allocation.

    The sensor continues after transient faults. A permanent error fails the task; ``soft_fail`` turns that
    and the ``timeout`` into a skipped task, as with any sensor.

    The XCom result is a small dict: ``reason`` (``"events"`` or ``"replay_lost"``), ``stream`` (``org_id``, ``api``,
    ``topic``, ``subscription``), ``first_replay_id`` and ``through`` (hex text or ``None``) and ``event_count``.

    :param topic: ``/event/Order__e``, ``/data/AccountChangeEvent``, ``/data/ChangeEvents`` or a channel;
        ``/topic/MyPushTopic``, or ``/u/MyChannel``. (templated)
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :param api: ``"pubsub"`` or ``"streaming"``, as in the drain. ``None``: the Pub/Sub API if it has the topic.
    :param subscription: name of the consumer whose position is read. (templated)
    :param managed_subscription: wait for events that this managed event subscription (developer name or ID) has not
        committed, instead of after a position. Nothing is committed. Replaces ``subscription``. (templated)
    :param after: wait for events after this one (hex text) instead of after a position. (templated)
    :param replay_store: store of the position, as in the drain: ``"variable"`` or ``"table"``. ``None``:
        no position is read.
    :param replay_store_conn_id: Airflow connection of the table store's database. (templated)
    :param start_from: without replay ID and position: ``"earliest"`` (the oldest retained event), or
        ``"latest"`` (only new events), which needs an open connection and so ``deferrable``.
        (templated)
    :param min_events: wait until this many events follow the position.
    :param max_event_age: with fewer events, succeed once the oldest is this old (seconds or timedelta). An event
        without a time counts as old enough; on the triggerer its time of arrival counts. ``max_wait`` is Airflow's own:
        the longest pause between two pokes with ``exponential_backoff``.
    :param deferrable: wait on the triggerer. Default: the setting ``[operators] default_deferrable``.
    :raises ConfigurationError: at construction, if an argument cannot be used.
    """

    template_fields: Sequence[str] = (
        "topic",
        "salesforce_conn_id",
        "subscription",
        "managed_subscription",
        "after",
        "replay_store_conn_id",
        "start_from",
    )
    ui_color = "#d8ecf8"
    operator_extra_links = (StreamLink(),)

    def __init__(
        self,
        *,
        topic: str,
        salesforce_conn_id: str = "salesforce_default",
        api: Literal["pubsub", "streaming"] | None = None,
        subscription: str = DEFAULT_SUBSCRIPTION,
        managed_subscription: str | None = None,
        after: str | None = None,
        replay_store: PositionStoreKind | None = "variable",
        replay_store_conn_id: str = "sfstream_replay_store",
        start_from: Literal["earliest", "latest"] = "earliest",
        min_events: int = 1,
        max_event_age: float | timedelta | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.salesforce_conn_id = salesforce_conn_id
        self.api = api
        self.subscription = consumer_name(subscription, managed_subscription)
        self.managed_subscription = managed_subscription
        self.after = after
        self.replay_store = replay_store
        self.replay_store_conn_id = replay_store_conn_id
        self.start_from = start_from
        self.min_events = min_events
        self.max_event_age = max_event_age
        self.deferrable = deferrable
        self._conditions = wake_up_conditions(min_events, max_event_age, name="max_event_age")
        self._event_hook: EventHook | None = None
        if replay_store is not None:
            check_choice("replay_store", replay_store, POSITION_STORES)
        if "{{" not in topic and Topic.parse(topic, api).api == "streaming":
            require_extra("streaming")
        if "{{" not in start_from:
            self._check_start_from()

    def _check_start_from(self) -> None:
        check_choice("start_from", self.start_from, ("earliest", "latest"))
        if self.start_from == "latest" and not self.deferrable:
            raise ConfigurationError(
                'start_from="latest" requires deferrable=True: a sensor that pokes would miss the events that are '
                'published between two pokes. Set deferrable=True, or start_from="earliest".'
            )

    @property
    def stream_uri(self) -> str:
        """The URI of the asset of the stream that a later drain lands.

        :raises ConfigurationError: if the arguments do not name one.
        """
        return landed_stream_uri(self)

    def execute(self, context: Context) -> Any:
        """Defer until there are enough events, or poke repeatedly; return the result of the wait."""
        if self.deferrable:
            with soft_failing(self), airflow_errors(self):
                after = self._start(self._checked_topic())
                self.log.info("%s: waiting on the triggerer for %s.", self.topic, awaited(self._conditions, after))
                report_section(self.stream_uri, "wait", context, {"reason": "waiting"})
                trigger = event_trigger(self, self._conditions, after)
                self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the wait, or raise the error that ended it."""
        with airflow_errors(self):
            log_wake_up(event)
        report_section(self.stream_uri, "wait", context, event)
        return event

    def poke(self, context: Context) -> PokeReturnValue:
        """Count the events once, for some seconds. After a transient fault the next poke counts them again."""
        with airflow_errors(self):
            topic = self._checked_topic()
            try:
                wake_up = self._count(topic, self._start(topic))
                stream = self._stream(topic)
            except SalesforceStreamError as error:
                if not error.retriable or error.invalidates_token:
                    raise
                self.log.warning("%s: this poke failed; the next poke retries. %s", self.topic, error)
                return PokeReturnValue(False)
        if wake_up is None:
            return PokeReturnValue(False)
        document = payload(stream, wake_up)
        log_wake_up(document)
        report_section(self.stream_uri, "wait", context, document)
        return PokeReturnValue(True, document)

    def _count(self, topic: Topic, after: bytes | StartFrom) -> WakeUp | None:
        """Count the events with one client; once more if the session has expired since the last poke."""
        from airflow_provider_sfstream.streams.managed.source import ManagedSource
        from airflow_provider_sfstream.streams.watch.poll import poll

        with ExitStack() as stack:
            client: Any = stack.enter_context(self._hook(topic).get_conn())
            source: Any = client
            if self.managed_subscription is not None:
                subscription = ManagedSubscription(self.managed_subscription)
                source = stack.enter_context(ManagedSource(client, subscription, commits=False))
            try:
                return poll(source, topic.name, after, self._conditions)
            except SessionExpiredError:
                client.renew_session()
                return poll(source, topic.name, after, self._conditions)

    def _start(self, topic: Topic) -> bytes | StartFrom:
        """Return the start of the wait: ``after``, else the stored position, else ``start_from``."""
        if self.managed_subscription is not None:
            return StartFrom.COMMITTED
        if self.after:
            return replay_id_from_text(self.after)
        if self.replay_store is not None:
            with closing(open_replay_store(self.replay_store, self.replay_store_conn_id)) as store:
                position = store.read(self._stream(topic)).replay_id
            if position is not None:
                return position
        return StartFrom(self.start_from)

    def _stream(self, topic: Topic) -> Stream:
        return Stream(self._hook(topic).org_id, topic.api, topic.name, self.subscription)

    def _hook(self, topic: Topic) -> EventHook:
        """Return one hook for all pokes of this process, so that they log in once."""
        if self._event_hook is None:
            self._event_hook = event_hook(topic.api, self.salesforce_conn_id)
        return self._event_hook

    def _checked_topic(self) -> Topic:
        """Return the topic after checking the rendered templates."""
        self._check_start_from()
        return Topic.parse(self.topic, self.api)
