"""The server side of one subscription to the bus in memory.

A subscription that is *stalled* is answered and receives nothing, though events are stored. One that *seeks* through
its backlog is sent empty responses before the backlog is at its end; the replay IDs that they name advance, never over
an event that was not delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

from tests.support.claims_bus import Bus, BusEvent, replay_id_of

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
    seeks: bool = False
    has_server_time: bool = True


@dataclass(frozen=True)
class Response:
    """A response, with the replay ID that it names and how many events are owed."""

    sent_at: float
    events: list[BusEvent]
    latest: bytes
    pending: int


class Server:
    """What Salesforce does for one subscription, looked at from time to time."""

    def __init__(
        self,
        bus: Bus,
        random: Random,
        weather: Weather,
        *,
        place: tuple[int, int],
        heard_at: float,
        limit: int | None,
        answer_within: float | None,
        names_positions: bool,
        has_backlog: bool,
    ) -> None:
        self._bus, self._random, self._weather = bus, random, weather
        self._names_positions = names_positions
        self._place, self.left = place, limit
        self._answered_at = heard_at
        self._ready_at = heard_at + weather.slow_start
        longest = 270.0 if names_positions else LONGEST_POLL
        wait = weather.keepalive if names_positions or answer_within is None else answer_within
        self._holds = self._seldom = min(wait, longest)
        self._is_held_long = answer_within is None
        self._seeks = names_positions and has_backlog and weather.seeks
        self._seeks_until = heard_at + random.choice((0, 5, 60, 600, 10_000)) if self._seeks else 0.0
        self._holds_next(heard_at)
        self._stalls = [stall for stall in bus.stalls if random.random() < stall.share]

    def next_response(self, until: float) -> Response | None:
        """Return the next response that is sent by ``until``."""
        if self.left == 0:
            return None
        at = max(self._answered_at, self._ready_at)
        empty_at = self._sends_from(max(at, self._answered_at + self._holds))
        waiting = self._bus.after(self._place, min(empty_at, until))
        events_at = self._sends_from(self._delivers_from(max(at, waiting[0].published))) if waiting else inf
        if events_at <= min(empty_at, until):
            return self._with_events(events_at)
        if empty_at > until:
            return None
        self._answered_at = empty_at
        self._holds_next(empty_at)
        if not self._names_positions:
            return Response(empty_at, [], b"", int(self._is_held_long))
        self._place = self._place_named(empty_at, waiting)
        latest = replay_id_of(*self._place, self._bus.unordered)
        return Response(empty_at, [], latest, 100 if self.left is None else self.left)

    def _place_named(self, at: float, waiting: list[BusEvent]) -> tuple[int, int]:
        """Return the place that an empty response names: the end of the stream, if no event was held back."""
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
        """Choose after which time without an event the next empty response is sent: sooner while it seeks."""
        is_seeking = at < self._seeks_until
        self._holds = min(self._seldom, self._random.uniform(1, 20)) if is_seeking else self._seldom

    def _is_stalled(self, at: float) -> bool:
        return any(stall.start <= at < stall.end for stall in self._stalls)

    def _delivers_from(self, at: float) -> float:
        """Return from when on an event can be delivered that could be ``at`` otherwise."""
        at = max(at, self._seeks_until)
        for stall in sorted(self._stalls, key=lambda stall: stall.start):
            if stall.start <= at < stall.end:
                at = stall.end
        return at

    def _sends_from(self, at: float) -> float:
        """Return ``at``, or when the silence in which it lies is over."""
        for start, end in sorted((self._weather.server_silent, self._weather.stream_silent)):
            if start <= at < end:
                at = end
        return at
