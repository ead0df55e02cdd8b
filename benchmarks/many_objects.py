"""Benchmarks ``many_objects_event_log``, ``many_objects_replica``, ``many_objects_next``: jobs on many objects.

The embedded jobs process the same number of change events of 1, 50 and 200 objects on one channel, and a later small
window. The sizes run alternately for several rounds after a warm-up round; the results are medians. ``ratio`` is the
CPU seconds for 200 objects divided by those for one. ``many_objects_next`` is a window of 2,000 events of 200 objects,
for a replica that has applied the large window. ``seconds`` are CPU seconds, ``elapsed`` is the duration. It prints
one JSON line for each benchmark.

``--snapshots`` runs two others instead. ``many_objects_wide``: 200 tables of 800 columns and thirteen windows, of which
all but the first have one event of one object; ``read`` has the bytes of text files that the last run reads, by folder.
``many_objects_pruned``: windows of one event for each of 200 objects; ``ratio`` is the CPU seconds of the run that
first removes a snapshot divided by those without the removal, ``log_openings`` are those of the last two runs.

``--tables`` runs ``many_objects_tables`` instead: the event log over 2,000 events of one object, in a folder with 200
other tables of 100 files each; ``ratio`` is the CPU seconds divided by those in an empty folder, medians of the rounds.

``--dirty`` runs ``many_objects_dirty`` instead: a change of one of 200,000 records, in a replica with one dirty row;
``ratio`` is the CPU seconds divided by those without a dirty row, medians of the rounds.

``--held`` runs ``many_objects_held`` instead: 90 windows of 500 events each, all of one transaction; ``ratio`` is the
CPU seconds of the last ten runs that hold it back divided by those of the third to the twelfth. ``settled`` is the run
that applies it.
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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
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
    parser.add_argument("--snapshots", action="store_true")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--dirty", action="store_true")
    parser.add_argument("--held", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        others: dict[str, Callable[[Path, int], None]] = {
            "snapshots": run_snapshots,
            "tables": run_tables,
            "dirty": run_dirty,
            "held": run_held,
        }
        if chosen := [run for name, run in others.items() if getattr(given, name)]:
            chosen[0](folder, given.rounds)
            return
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
        later: list[tuple[float, float]] = []
        for number in range(1, given.rounds + 2):
            manifest = land(folder / f"landing{most}", 2_000, most, number, given.events)
            begun = time.perf_counter()
            used = cpu_seconds(run_replica, manifest, str(folder / f"replica{most}"))
            later.append((used, time.perf_counter() - begun))
        seconds, elapsed = map(statistics.median, zip(*later[1:], strict=True))
        report("many_objects_next", None, seconds=seconds, elapsed=elapsed)


def run_snapshots(folder: Path, _: int) -> None:
    run_wide(folder / "wide")
    run_pruned(folder / "pruned")


def run_wide(folder: Path) -> None:
    texts = tuple(Field(f"Custom_Field_Number_{n}__c", "Text") for n in range(799))
    entities = [Entity(f"Wide{n}__c", f"b{n:02x}", (Field("Name", "Text"), *texts)) for n in range(max(OBJECTS))]
    for number in range(13):
        manifest = land_one_each(folder / "landing", number, entities if number == 0 else entities[:1], len(entities))
        with counted() as (read, openings):
            seconds = cpu_seconds(run_replica, manifest, str(folder / "replica"))
    sizes = [path.stat().st_size for path in (folder / "replica/_sfstream/replica/snapshots").glob("*.json")]
    report("many_objects_wide", None, seconds=seconds, read=read, log_openings=openings.total(), snapshot=max(sizes))


def run_pruned(folder: Path) -> None:
    removing, openings = list[float](), list[int]()
    forget = replica.forget_snapshots

    def timed(*arguments: Any) -> None:
        begun = time.process_time()
        forget(*arguments)
        removing.append(time.process_time() - begun)

    with mock.patch.object(replica, "forget_snapshots", timed):
        for number in range(11):  # one more than the number of retained snapshots
            manifest = land_one_each(folder / "landing", number, ENTITIES, len(ENTITIES))
            with counted() as (_, opened):
                seconds = cpu_seconds(run_replica, manifest, str(folder / "replica"))
            openings.append(opened.total())
    rest = seconds - removing[-1]
    report("many_objects_pruned", seconds / rest, seconds=[rest, seconds], log_openings=openings[-2:])


def run_tables(folder: Path, rounds: int) -> None:
    manifest = land(folder / "landing", 2_000, 1)
    schema = pa.schema([("_replay_id", pa.binary()), ("event_date", pa.date32())])
    for number in range(200):
        log = DeltaTableLog(TableLocation(str(folder / f"full/Other{number}__e")))
        day = {"event_date": "2026-01-01"}
        files = [TableFile(f"event_date=2026-01-01/w{n}/part-{n}.parquet", 1_000, 10, "{}", day) for n in range(100)]
        log.commit(log.version(), schema, files, [], ["event_date"])
        (folder / f"full/Other{number}__e/event_date=2026-01-01").mkdir()
    seconds: dict[str, list[float]] = {"full": [], "empty": []}
    for number in range(rounds + 1):
        seconds["full"].append(cpu_seconds(run_event_log, manifest, str(folder / "full")))
        seconds["empty"].append(cpu_seconds(run_event_log, manifest, str(folder / f"empty{number}")))
    medians = {name: statistics.median(each[1:]) for name, each in seconds.items()}
    report("many_objects_tables", medians["full"] / medians["empty"], seconds=medians)


def run_dirty(folder: Path, rounds: int, rows: int = 200_000) -> None:
    entity, schema = ENTITIES[0], SCHEMAS[ENTITIES[0].name]
    seconds: dict[str, list[float]] = {"UPDATE": [], "GAP_UPDATE": []}

    def event(number: int, kind: str, record: int) -> LandedEvent:
        values = {} if kind == "GAP_UPDATE" else {"Name": f"name {number}"}
        found = change(number, kind, [f"{entity.key_prefix}{record:012d}AAA"], f"t{number}", entity=entity, **values)
        return LandedEvent(number, entity.name, encode(schema, found.record))  # type: ignore[arg-type]

    created = [event(n + 1, "CREATE", n) for n in range(rows)]
    for kind, each in seconds.items():
        for number in range(rounds + 3):
            later = [event(rows + number, kind if number == 1 else "UPDATE", 7 if number == 1 else rows // 2)]
            events, before = (created, 0) if number == 0 else (later, rows + number - 1)
            manifest = _land(folder / kind, number, before, events, {entity.name: schema})
            each.append(cpu_seconds(run_replica, manifest, str(folder / f"{kind}-replica")))
    medians = {kind: statistics.median(each[3:]) for kind, each in seconds.items()}
    report("many_objects_dirty", medians["GAP_UPDATE"] / medians["UPDATE"], seconds=medians)


def run_held(folder: Path, _: int, windows: int = 90, size: int = 500) -> None:
    entity, schema = ENTITIES[0], SCHEMAS[ENTITIES[0].name]
    seconds = []
    for number in range(windows + 1):
        first = number * size
        numbers = range(first + 1, first + (size if number < windows else 1) + 1)
        transaction = "held" if number < windows else "last"
        events = [
            change(n, "CREATE", [f"{entity.key_prefix}{n:012d}AAA"], transaction, entity=entity, Name=f"name {n}")
            for n in numbers
        ]
        landed = [
            LandedEvent(n, entity.name, encode(schema, each.record)) for n, each in zip(numbers, events, strict=True)
        ]
        manifest = _land(folder / "landing", number, first, landed, {entity.name: schema}, stop_reason="max_events")
        seconds.append(cpu_seconds(run_replica, manifest, str(folder / "replica")))
    early, late = sum(seconds[2:12]), sum(seconds[-11:-1])
    report("many_objects_held", late / early, seconds=[early, late], settled=seconds[-1], total=sum(seconds))


@contextmanager
def counted() -> Iterator[tuple[Counter[str], Counter[str]]]:
    """Yield counters: the bytes of text files read by folder, and the openings of each table's log."""
    read, openings = Counter[str](), Counter[str]()
    read_text, open_log = ObjectStorageFiles.read_text, DeltaTableLog._open

    def reading(files: ObjectStorageFiles, url: str) -> str:
        text = read_text(files, url)
        folders = [name for name in ("snapshots", "schemas") if f"/replica/{name}/" in url]
        read[folders[0] if folders else "others"] += len(text)
        return text

    def opening(log: DeltaTableLog, number: int | None = None) -> Any:
        openings[log.location.uri] += 1
        return open_log(log, number)

    with (
        mock.patch.object(ObjectStorageFiles, "read_text", reading),
        mock.patch.object(DeltaTableLog, "_open", opening),
    ):
        yield read, openings


def run_event_log(manifest: str, output: str) -> None:
    with tempfile.TemporaryDirectory() as copies:
        engine = EmbeddedEngine(ObjectStorageFiles(None), ObjectStorageFiles(None), copies)
        event_log.run(engine, EventLogConfig(manifests=(manifest,), output_url=output))


def run_replica(manifest: str, output: str) -> None:
    with tempfile.TemporaryDirectory() as copies:
        engine = EmbeddedEngine(ObjectStorageFiles(None), ObjectStorageFiles(None), copies)
        replica.run(engine, ReplicaConfig(manifests=(manifest,), output_url=output))


def cpu_seconds(work: Callable[[str, str], Any], manifest: str, output: str) -> float:
    begun = time.process_time()
    work(manifest, output)
    return time.process_time() - begun


def land_one_each(folder: Path, number: int, entities: Sequence[Entity], first: int) -> str:
    """Land a window with one change event of each object; return its manifest's URL.

    :param number: number of the window.
    :param first: number of events in the first window.
    """
    before = 0 if number == 0 else first + (number - 1) * len(entities)
    events, schemas = [], {}
    for n, entity in enumerate(entities):
        schema, record_id = entity.schema(), f"{entity.key_prefix}{number:012d}AAA"
        event = change(before + n + 1, "CREATE", [record_id], f"t{number}-{n}", entity=entity, Name=f"name {number}")
        events.append(LandedEvent(before + n + 1, entity.name, encode(schema, event.record)))  # type: ignore[arg-type]
        schemas[entity.name] = schema
    return _land(folder, number, before, events, schemas)


def land(folder: Path, count: int, objects: int, number: int = 0, before: int = 0) -> str:
    """Land a window of change events that rotate over all objects; return its manifest's URL.

    :param number: number of the window.
    :param before: number of events in earlier windows.
    """
    payloads = {entity.name: [_payload(entity, n) for n in range(50)] for entity in ENTITIES[:objects]}
    first = before + (number - 1) * 2_000 if number else 0
    events = []
    for n in range(count):
        entity = ENTITIES[n % objects]
        events.append(LandedEvent(first + n + 1, entity.name, payloads[entity.name][n // objects % 50]))
    return _land(folder, number, first, events, {entity.name: SCHEMAS[entity.name] for entity in ENTITIES[:objects]})


def _land(folder: Path, number: int, first: int, events: Sequence[LandedEvent], schemas: Any, **window: Any) -> str:
    """Land a window.

    :param number: number of the window.
    :param first: number of the last event before the window.
    """
    window_id = "20260110T{:02d}0000Z-window{}"
    link = window
    if number:
        link |= {
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
