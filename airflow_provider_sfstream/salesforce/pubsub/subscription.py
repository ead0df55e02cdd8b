"""One Subscribe call: a reader thread requests events concurrently with a slow consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

import grpc

from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidTopicError, ProtocolError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.errors.pubsub import error_from
from airflow_provider_sfstream.salesforce.events import Credit, EventBatch, Responses, StartFrom, check_amounts
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.channel import call_metadata, error_from_call
from airflow_provider_sfstream.salesforce.pubsub_api_pb2 import (
    FetchRequest,
    FetchResponse,
    ManagedFetchRequest,
    ManagedFetchResponse,
    ReplayPreset,
)
from airflow_provider_sfstream.salesforce.replay_ids import LONGEST, check_replay_id
from airflow_provider_sfstream.salesforce.topics import Topic

MOST_EVENTS_WAITING = 2_000
MOST_BYTES_WAITING = 16 * 1024 * 1024
"""Bytes of waiting responses from which no more events are requested; up to 100 may still be outstanding."""
MOST_BYTES_READ = 64 * 1024 * 1024
"""Bytes of waiting responses from which reading stops: HTTP/2 then blocks a server that sends unrequested events."""

_PRESETS = {StartFrom.EARLIEST: ReplayPreset.EARLIEST, StartFrom.LATEST: ReplayPreset.LATEST}
_SECONDS_TO_END = 10.0

Request = FetchRequest | ManagedFetchRequest
Response = FetchResponse | ManagedFetchResponse

_Arrival = tuple[int, Response, int]
"""Bytes on the wire, response, time of arrival. The error that ended the call, or ``None``, follows the last one."""


def check_topic(topic: str) -> str:
    """Return ``topic``; raise :class:`InvalidTopicError` if the Pub/Sub API does not support its name."""
    if Topic.parse(topic).api != "pubsub":
        raise InvalidTopicError(
            f"{topic}: the Pub/Sub API does not support this topic; the Streaming API does. Nothing was read or moved."
        )
    return topic


def check_arguments(topic: str, after: bytes | StartFrom, limit: int | None, **seconds: float) -> None:
    """Raise if an argument of a subscription is invalid, before anything is contacted."""
    check_topic(topic)
    if after is StartFrom.COMMITTED:
        raise ConfigurationError(
            f"{topic}: only a managed subscription can start at its committed position. Nothing was read."
        )
    if isinstance(after, bytes):
        check_replay_id(topic, after, "Nothing was read.")
    check_amounts(topic, limit, **seconds)


def first_request(topic: str, after: bytes | StartFrom) -> FetchRequest:
    """Return the request that opens a subscription, without a number of events."""
    if isinstance(after, StartFrom):
        return FetchRequest(topic_name=topic, replay_preset=_PRESETS[after])
    return FetchRequest(topic_name=topic, replay_preset=ReplayPreset.CUSTOM, replay_id=after)


def opening_request(subscription: ManagedSubscription) -> ManagedFetchRequest:
    """Return the request that opens a stream, without a number of events. Later requests do not name the stream."""
    return ManagedFetchRequest(developer_name=subscription.developer_name, subscription_id=subscription.subscription_id)


def response_batch(name: str, response: Response, received_at: int) -> EventBatch:
    """Return the columns of a response that arrived at ``received_at`` (nanoseconds since the epoch).

    :raises ProtocolError: if a replay ID is invalid, so that a later run could not resume from it.

    The generated parser and one loop over its events cost 0.4 µs an event; walking the wire format by hand, twice that.
    """
    replay_ids: list[bytes] = []
    event_ids: list[str | None] = []
    schema_ids: list[str] = []
    payloads: list[bytes] = []
    for consumer_event in response.events:
        event = consumer_event.event
        replay_ids.append(consumer_event.replay_id)
        event_ids.append(event.id or None)
        schema_ids.append(event.schema_id)
        payloads.append(event.payload)
    sizes = set(map(len, replay_ids))
    if response.latest_replay_id:
        sizes.add(len(response.latest_replay_id))
    if sizes and not (min(sizes) > 0 and max(sizes) <= LONGEST):
        raise ProtocolError(
            f"{name}: Salesforce sent replay IDs of {min(sizes)} to {max(sizes)} bytes, but valid ones have 1 to "
            f"{LONGEST}: no run could resume from them. The response was discarded, and no event is lost: the events "
            "before it are not affected. Check for a proxy that changes responses, and report the error."
        )
    return EventBatch(
        replay_ids=replay_ids,
        event_ids=event_ids,
        schema_ids=schema_ids,
        payloads=payloads,
        latest_replay_id=response.latest_replay_id,
        pending=response.pending_num_requested,
        received_at=received_at,
    )


class Subscription:
    """An open Subscribe call, and the base of other calls that deliver events.

    A reader thread requests more events when a response arrives, before the consumer processes it, and queues the
    response. Above a limit of waiting bytes it stops requesting, and above a higher limit reading; when the consumer
    reads, it resumes. After 60 seconds without outstanding events or requests Salesforce ends the stream, with a
    retriable error.

    :param open_call: the multi-callable of the RPC; each response is a pair with its bytes on the wire.
    :param opening: the first request, without a number of events. ``following``: the fields of all later requests.
    """

    def __init__(
        self,
        open_call: Callable[..., Any],
        token: AccessToken,
        name: str,
        opening: Request,
        following: Mapping[str, Any],
        limit: int | None,
    ) -> None:
        self._name, self._token = name, token
        self._request_of, self._following = type(opening), following
        self._credit = Credit(limit)
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._is_closed = False
        self._events_waiting = self._bytes_waiting = 0
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._arrived: SimpleQueue[_Arrival | Exception | None] = SimpleQueue()
        opening.num_requested = self._credit.request()
        self._requests.put(opening)
        # None in the queue ends the iterator, and with it the requests of the call.
        self._call = open_call(iter(self._requests.get, None), metadata=call_metadata(token))
        self._reader = threading.Thread(target=self._read, name=f"sfstream-subscribe {name}", daemon=True)
        self._reader.start()

    def batches(self, idle_timeout: float) -> Responses:
        """Yield batches as they arrive, and ``None`` after each ``idle_timeout`` seconds without one."""
        while True:
            try:
                arrival = self._arrived.get(timeout=idle_timeout)
            except Empty:
                yield None
                continue
            if arrival is None:
                return
            if isinstance(arrival, Exception):
                raise arrival
            size, response, received_at = arrival
            with self._lock:
                self._events_waiting -= len(response.events)
                self._bytes_waiting -= size
                self._has_room.notify()
                self._request_more()
            yield response_batch(self._name, response, received_at)

    def close(self) -> None:
        """End the call immediately. Discard received events that were not yielded."""
        self._call.cancel()
        self._requests.put(None)
        with self._lock:
            self._is_closed = True
            self._has_room.notify()
        self._reader.join(_SECONDS_TO_END)

    def _read(self) -> None:
        end: Exception | None = error_from(None, "OK", None, topic=self._name)
        try:
            for size, response in self._call:
                received_at = time.time_ns()
                with self._lock:
                    self._credit.received(len(response.events))
                    self._events_waiting += len(response.events)
                    self._bytes_waiting += size
                    self._request_more()
                    finished = self._is_finished()
                # Let gRPC's thread send the request before the consumer uses the CPU.
                time.sleep(0)
                self._deliver((size, response, received_at))
                if finished:
                    end = None
                    break
                with self._lock:
                    self._has_room.wait_for(lambda: self._is_closed or self._bytes_waiting < MOST_BYTES_READ)
        except grpc.RpcError:
            end = error_from_call(self._call, self._name)
        except Exception as error:  # raised in the consumer, which must not wait forever
            end = error
        self._requests.put(None)
        self._deliver_end(end)

    def _is_finished(self) -> bool:
        """Return whether all expected responses were read. The caller holds the lock."""
        return self._credit.exhausted

    def _deliver(self, arrival: _Arrival) -> None:
        self._arrived.put(arrival)

    def _deliver_end(self, end: Exception | None) -> None:
        self._arrived.put(end)

    def _request_more(self) -> None:
        """Request more events, unless too many bytes wait. The caller holds the lock."""
        if self._events_waiting >= MOST_EVENTS_WAITING or self._bytes_waiting >= MOST_BYTES_WAITING:
            return
        number = self._credit.request()
        if number:
            self._requests.put(self._request_of(num_requested=number, **self._following))
