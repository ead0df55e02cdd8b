"""Random DAG arguments and random network conditions of a scenario."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random

from airflow_provider_sfstream.salesforce.streams import RunIdentity, Span
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.claims_bus import HOUR
from tests.support.claims_server import Weather

YEAR = 365 * 24 * HOUR


@dataclass(frozen=True)
class Task:
    """One run of the drain task. ``interval`` is the interval of an interval run, else ``None``."""

    run: RunIdentity
    interval: Span | None
    backfill: bool = False
    reuse: bool = True

    @property
    def is_live(self) -> bool:
        return not self.backfill


@dataclass(frozen=True)
class Dag:
    """The arguments of the drain in a scenario."""

    by_interval: bool
    start_from: StartFrom
    on_invalid_replay: str
    on_expired: str
    wait_for_confirmation: bool
    defers: bool
    manual: bool
    max_events: int | None
    event_time_errors: tuple[float, ...]
    clocks_jump: bool


def random_dag(random: Random, hazards: Collection[str], *, managed: bool) -> Dag:
    """Return random arguments of a drain.

    :param managed: return only arguments that are allowed for a drain of a managed subscription.
    """
    by_interval = not managed and random.random() < 0.6
    waits = random.random() < 0.3
    errors = random.choice(
        ((-0.5, -0.1, 0.0), (-1.0, 0.0, 300.0), (-HOUR, 0.0, 0.0, HOUR), (-YEAR, -7200.0, 0.0, 0.0, 7200.0, YEAR))
    )
    return Dag(
        by_interval=by_interval,
        start_from=random.choice((StartFrom.EARLIEST, StartFrom.LATEST)),
        on_invalid_replay=random.choice(("fail", "fail", "earliest", "latest")),
        on_expired=random.choice(("fail", "partial")),
        wait_for_confirmation=waits,
        defers=waits and by_interval and random.random() < 0.5,
        manual=not by_interval and not managed and random.random() < 0.3,
        max_events=random.choice((None, None, 5)),
        event_time_errors=errors if "event_times" in hazards else (-0.5, -0.1, 0.0),
        clocks_jump="clocks" in hazards and random.random() < 0.3,
    )


def random_weather(random: Random, now: float, hazards: Collection[str]) -> Weather:
    """Return random network conditions of a run that begins at ``now``. Only the hazard ``weather`` adds faults."""
    weather = Weather(
        latency=random.uniform(0.05, 0.5),
        keepalive=random.choice((4, 8, 40, 150, 260)),
        seeks="seeks" in hazards and random.random() < 0.4,
        has_server_time=not ("no_server_time" in hazards and random.random() < 0.3),
    )
    if "weather" not in hazards or random.random() < 0.45:
        return weather
    if random.random() < 0.3:
        weather = replace(weather, latency=random.uniform(0.5, 5), slow_answers=random.choice((0, 0.3)))
    if random.random() < 0.3:
        begins = now + random.choice((-1, -1, random.uniform(0, 30)))
        weather = replace(weather, server_silent=(begins, now + random.choice((8, 40, 150, 2000))))
    if random.random() < 0.3:
        begins = now + random.choice((-1, random.uniform(0, 30)))
        weather = replace(weather, stream_silent=(begins, now + random.choice((15, 100, 2000))))
    return replace(weather, drops=random.choice((0, 0, 0.5, 0.9)), slow_start=random.choice((0, 0, 3.5, 20)))
