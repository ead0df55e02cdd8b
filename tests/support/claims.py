"""Random scenarios: does every claim of every green run hold by the bus's own log? One scenario for each seed."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from random import Random

from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.claims_bus import HOUR
from tests.support.claims_dag import some_dag
from tests.support.claims_managed import ManagedRecord
from tests.support.claims_steps import Steps
from tests.support.claims_world import World


@dataclass(frozen=True)
class Report:
    """What a scenario found. ``false`` are kinds of claims and what was claimed."""

    seed: int
    description: str
    green: int
    red: int
    events: int
    checked: Counter[str]
    false: tuple[tuple[str, str], ...]
    lost: int
    twice: int


HAZARDS = frozenset(
    (
        *("weather", "event_times", "clocks", "no_server_time", "kills", "lost_stores", "backups", "resets"),
        *("stalls", "seeks", "standard_volume", "managed"),
    )
)
"""What can go wrong: network and server; wrong event times, wrong clocks of workers, and a time of Salesforce that
cannot be had; kills and rivals; stores lost, or brought back from a backup; streams that are reset; sessions that are
answered and receive nothing, or empty responses while the server still seeks; topics that are retained for 24 hours;
managed subscriptions whose committed position others drop or move."""


def run_scenario(
    seed: int, tell: Callable[[str], None] = lambda text: None, *, hazards: Collection[str] = HAZARDS
) -> Report:
    """Play the scenario of a seed, the same each time, and compare each claim.

    :param tell: is told step by step what happens.
    :param hazards: what may go wrong; with fewer of them, a seed gives another scenario.
    """
    random = Random(seed)
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _play(seed, random, Path(folder), tell, hazards)
    finally:
        logging.disable(logging.NOTSET)


def _play(seed: int, random: Random, folder: Path, tell: Callable[[str], None], hazards: Collection[str]) -> Report:
    managed = "managed" in hazards and random.random() < (1.0 if len(hazards) < 4 else 0.25)
    streaming = not managed and random.random() < 0.3
    topic = random.choice(("/topic/Orders", "/event/Order__e")) if streaming else "/event/Order__e"
    world = World(
        folder,
        random,
        store_kind=random.choice(("table", "variable")),
        streaming=streaming,
        topic=topic,
        standard_volume="standard_volume" in hazards and random.random() < 0.3,
    )
    dag, say = some_dag(random, hazards, managed=managed), lambda text: tell(f"{_shown(world)} {text}")
    steps = Steps(world, random, dag, say, hazards)
    if managed:
        presets = (StartFrom.EARLIEST, StartFrom.LATEST)
        world.managed = ManagedRecord(default_replay=random.choice(presets), error_recovery=random.choice(presets))
    if "clocks" in hazards:
        world.time.skew = random.choice((0.0, 0.0, round(random.uniform(-HOUR, HOUR))))
    world.bus.lag = random.choice((0.0, 0.0, 2 * HOUR))
    world.bus.unordered = "seeks" in hazards and random.random() < 0.15
    api = "managed" if managed else world.stream.api
    description = f"{api} {topic} {world.store_kind} skew {world.time.skew:+.0f} s {steps.dag}"
    tell(description)
    steps.publish_the_past()
    weights = {
        steps.publish: 30,
        steps.scheduled: 30,
        steps.backfill: 7 if steps.dag.by_interval or random.random() < 0.5 else 0,
        steps.cleared: 7,
        steps.killed: 7 * ("kills" in hazards),
        steps.rival: 4 * ("kills" in hazards),
        steps.commit: 12 if steps.dag.manual else 0,
        steps.wait: 7,
        steps.jump: 4,
        steps.lose_store: 2 * ("lost_stores" in hazards),
        steps.restored_backup: 2 * ("backups" in hazards),
        steps.reset_stream: 0.7 * ("resets" in hazards),
        steps.wrong_clock: 2 * ("clocks" in hazards),
        steps.change_managed: 8 * managed,
        steps.stall_delivery: 4 * ("stalls" in hazards),
    }
    try:
        with world.its_time():
            for step in random.choices(list(weights), list(weights.values()), k=random.randint(10, 60)):
                step()
            steps.settle()
    except Exception as error:
        error.add_note(f"in the scenario of seed {seed}: {description}")
        raise
    finally:
        world.close()
    claims = steps.claims
    published = len(world.bus.events)
    return Report(
        seed,
        description,
        steps.green,
        steps.red,
        published,
        claims.checked,
        tuple(claims.false),
        len(claims.lost),
        len(claims.twice),
    )


def _shown(world: World) -> str:
    return f"{world.time.shown(world.time.seconds, 0):%d %H:%M:%S}"
