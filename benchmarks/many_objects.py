"""Benchmarks ``many_objects_event_log``, ``many_objects_replica``, ``many_objects_next``: the jobs in the worker's own
process over the same number of change events of 1, 50 and 200 objects on one channel, and a later small window.

The sizes run in turn, several rounds after one that does not count; medians. ``ratio`` is the CPU seconds for 200
objects divided by those for one. ``many_objects_next`` is a window of 2,000 events over 200 objects, for a replica that
has taken in the large one. ``seconds`` are CPU seconds. Prints one JSON line for each.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from airflow_provider_sfstream.actions.worker_files import WorkerFiles
from airflow_provider_sfstream.tables.event_log import job as event_log
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.replica import job as replica
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field
from tests.support.change_lake import START, TOPIC, change
from tests.support.landing_files import LandedEvent, encode, land_window

OBJECTS = (1, 50, 200)
_TEXTS = tuple(Field(f"Text{n}__c", "Text") for n in range(10))
ENTITIES = [Entity(f"Thing{n}__c", f"a{n:02x}", (Field("Name", "Text"), *_TEXTS)) for n in range(max(OBJECTS))]
SCHEMAS = {entity.name: entity.schema() for entity in ENTITIES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=("event_log", "replica"))
    given = parser.parse_args()
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        landed = {count: land(folder / f"landing{count}", given.events, count) for count in OBJECTS}
        jobs: dict[str, Callable[[str, str], Any]] = {"event_log": run_event_log, "replica": run_replica}
        for kind, job in jobs.items():
            if given.only not in (None, kind):
                continue
            seconds: dict[int, list[float]] = {count: [] for count in OBJECTS}
            for _ in range(given.rounds + 1):
                for count, manifest in landed.items():
                    output = folder / f"{kind}{count}"
                    shutil.rmtree(output, ignore_errors=True)
                    seconds[count].append(cpu_seconds(job, manifest, str(output)))
            medians = {count: statistics.median(each[1:]) for count, each in seconds.items()}
            report(f"many_objects_{kind}", medians[OBJECTS[-1]] / medians[1], seconds=medians)
        if given.only == "event_log":
            return
        most = OBJECTS[-1]
        later: list[float] = []
        for number in range(1, given.rounds + 2):
            manifest = land(folder / f"landing{most}", 2_000, most, number, given.events)
            later.append(cpu_seconds(run_replica, manifest, str(folder / f"replica{most}")))
        report("many_objects_next", None, seconds=statistics.median(later[1:]))


def run_event_log(manifest: str, output: str) -> None:
    with tempfile.TemporaryDirectory() as copies:
        engine = EmbeddedEngine(WorkerFiles(None), WorkerFiles(None), copies)
        event_log.run(engine, EventLogConfig(manifests=(manifest,), output_url=output))


def run_replica(manifest: str, output: str) -> None:
    with tempfile.TemporaryDirectory() as copies:
        engine = EmbeddedEngine(WorkerFiles(None), WorkerFiles(None), copies)
        replica.run(engine, ReplicaConfig(manifests=(manifest,), output_url=output))


def cpu_seconds(work: Callable[[str, str], Any], manifest: str, output: str) -> float:
    begun = time.process_time()
    work(manifest, output)
    return time.process_time() - begun


def land(folder: Path, count: int, objects: int, number: int = 0, before: int = 0) -> str:
    """Land a window of change events, of all objects in turn; return its manifest's URL.

    :param number: of the window.
    :param before: events in the windows before it.
    """
    payloads = {entity.name: [_payload(entity, n) for n in range(50)] for entity in ENTITIES[:objects]}
    first = before + (number - 1) * 2_000 if number else 0
    events = []
    for n in range(count):
        entity = ENTITIES[n % objects]
        events.append(LandedEvent(first + n + 1, entity.name, payloads[entity.name][n // objects % 50]))
    schemas = {entity.name: SCHEMAS[entity.name] for entity in ENTITIES[:objects]}
    window_id = "20260110T{:02d}0000Z-window{}"
    link: dict[str, Any] = {}
    if number:
        link = {
            "previous_window_id": window_id.format(number - 1, number - 1),
            "after": LandedEvent(first, None, b"").replay_id,
        }
    name = window_id.format(number, number)
    return land_window(folder, name, events, schemas, event_times=(START, START), topic=TOPIC, parts=4, **link)


def _payload(entity: Entity, number: int) -> bytes:
    texts = {field.name: f"{field.name} of {number} and some more words" for field in _TEXTS}
    record_id = f"{entity.key_prefix}{number:012d}AAA"
    event = change(number, "CREATE", [record_id], f"t{number}", entity=entity, Name=f"name {number}", **texts)
    return encode(SCHEMAS[entity.name], event.record)  # type: ignore[arg-type]


def report(benchmark: str, ratio: float | None, **more: Any) -> None:
    rounded = json.loads(json.dumps(more), parse_float=lambda text: round(float(text), 3))
    print(json.dumps({"benchmark": benchmark, "ratio": ratio and round(ratio, 2), **rounded}), flush=True)


if __name__ == "__main__":
    main()
