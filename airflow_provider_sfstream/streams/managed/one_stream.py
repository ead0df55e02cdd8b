"""The one stream that a managed subscription has room for: its opening, its commits and its end."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from airflow_provider_sfstream.exceptions import ServiceUnavailableError, SubscriptionBusyError
from airflow_provider_sfstream.salesforce.events import Responses
from airflow_provider_sfstream.salesforce.managed_subscription import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.pubsub.managed_stream import ManagedStream
from airflow_provider_sfstream.streams.managed.redelivery import confirms
from airflow_provider_sfstream.streams.managed.slot import SlotWait
from airflow_provider_sfstream.streams.managed.topic import TopicCheck

log = logging.getLogger(__name__)

_RECENT_RESPONSES = 4


class OneStream:
    """The stream of a managed subscription that is open, if one is. Not thread-safe.

    ``topic`` is checked against the events that are delivered, once it is set. ``committed`` is the replay ID that was
    acknowledged last, ``quiet_at`` the one that the last empty response of the open stream named.

    :param slot: the wait while another stream holds the subscription.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        client: PubSubClient,
        subscription: ManagedSubscription,
        *,
        slot: SlotWait,
        topic_check: TopicCheck,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.subscription, self.topic = subscription, ""
        self.committed: bytes | None = None
        self.quiet_at: bytes | None = None
        self._client, self._slot, self._topic_check = client, slot, topic_check
        self._clock, self._sleep = clock, sleep
        self._stream: ManagedStream | None = None
        self._recent: deque[Sequence[bytes]] = deque(maxlen=_RECENT_RESPONSES)

    @property
    def open_stream(self) -> ManagedStream | None:
        """The stream that is open; ``None`` if it has ended."""
        return self._stream if self._stream is not None and self._stream.is_open else None

    def responses(self, limit: int | None, idle_timeout: float, recommit: bytes | None) -> Responses:
        """Yield the responses of a new stream; wait while another one holds the subscription.

        :param recommit: a replay ID that is known to be committed.
        :raises ConfigurationError: if it delivers events of another topic.
        """
        while True:
            self.close()
            self._stream = self._client.managed_subscribe(
                self.subscription, limit=limit, idle_timeout=idle_timeout, recommit=recommit
            )
            try:
                with self._client.in_contact(self.subscription.description):
                    for response in self._stream:
                        if response is not None:
                            self._slot.taken()
                            if self.topic:
                                self._topic_check.check(self.topic, response.schema_ids)
                            self._recent.append(response.replay_ids or [response.latest_replay_id])
                            if confirms(response):
                                self.quiet_at = response.latest_replay_id
                        yield response
                return
            except SubscriptionBusyError as error:
                self._sleep(self._slot.pause_after(error))

    def allow(self, count: int) -> None:
        """Raise the limit of the open stream by ``count`` events."""
        if count and self._stream is not None:
            self._stream.allow(count)

    def stop_fetching(self) -> None:
        """Ask for no more events. The stream stays open for commits."""
        if self._stream is not None:
            self._stream.stop_fetching()

    def close(self) -> None:
        """End the open stream, so that the next consumer can have the subscription."""
        stream, self._stream, self.quiet_at = self._stream, None, None
        self._recent.clear()
        if stream is not None:
            stream.close()

    def has_delivered(self, replay_id: bytes) -> bool:
        """Return whether the open stream has delivered or named ``replay_id`` lately."""
        return any(replay_id in replay_ids for replay_ids in self._recent)

    def commit(self, replay_id: bytes, deadline: float) -> None:
        """Commit ``replay_id`` on the open stream, and wait for the acknowledgement."""
        if self._stream is None:
            raise ServiceUnavailableError(f"{self.subscription.description}: no stream is open. Nothing moved.")
        self._stream.commit(replay_id)
        self._stream.wait_for_commit(replay_id, max(0.0, deadline - self._clock()))
        self.committed = replay_id
