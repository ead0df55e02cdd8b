"""Landed rows of the same event: the division of keys does not affect the stored rows, and no payload is shuffled."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.tables.event_log import duplicates
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.event_log.duplicates import EVENT_KEYS
from airflow_provider_sfstream.tables.event_log.job import run
from airflow_provider_sfstream.tables.rows.arrow_rows import NO_PLACES, PLACES, Places
from airflow_provider_sfstream.tables.runner.embedded import ArrowFrame, EmbeddedEngine
from tests.support.landing_files import LandedEvent, land_window
from tests.support.scripted_source import SCHEMA, avro_payload

Key = tuple[int, bytes, int | None, int | None]


def keys(rows: Sequence[Key], size: int = 7) -> Iterator[pa.RecordBatch]:
    """Return keys in batches, with those of landed rows first."""
    ordered = sorted(rows, key=lambda row: row[2] is None)
    for start in range(0, len(ordered), size):
        some = [dict(zip(EVENT_KEYS.names, row, strict=True)) for row in ordered[start : start + size]]
        yield pa.RecordBatch.from_pylist(some, schema=EVENT_KEYS)


def stays(batches: Iterator[pa.RecordBatch], unreadable: Places) -> dict[int, bool]:
    found: dict[int, bool] = {}
    for batch in duplicates._copies(unreadable)(batches):
        for row in batch.to_pylist():
            places, stay = np.frombuffer(row["places"], np.int64), np.frombuffer(row["stay"], bool)
            found |= dict(zip(places.tolist(), stay.tolist(), strict=True))
    return found


def test_a_landed_row_after_the_rows_of_tables_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "BATCH_BYTES", 1)
    late = [*keys([(0, b"1", 0, None)]), *keys([(0, b"1", None, 0)]), *keys([(0, b"1", 1, None)])]
    with pytest.raises(RuntimeError, match="after the keys of tables"):
        stays(iter(late), NO_PLACES)


@pytest.mark.parametrize("seed", range(20))
def test_stored_rows_do_not_depend_on_the_division_of_keys(seed: int) -> None:
    shape = random.Random(seed)
    rows: list[Key] = []
    for window in range(3):
        ids = [str(shape.randrange(12)).encode() for _ in range(shape.randrange(20))]
        rows += [(window % 2, id_, window * PLACES + ordinal, None) for ordinal, id_ in enumerate(ids)]
    rows += [
        (shape.randrange(3), str(shape.randrange(14)).encode(), None, shape.choice((-1, 0, 1, 2))) for _ in range(8)
    ]
    places = [row[2] for row in rows if row[2] is not None]
    unreadable = Places.from_numbers(np.array(sorted(shape.sample(places, len(places) // 4)), np.int64))
    whole = stays(keys(rows), unreadable)
    divided: dict[int, bool] = {}
    for part in range(4):
        own = [row for row in rows if crc32(row[1] + bytes([row[0]])) % 4 == part]
        divided |= stays(keys(own), unreadable)
    assert whole == divided
    assert whole == expected(rows, unreadable)


def expected(rows: Sequence[Key], unreadable: Places) -> dict[int, bool]:
    """Return for each landed row of duplicate events whether it stays, by a simple version of the rule."""
    found: dict[int, bool] = {}
    for event in {(row[0], row[1]) for row in rows if row[2] is not None}:
        landed = sorted(row[2] for row in rows if row[:2] == event and row[2] is not None)
        owners = [row[3] for row in rows if row[:2] == event and row[3] is not None]
        runs: list[list[int]] = []
        for place in landed:
            if runs and runs[-1][-1] == place - 1:
                runs[-1].append(place)
            else:
                runs.append([place])
        if len(runs) == 1 and -1 not in owners:
            continue
        owner, bad = max(owners, default=-1), set(unreadable.numbers().tolist())
        best = min(landed, key=lambda place: (place in bad, place // PLACES != owner, place))
        found |= {place: best in run and -1 not in owners for run in runs for place in run}
    return found


def test_places_are_a_set_of_numbers() -> None:
    shape = random.Random(1)
    numbers = np.array(shape.sample(range(200), 90), np.int64)
    places = Places.from_numbers(numbers)
    assert (len(places), places.numbers().tolist()) == (90, sorted(numbers.tolist()))
    asked = np.arange(-3, 205)
    assert places.include(asked).tolist() == [number in set(numbers.tolist()) for number in asked.tolist()]
    assert Places.from_numbers(np.array([], np.int64)) is NO_PLACES
    assert not NO_PLACES.include(asked).any()


def test_no_payload_leaves_the_task_that_reads_it(tmp_path: Path) -> None:
    """A shuffle stores the rows that it moves, and a payload may have fields that must not be stored."""
    moved: set[str] = set()

    class Engine(EmbeddedEngine):
        def shuffle(self, frames: Sequence[ArrowFrame], by: Sequence[str], parts: int) -> ArrowFrame:
            for frame in frames:
                moved.update(name for batch in frame.batches(None) for name in batch.schema.names)
            return super().shuffle(frames, by, parts)

    day = datetime(2026, 1, 10, tzinfo=UTC)
    events = [LandedEvent(number, "one", avro_payload(number)) for number in range(5)]
    schemas: dict[str, Any] = {"one": json.loads(SCHEMA)}
    manifests = tuple(
        land_window(tmp_path, f"20260110T00000{n}Z-w", events, schemas, event_times=(day, day)) for n in range(2)
    )
    engine = Engine(ObjectStorageFiles(None), ObjectStorageFiles(None), tmp_path)
    metrics = run(engine, EventLogConfig(manifests=manifests, output_url=str(tmp_path / "tables")))
    assert (metrics.rows_written, metrics.duplicates) == (5, 5)
    assert moved == set(EVENT_KEYS.names)
