"""A simulated client of the bus in memory, with random delays, silent spans and dropped streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from random import Random
from typing import Any, ClassVar

from airflow_provider_sfstream.exceptions import ContactError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams.source import EventBatch, PayloadEncoding, StartFrom
from tests.support.claims_bus import Bus
from tests.support.claims_managed import ManagedRecord, SimulatedManagedStream
from tests.support.claims_server import LONGEST_POLL, Response, Server, Weather
from tests.support.scripted_source import SCHEMA, SCHEMA_ID, avro_payload

CALL_TIMEOUT = 30.0
"""Seconds after which a call without a response fails."""


@dataclass
class Arrivals:
    """The responses of one subscription that the client has not received yet, each with its time of arrival."""

    server: Server
    sent: deque[tuple[float, Response]] = field(default_factory=deque)
    last: float = 0.0


@dataclass
class SimulatedSource:
    """One client of the bus.

    ``opened_at`` is the time of its first subscription, ``answers`` has the times of all responses. With
    ``confirms_positions`` it behaves as a client of the Pub/Sub API, else as one of the Streaming API.
    """

    payload_encoding: ClassVar[PayloadEncoding] = "avro"
    bus: Bus
    random: Random
    weather: Weather
    confirms_positions: bool
    answers: list[float]
    managed: ManagedRecord | None = None
    opened_at: float | None = None
    _open: list[Arrivals] = field(default_factory=list)

    def subscribe(
        self,
        topic: str,
        after: bytes | StartFrom,
        *,
        limit: int | None,
        idle_timeout: float,
        answer_within: float | None = None,
    ) -> Generator[EventBatch | None, None, None]:
        time = self.bus.time
        if self.opened_at is None:
            self.opened_at = time.seconds
        if self.confirms_positions:
            yield from self.silence(server_received_at := self.time_received(time.seconds + self.delay()), idle_timeout)
        else:  # the Streaming API opens a session first and replies to the subscription
            server_received_at = self.reach()
        yield from self.batches(self.server(after, server_received_at, limit, answer_within), idle_timeout)

    def server(
        self, after: bytes | StartFrom, server_received_at: float, limit: int | None, answer_within: float | None
    ) -> Server:
        """Return the server side of a subscription that the server has received.

        :raises ReplayIdLostError: if the server rejects the replay ID.
        """
        return Server(
            self.bus,
            self.random,
            self.weather,
            place=self.bus.start_of(after, server_received_at),
            server_received_at=server_received_at,
            limit=limit,
            answer_within=answer_within,
            names_positions=self.confirms_positions,
            has_backlog=after is not StartFrom.LATEST,
        )

    def open(self, server: Server) -> Arrivals:
        """Register a new subscription and return its pending responses."""
        self._open.append(Arrivals(server))
        return self._open[-1]

    def close(self, arrivals: Arrivals) -> None:
        """End a subscription."""
        self._open.remove(arrivals)

    def drops_at(self) -> float:
        """Return the time at which the network drops a subscription that is opened now, infinity for never."""
        is_dropped = self.random.random() < self.weather.drops
        return self.bus.time.seconds + self.random.expovariate(1 / 120) if is_dropped else inf

    def batches(self, server: Server, idle_timeout: float) -> Generator[EventBatch | None, None, None]:
        """Yield each response of a subscription when it arrives, and ``None`` after ``idle_timeout`` without one."""
        time, arrivals, ends_at = self.bus.time, self.open(server), self.drops_at()
        try:
            while server.left != 0 or arrivals.sent:
                deadline = time.seconds + idle_timeout
                arrival = self.next_arrival(arrivals, deadline)
                if ends_at <= min(deadline, arrival):
                    time.seconds = max(time.seconds, ends_at)
                    raise ServiceUnavailableError("The stream was dropped.")
                time.seconds = max(time.seconds, min(arrival, deadline))
                if arrival > deadline:
                    yield None
                    continue
                self.answers.append(time.seconds)
                yield self.batch(arrivals.sent.popleft()[1])
        finally:
            self.close(arrivals)

    def latest(self, topic: str, *, idle_timeout: float) -> Generator[EventBatch | None, None, None]:
        """Open an unmanaged subscription to new events that requests one event."""
        return self.subscribe(topic, StartFrom.LATEST, limit=1, idle_timeout=idle_timeout)

    def managed_subscribe(
        self, subscription: ManagedSubscription, *, limit: int | None, idle_timeout: float, **_: Any
    ) -> SimulatedManagedStream:
        """Open the stream of the managed subscription."""
        if self.opened_at is None:
            self.opened_at = self.bus.time.seconds
        assert self.managed is not None
        return SimulatedManagedStream(self, self.managed, limit, idle_timeout)

    def in_contact(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        """Return Salesforce's time from the ``Date`` header of a response, or ``None`` if a proxy removes it."""
        time, sent = self.bus.time, clock()
        try:
            server_received_at = self.reach()
        except ContactError:
            return None
        time.seconds = max(time.seconds, server_received_at + self.delay())
        if not self.weather.has_server_time:
            return None
        return ServerTime(time.true(server_received_at).replace(microsecond=0), sent, clock())

    def silence(self, until: float, idle_timeout: float) -> Generator[None, None, None]:
        """Wait until the server receives a request. Yield ``None`` after each ``idle_timeout``."""
        time = self.bus.time
        while until > time.seconds + idle_timeout:
            time.sleep(idle_timeout)
            yield None
        time.seconds = max(time.seconds, until)

    def next_arrival(self, arrivals: Arrivals, deadline: float) -> float:
        """Return the time of arrival of the next response, infinity if the server does not send it by ``deadline``."""
        while not arrivals.sent:
            response = arrivals.server.next_response(deadline)
            if response is None:
                return inf
            self._send(arrivals, response)
        return arrivals.sent[0][0]

    def _send(self, arrivals: Arrivals, response: Response) -> None:
        arrivals.last = max(arrivals.last, response.sent_at + self.delay())
        arrivals.sent.append((arrivals.last, response))

    def delay(self) -> float:
        """Return a random network delay of a message, in either direction."""
        random = self.random
        slow = random.uniform(1, 25) if random.random() < self.weather.slow_answers else 0.0
        return self.weather.latency * random.uniform(0.5, 1.5) + slow

    def batch(self, response: Response) -> EventBatch:
        """Return the event batch that the client yields for a response."""
        events, received = response.events, self.bus.time.now()
        return EventBatch(
            replay_ids=[event.replay_id for event in events],
            event_ids=[None] * len(events),
            schema_ids=[SCHEMA_ID] * len(events),
            payloads=[avro_payload(event.event_time) for event in events],
            latest_replay_id=response.latest,
            pending=response.pending,
            received_at=(received - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1_000,
        )

    def prove_contact(self, topic: str) -> None:
        """Make a call and wait for its response. All responses that were sent before it have arrived by then."""
        time = self.bus.time
        if self.confirms_positions:
            answered_at = self.reach()
            arrived_at = answered_at + self.delay()
            for arrivals in self._open:
                while (response := arrivals.server.next_response(answered_at)) is not None:
                    self._send(arrivals, response)
                arrivals.last = arrived_at = max(arrivals.last, arrived_at)
            time.seconds = max(time.seconds, arrived_at)
        else:  # the poll's response proves the contact; the subscription yields it next
            latest = time.seconds + LONGEST_POLL + CALL_TIMEOUT
            arrival = self.next_arrival(self._open[-1], latest) if self._open else inf
            time.seconds = max(time.seconds, min(arrival, latest))
            if arrival == inf:
                raise ServiceUnavailableError("No poll was answered.")
        self.answers.append(time.seconds)

    def reach(self) -> float:
        """Wait until the server receives a call and return that time.

        :raises ContactError: if the server does not receive it within :data:`CALL_TIMEOUT`.
        """
        time = self.bus.time
        server_received_at = self.time_received(time.seconds + self.delay())
        if server_received_at > time.seconds + CALL_TIMEOUT:
            time.sleep(CALL_TIMEOUT)
            raise ContactError("Nothing answered.")
        time.seconds = max(time.seconds, server_received_at)
        return server_received_at

    def time_received(self, at: float) -> float:
        """Return the time at which the server receives a message that arrives ``at``: after a silent span."""
        start, end = self.weather.server_silent
        return end if start <= at < end else at

    def schema(self, schema_id: str) -> str:
        return SCHEMA

    def renew_session(self) -> None:
        raise AssertionError("No session ends here.")
