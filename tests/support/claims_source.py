"""A client of the bus in memory, in any weather: slow, silent in part or whole, dropped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf
from random import Random
from typing import ClassVar

from airflow_provider_sfstream.exceptions import ContactError, ServiceUnavailableError
from airflow_provider_sfstream.reading.source import EventBatch, PayloadEncoding, StartFrom
from tests.support.claims_bus import Bus, BusEvent, replay_id_of
from tests.support.scripted_source import SCHEMA, SCHEMA_ID, avro_payload

CALL_TIMEOUT = 30.0
"""Seconds after which a call that nobody answers ends."""
LONGEST_POLL = 110.0


@dataclass(frozen=True)
class Weather:
    """How network and server are while one client is open."""

    latency: float = 0.2
    slow_answers: float = 0.0
    server_silent: tuple[float, float] = (0.0, 0.0)
    stream_silent: tuple[float, float] = (0.0, 0.0)
    drops: float = 0.0
    keepalive: float = 60.0
    slow_start: float = 0.0


@dataclass
class SimulatedSource:
    """One client of the bus. ``opened_at`` is when its last subscription was asked for, ``answers`` when any came.

    With ``confirms_positions`` it is as the Pub/Sub API, without as the Streaming API.
    """

    payload_encoding: ClassVar[PayloadEncoding] = "avro"
    bus: Bus
    random: Random
    weather: Weather
    confirms_positions: bool
    answers: list[float]
    opened_at: float = 0.0
    _server: _Server | None = None
    _sent: deque[tuple[float, _Response]] = field(default_factory=deque)
    _last_arrival: float = 0.0
    _is_beside: bool = False

    def subscribe(
        self,
        topic: str,
        start: bytes | StartFrom,
        *,
        limit: int | None,
        idle_timeout: float,
        answer_within: float | None = None,
    ) -> Iterator[EventBatch | None]:
        if limit == 1 and start is StartFrom.LATEST and not self._is_beside:  # what looks for the end of a busy stream
            beside = replace(self, _server=None, _sent=deque(), _is_beside=True)
            yield from beside.subscribe(topic, start, limit=limit, idle_timeout=idle_timeout)
            return
        time, random = self.bus.time, self.random
        self.opened_at = time.seconds
        self._server = None
        self._sent.clear()
        if self.confirms_positions:
            yield from self._silence(heard_at := self._heard(time.seconds + self._delay()), idle_timeout)
        else:  # a session is opened first, and the subscription is answered
            heard_at = self._reach()
        place = self.bus.start_of(start, heard_at)
        server = self._server = _Server(self, place, heard_at, limit, answer_within)
        ends_at = time.seconds + random.expovariate(1 / 120) if random.random() < self.weather.drops else inf
        while server.left != 0 or self._sent:
            deadline = time.seconds + idle_timeout
            arrival = self._next_arrival(deadline)
            if ends_at <= min(deadline, arrival):
                time.seconds = max(time.seconds, ends_at)
                raise ServiceUnavailableError("The stream was dropped.")
            time.seconds = max(time.seconds, min(arrival, deadline))
            if arrival > deadline:
                yield None
                continue
            self.answers.append(time.seconds)
            yield self._batch(self._sent.popleft()[1])

    def _silence(self, until: float, idle_timeout: float) -> Iterator[None]:
        """Wait for a request to be heard, and look at the clock meanwhile."""
        time = self.bus.time
        while until > time.seconds + idle_timeout:
            time.sleep(idle_timeout)
            yield None
        time.seconds = max(time.seconds, until)

    def _next_arrival(self, deadline: float) -> float:
        """Return when the next response comes, if that is by ``deadline``."""
        assert self._server is not None
        while not self._sent:
            response = self._server.next_response(deadline)
            if response is None:
                return inf
            self._send(response)
        return self._sent[0][0]

    def _send(self, response: _Response) -> None:
        self._last_arrival = max(self._last_arrival, response.sent_at + self._delay())
        self._sent.append((self._last_arrival, response))

    def _delay(self) -> float:
        random = self.random
        slow = random.uniform(1, 25) if random.random() < self.weather.slow_answers else 0.0
        return self.weather.latency * random.uniform(0.5, 1.5) + slow

    def _batch(self, response: _Response) -> EventBatch:
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
        """Ask for something, and wait for the answer; what was sent before that has come by then."""
        time = self.bus.time
        if self.confirms_positions:
            answered_at = self._reach()
            while self._server is not None and (response := self._server.next_response(answered_at)) is not None:
                self._send(response)
            self._last_arrival = max(self._last_arrival, answered_at + self._delay())
            time.seconds = max(time.seconds, self._last_arrival)
        else:  # the poll's own answer, which the next look at the subscription finds
            arrival = self._next_arrival(time.seconds + LONGEST_POLL + CALL_TIMEOUT)
            time.seconds = max(time.seconds, min(arrival, time.seconds + LONGEST_POLL + CALL_TIMEOUT))
            if arrival == inf:
                raise ServiceUnavailableError("No poll was answered.")
        self.answers.append(time.seconds)

    def _reach(self) -> float:
        """Return when the server hears a call, having waited for that.

        :raises ContactError: if it does not hear it for a while.
        """
        time = self.bus.time
        heard_at = self._heard(time.seconds + self._delay())
        if heard_at > time.seconds + CALL_TIMEOUT:
            time.sleep(CALL_TIMEOUT)
            raise ContactError("Nothing answered.")
        time.seconds = max(time.seconds, heard_at)
        return heard_at

    def _heard(self, at: float) -> float:
        start, end = self.weather.server_silent
        return end if start <= at < end else at

    def schema(self, schema_id: str) -> str:
        return SCHEMA

    def renew_session(self) -> None:
        raise AssertionError("No session ends here.")


@dataclass(frozen=True)
class _Response:
    sent_at: float
    events: list[BusEvent]
    latest: bytes
    pending: int


class _Server:
    """What Salesforce does for one subscription, looked at from time to time."""

    def __init__(
        self,
        source: SimulatedSource,
        place: tuple[int, int],
        heard_at: float,
        limit: int | None,
        answer_within: float | None,
    ) -> None:
        self._bus, self._random, self._weather = source.bus, source.random, source.weather
        self._names_positions = source.confirms_positions
        self._place, self.left = place, limit
        self._answered_at = heard_at
        self._ready_at = heard_at + self._weather.slow_start
        longest = 270.0 if self._names_positions else LONGEST_POLL
        wait = self._weather.keepalive if self._names_positions or answer_within is None else answer_within
        self._holds = min(wait, longest)
        self._is_held_long = answer_within is None

    def next_response(self, until: float) -> _Response | None:
        """Return the next response that is sent by ``until``."""
        if self.left == 0:
            return None
        at = max(self._answered_at, self._ready_at)
        empty_at = self._sends_from(max(at, self._answered_at + self._holds))
        waiting = self._bus.after(self._place, min(empty_at, until))
        events_at = self._sends_from(max(at, waiting[0].published)) if waiting else inf
        if events_at <= min(empty_at, until):
            return self._with_events(events_at)
        if empty_at > until:
            return None
        self._answered_at = empty_at
        if not self._names_positions:
            return _Response(empty_at, [], b"", int(self._is_held_long))
        self._place = max(self._place, self._bus.latest(empty_at))
        return _Response(empty_at, [], replay_id_of(*self._place), 100 if self.left is None else self.left)

    def _with_events(self, at: float) -> _Response:
        most = self._random.choice((1, 7, 40))
        most = most if self.left is None else min(most, self.left)
        events = self._bus.after(self._place, at)[:most]
        self._place, self._answered_at = events[-1].place, at
        if self.left is not None:
            self.left -= len(events)
        owed = 100 if self.left is None else self.left
        return _Response(at, events, events[-1].replay_id, owed if self._names_positions else 0)

    def _sends_from(self, at: float) -> float:
        """Return ``at``, or when the silence in which it lies is over."""
        for start, end in sorted((self._weather.server_silent, self._weather.stream_silent)):
            if start <= at < end:
                at = end
        return at
