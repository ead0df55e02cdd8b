"""The only stream that a managed subscription allows: its slot, its topic, its commits and its end.

Salesforce refuses a second stream on a managed subscription while one is open, so a consumer waits for the slot.

An administrator can delete a managed subscription and recreate it under the same name on another topic. The stream
itself does not name its topic, but each event names its schema, and a schema names its event. The schemas of the
delivered events are therefore checked against the topic.
"""

from __future__ import annotations

import logging
import random as random_module
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SubscriptionBusyError,
)
from airflow_provider_sfstream.salesforce.events import Responses, StartFrom
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.pubsub.managed_stream import ManagedStream
from airflow_provider_sfstream.salesforce.schemas import record_name

log = logging.getLogger(__name__)

BUSY_TIMEOUT = 60.0
"""Seconds to wait for the slot of a managed subscription: enough after a clean end, too few after a lost network."""
LOOK_SECONDS = 0.05
"""Seconds that one read of the managed stream, or of the topic itself, waits for a response."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_MOST_DOUBLINGS = 10
_CHANGE_EVENT = "changeevent"
_RECENT_RESPONSES = 4


@dataclass
class SlotWait:
    """Wait for a slot that another stream holds: ``timeout`` seconds from the first refusal.

    Salesforce releases it within 15 seconds after a clean end of the stream, and about 15 minutes after its connection
    was lost without a close. No client can release it sooner.
    """

    name: str
    timeout: float
    clock: Callable[[], float]
    random: Callable[[], float]
    _first_refusal_at: float | None = field(default=None, init=False)
    _refusals: int = field(default=0, init=False)

    def taken(self) -> None:
        """Record that Salesforce accepted the stream."""
        self._first_refusal_at, self._refusals = None, 0

    def pause_after(self, error: SubscriptionBusyError) -> float:
        """Return the seconds to wait before the next request: doubled each time, jittered, at most 5.

        :raises SubscriptionBusyError: when the time is over. After that, each refusal raises immediately.
        """
        now = self.clock()
        if self._first_refusal_at is None:
            self._first_refusal_at = now
            log.info("%s: waiting up to %.0f s for the slot: %s", self.name, self.timeout, error)
        seconds = now - self._first_refusal_at
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._refusals, _MOST_DOUBLINGS))
        pause *= 0.5 + self.random() / 2
        self._refusals += 1
        if seconds + pause <= self.timeout:
            return float(pause)
        raise SubscriptionBusyError(
            f"{self.name}: another stream has held the slot for {seconds:.0f} seconds; busy_timeout is "
            f"{self.timeout:g}. If the connection of an earlier run was lost without a close, Salesforce holds the "
            "slot for about 15 minutes, and no client can release it sooner: run again after that, or increase "
            "busy_timeout. Otherwise find the run, trigger or program that uses the subscription: each consumer needs "
            "its own managed subscription. No event is lost while Salesforce retains it: uncommitted events are "
            "delivered again."
        ) from error


def may_deliver(topic: str, event: str) -> bool:
    """Return whether a topic can deliver an event with this API name.

    The members of a channel are unknown here: only the kind is compared, platform event or change event.
    """
    kind, name = topic.lower().split("/")[1:]
    event = event.lower()
    if name.endswith("__chn") or name == "changeevents":
        return event.endswith(_CHANGE_EVENT) == (kind == "data")
    return name == event or name.endswith(f"__{event}")  # with the namespace of a package


class TopicCheck:
    """Check of the events of a managed subscription against a topic, once for each schema.

    :param is_proven: the record of the subscription was read and names the topic. A schema that is temporarily
        unavailable then causes no failure.
    """

    def __init__(self, name: str, schema: Callable[[str], str], *, is_proven: bool) -> None:
        self._name, self._schema, self._is_proven = name, schema, is_proven
        self._checked_ids: set[str] = set()

    def check(self, topic: str, schema_ids: Iterable[str]) -> None:
        """Check the schemas of events. A schema that this user may not read proves nothing, and is accepted.

        :raises ConfigurationError: if an event cannot be one of ``topic``.
        :raises SalesforceStreamError: if a schema could not be fetched this time, and the topic is not proven.
        """
        for schema_id in set(schema_ids) - self._checked_ids:
            event = self._event(schema_id)
            if event and not may_deliver(topic, event):
                raise ConfigurationError(
                    f"{self._name} delivers events of {event}, but this task drains {topic}: the subscription was "
                    "deleted and recreated on another topic, or the task names the wrong topic. No window was "
                    "recorded and no position was moved. Correct the topic, or recreate the subscription on it: the "
                    "drain then continues from its own position."
                )
            self._checked_ids.add(schema_id)

    def _event(self, schema_id: str) -> str | None:
        try:
            return record_name(self._schema(schema_id)) if schema_id else None
        except SalesforceStreamError as error:
            if error.retriable and not self._is_proven:
                raise type(error)(f"{self._name}: {error}") from error
            return None


class ExclusiveStream:
    """The open stream of a managed subscription, if any. Not thread-safe.

    After ``topic`` is set, the delivered events are checked against it. ``committed`` is the replay ID that was
    acknowledged last, ``quiet_at`` the one that the last empty response of the open stream named.

    :param busy_timeout: seconds to wait while another stream holds the subscription. 960 outlast a lost connection.
    :param is_topic_proven: the record of the subscription names the topic that is read.
    """

    def __init__(
        self,
        client: PubSubClient,
        subscription: ManagedSubscription,
        *,
        busy_timeout: float = BUSY_TIMEOUT,
        is_topic_proven: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self.client, self.subscription, self.topic = client, subscription, ""
        self.name = subscription.description
        self.committed: bytes | None = None
        self.quiet_at: bytes | None = None
        self._slot = SlotWait(self.name, busy_timeout, clock, random)
        self._topic_check = TopicCheck(self.name, client.schema, is_proven=is_topic_proven)
        self.clock, self.sleep, self.random = clock, sleep, random
        self._stream: ManagedStream | None = None
        self._recent_ids: deque[Sequence[bytes]] = deque(maxlen=_RECENT_RESPONSES)

    @property
    def open_stream(self) -> ManagedStream | None:
        """Return the open stream; ``None`` if it has ended."""
        return self._stream if self._stream is not None and self._stream.is_open else None

    def responses(self, limit: int | None, idle_timeout: float, recommit: bytes | None) -> Responses:
        """Yield the responses of a new stream; wait while another one holds the subscription.

        :param recommit: a replay ID that is known to be committed.
        """
        while True:
            self.close()
            self._stream = self.client.managed_subscribe(
                self.subscription, limit=limit, idle_timeout=idle_timeout, recommit=recommit
            )
            try:
                with self.client.in_contact(self.name):
                    for response in self._stream:
                        if response is not None:
                            self._slot.taken()
                            if self.topic:
                                self._topic_check.check(self.topic, response.schema_ids)
                            self._recent_ids.append(response.replay_ids or [response.latest_replay_id])
                            if response.confirms_position:
                                self.quiet_at = response.latest_replay_id
                        yield response
                return
            except SubscriptionBusyError as error:
                self.sleep(self._slot.pause_after(error))

    def open_topic(self, after: bytes | StartFrom, limit: int | None) -> Responses:
        """Open an ordinary subscription to the topic at ``after``, for ``limit`` events."""
        return self.client.subscribe(self.topic, after, limit=limit, idle_timeout=LOOK_SECONDS)

    def allow(self, count: int) -> None:
        """Raise the limit of the open stream by ``count`` events."""
        if count and self._stream is not None:
            self._stream.allow(count)

    def stop_fetching(self) -> None:
        """Request no more events. The stream stays open for commits."""
        if self._stream is not None:
            self._stream.stop_fetching()

    def close(self) -> None:
        """End the open stream, so that the next consumer can use the subscription."""
        stream, self._stream, self.quiet_at = self._stream, None, None
        self._recent_ids.clear()
        if stream is not None:
            stream.close()

    def has_delivered(self, replay_id: bytes) -> bool:
        """Return whether the open stream has recently delivered or named ``replay_id``."""
        return any(replay_id in replay_ids for replay_ids in self._recent_ids)

    def commit(self, replay_id: bytes, deadline: float) -> None:
        """Commit ``replay_id`` on the open stream, and wait for the acknowledgement."""
        if self._stream is None:
            raise ServiceUnavailableError(f"{self.name}: no stream is open for the commit. Nothing was moved.")
        self._stream.commit(replay_id)
        self._stream.wait_for_commit(replay_id, max(0.0, deadline - self.clock()))
        self.committed = replay_id
