"""Random scenarios that compare each claim of each successful run with the event bus's own log.

A seed determines a scenario.
"""

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
from tests.support.claims_dag import random_dag
from tests.support.claims_managed import ManagedRecord
from tests.support.claims_steps import Steps
from tests.support.claims_world import World


@dataclass(frozen=True)
class Report:
    """Result of a scenario.

    ``green`` and ``red`` count the successful and the failed runs, ``checked`` counts the compared claims by kind.
    ``false_claims`` has kind and text of each false claim. ``lost`` and ``duplicates`` count events.
    """

    seed: int
    description: str
    green: int
    red: int
    events: int
    checked: Counter[str]
    false_claims: tuple[tuple[str, str], ...]
    lost: int
    duplicates: int


HAZARDS = frozenset(
    (
        *("weather", "event_times", "clocks", "no_server_time", "kills", "lost_stores", "backups", "resets"),
        *("stalls", "seeks", "standard_volume", "managed"),
    )
)
"""The hazards of a scenario:

- ``weather``: faults of the network and the server
- ``event_times``, ``clocks``, ``no_server_time``: wrong event times, wrong clocks of workers, no time from Salesforce
- ``kills``: killed runs, and runs that a concurrent run overtakes
- ``lost_stores``, ``backups``: a lost replay store, or one that is restored from a backup
- ``resets``: a stream that is reset
- ``stalls``, ``seeks``: sessions that get replies but no events, and empty responses while the server still seeks
- ``standard_volume``: a topic with a retention of 24 hours
- ``managed``: a managed subscription whose committed position another client deletes or changes
"""


def run_scenario(
    seed: int, log_step: Callable[[str], None] = lambda text: None, *, hazards: Collection[str] = HAZARDS
) -> Report:
    """Run the scenario of a seed and check each claim. The same seed and hazards repeat the same scenario.

    :param log_step: called with a line of text for each step.
    :param hazards: hazards that may occur. The scenario of a seed depends on them.
    """
    random = Random(seed)
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _play(seed, random, Path(folder), log_step, hazards)
    finally:
        logging.disable(logging.NOTSET)


def _play(seed: int, random: Random, folder: Path, log_step: Callable[[str], None], hazards: Collection[str]) -> Report:
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
    dag = random_dag(random, hazards, managed=managed)
    steps = Steps(world, random, dag, lambda text: log_step(f"{_shown(world)} {text}"), hazards)
    if managed:
        presets = (StartFrom.EARLIEST, StartFrom.LATEST)
        world.managed = ManagedRecord(default_replay=random.choice(presets), error_recovery=random.choice(presets))
    if "clocks" in hazards:
        world.time.skew = random.choice((0.0, 0.0, round(random.uniform(-HOUR, HOUR))))
    world.bus.lag = random.choice((0.0, 0.0, 2 * HOUR))
    world.bus.unordered = "seeks" in hazards and random.random() < 0.15
    api = "managed" if managed else world.stream.api
    description = f"{api} {topic} {world.store_kind} skew {world.time.skew:+.0f} s {steps.dag}"
    log_step(description)
    steps.publish_the_past()
    weights = {
        steps.publish: 30,
        steps.run_scheduled: 30,
        steps.backfill: 7 if steps.dag.by_interval or random.random() < 0.5 else 0,
        steps.rerun: 7,
        steps.kill_run: 7 * ("kills" in hazards),
        steps.overtake_run: 4 * ("kills" in hazards),
        steps.commit: 12 if steps.dag.manual else 0,
        steps.wait: 7,
        steps.change_clock: 4,
        steps.lose_store: 2 * ("lost_stores" in hazards),
        steps.restore_backup: 2 * ("backups" in hazards),
        steps.reset_stream: 0.7 * ("resets" in hazards),
        steps.run_with_wrong_clock: 2 * ("clocks" in hazards),
        steps.change_managed: 8 * managed,
        steps.stall_delivery: 4 * ("stalls" in hazards),
    }
    try:
        with world.simulated_time():
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
        tuple(claims.false_claims),
        len(claims.lost),
        len(claims.duplicates),
    )


def _shown(world: World) -> str:
    return f"{world.time.shown(world.time.seconds, 0):%d %H:%M:%S}"
