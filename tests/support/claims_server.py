"""The server side of one subscription to the bus in memory.

A *stalled* subscription gets empty responses and no events, although events are stored. While the server *seeks*
through the backlog of a subscription, it sends empty responses before it has delivered the backlog. Their replay IDs
advance, but never beyond an event that was not delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

from tests.support.claims_bus import Bus, BusEvent, replay_id_of

LONGEST_POLL = 110.0


@dataclass(frozen=True)
class Weather:
    """Behaviour of network and server while one client is open. Times and spans are seconds of the bus.

    :param slow_answers: share of messages with an extra delay of 1 to 25 seconds.
    :param server_silent: span in which the server receives and sends nothing.
    :param stream_silent: span in which the server sends nothing on subscriptions.
    :param drops: share of subscriptions that the network drops.
    :param keepalive: seconds without an event until the server sends an empty response.
    :param slow_start: seconds from the subscription to the first response, at least.
    :param seeks: the server seeks through the backlog.
    :param has_server_time: Salesforce's time can be read.
    """

    latency: float = 0.2
    slow_answers: float = 0.0
    server_silent: tuple[float, float] = (0.0, 0.0)
    stream_silent: tuple[float, float] = (0.0, 0.0)
    drops: float = 0.0
    keepalive: float = 60.0
    slow_start: float = 0.0
    seeks: bool = False
    has_server_time: bool = True


@dataclass(frozen=True)
class Response:
    """Response of a subscription. ``latest`` is its replay ID, ``pending`` the number of requested events to come."""

    sent_at: float
    events: list[BusEvent]
    latest: bytes
    pending: int


class Server:
    """Server side of one subscription. It computes its responses when the client asks for the next one.

    :param server_received_at: time at which the server received the subscription.
    :param limit: number of requested events, ``None`` for no limit.
    :param answer_within: Streaming API: seconds until the server answers a poll without events; ``None``: the
        ``keepalive`` of ``weather``.
    :param names_positions: empty responses have a replay ID (Pub/Sub API).
    """

    def __init__(
        self,
        bus: Bus,
        random: Random,
        weather: Weather,
        *,
        place: tuple[int, int],
        server_received_at: float,
        limit: int | None,
        answer_within: float | None,
        names_positions: bool,
        has_backlog: bool,
    ) -> None:
        self._bus, self._random, self._weather = bus, random, weather
        self._names_positions = names_positions
        self._place, self.left = place, limit
        self._answered_at = server_received_at
        self._ready_at = server_received_at + weather.slow_start
        longest = 270.0 if names_positions else LONGEST_POLL
        wait = weather.keepalive if names_positions or answer_within is None else answer_within
        self._holds = self._seldom = min(wait, longest)
        self._is_held_long = answer_within is None
        self._seeks = names_positions and has_backlog and weather.seeks
        self._seeks_until = server_received_at + random.choice((0, 5, 60, 600, 10_000)) if self._seeks else 0.0
        self._holds_next(server_received_at)
        self._stalls = [stall for stall in bus.stalls if random.random() < stall.share]

    def next_response(self, until: float) -> Response | None:
        """Return the next response if the server sends it by ``until``, else ``None``."""
        if self.left == 0:
            return None
        at = max(self._answered_at, self._ready_at)
        empty_at = self._first_send(max(at, self._answered_at + self._holds))
        waiting = self._bus.after(self._place, min(empty_at, until))
        events_at = self._first_send(self._first_delivery(max(at, waiting[0].published))) if waiting else inf
        if events_at <= min(empty_at, until):
            return self._with_events(events_at)
        if empty_at > until:
            return None
        self._answered_at = empty_at
        self._holds_next(empty_at)
        if not self._names_positions:
            return Response(empty_at, [], b"", int(self._is_held_long))
        self._place = self._named_place(empty_at, waiting)
        latest = replay_id_of(*self._place, self._bus.unordered)
        return Response(empty_at, [], latest, 100 if self.left is None else self.left)

    def _named_place(self, at: float, waiting: list[BusEvent]) -> tuple[int, int]:
        """Return the position that an empty response names: the end of the stream, if no event was held back."""
        if self._is_stalled(at):
            return self._place
        latest = self._bus.latest(at)
        if waiting or at < self._seeks_until:
            before = (waiting[0].era, waiting[0].number - 1) if waiting else latest
            span = before[1] - self._place[1] if before[0] == self._place[0] else 0
            return (self._place[0], self._place[1] + self._random.randint(0, span)) if span > 0 else self._place
        return max(self._place, latest)

    def _with_events(self, at: float) -> Response:
        most = self._random.choice((1, 7, 40))
        most = most if self.left is None else min(most, self.left)
        events = self._bus.after(self._place, at)[:most]
        self._place, self._answered_at = events[-1].place, at
        if self.left is not None:
            self.left -= len(events)
        if self._seeks and self._random.random() < 0.3:
            self._seeks_until = at + self._random.choice((5, 60, 600))
        self._holds_next(at)
        owed = 100 if self.left is None else self.left
        return Response(at, events, events[-1].replay_id, owed if self._names_positions else 0)

    def _holds_next(self, at: float) -> None:
        """Choose the time without an event until the next empty response; it is shorter while the server seeks."""
        is_seeking = at < self._seeks_until
        self._holds = min(self._seldom, self._random.uniform(1, 20)) if is_seeking else self._seldom

    def _is_stalled(self, at: float) -> bool:
        return any(stall.start <= at < stall.end for stall in self._stalls)

    def _first_delivery(self, at: float) -> float:
        """Return the first time from ``at`` at which the server can deliver an event: after seeking and stalls."""
        at = max(at, self._seeks_until)
        for stall in sorted(self._stalls, key=lambda stall: stall.start):
            if stall.start <= at < stall.end:
                at = stall.end
        return at

    def _first_send(self, at: float) -> float:
        """Return the first time from ``at`` at which neither the server nor the stream is silent."""
        for start, end in sorted((self._weather.server_silent, self._weather.stream_silent)):
            if start <= at < end:
                at = end
        return at
