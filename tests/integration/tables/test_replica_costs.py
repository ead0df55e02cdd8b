"""Cost of a replica run in the worker's process: documents read and table logs opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.replica import job
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig, ReplicaMetrics
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field
from tests.support.change_lake import START, TOPIC, change
from tests.support.landing_files import LandedEvent, encode, land_window

ENTITIES = [Entity(f"Thing{n}__c", f"a{n:02x}", (Field("Name", "Text"),)) for n in range(4)]
KEPT = 3


class Runs:
    """Consecutive runs, one window each, with the documents that they read and the number of opened logs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._windows, self._events = folder, 0, 0
        self.documents: list[str] = []
        self.openings = 0
        read_text, open_log = ObjectStorageFiles.read_text, DeltaTableLog._open

        def reading(files: ObjectStorageFiles, url: str) -> str:
            self.documents.append(url.rpartition("/replica/")[2])
            return read_text(files, url)

        def opening(log: DeltaTableLog, number: int | None = None) -> Any:
            self.openings += 1
            return open_log(log, number)

        monkeypatch.setattr(ObjectStorageFiles, "read_text", reading)
        monkeypatch.setattr(DeltaTableLog, "_open", opening)

    def run(
        self, entities: Sequence[Entity], stop_reason: str = "caught_up", max_events: int | None = None
    ) -> ReplicaMetrics:
        """Apply a window with an event of each object, all of one transaction."""
        number, link = self._windows, dict[str, Any]()
        if number:
            link = {
                "previous_window_id": f"20260110T{number - 1:02d}0000Z-w",
                "after": LandedEvent(self._events, None, b"").replay_id,
            }
        events = []
        for entity in entities:
            self._events += 1
            record = change(self._events, "UPDATE", [f"{entity.key_prefix}{1:012d}AAA"], "t", entity=entity, Name="n")
            payload = encode(entity.schema(), record.record)  # type: ignore[arg-type]
            events.append(LandedEvent(self._events, entity.name, payload))
        schemas = {entity.name: entity.schema() for entity in entities}
        name, times = f"20260110T{number:02d}0000Z-w", (START, START)
        landing = self._folder / "landing"
        manifest = land_window(
            landing, name, events, schemas, event_times=times, topic=TOPIC, stop_reason=stop_reason, **link
        )
        copies = self._folder / f"copies{number}"
        copies.mkdir()
        self._windows, self.openings = number + 1, 0
        self.documents.clear()
        engine = EmbeddedEngine(ObjectStorageFiles(None), ObjectStorageFiles(None), copies, max_events=max_events)
        output = str(self._folder / "replica")
        return job.run(engine, ReplicaConfig(manifests=(manifest,), output_url=output, keep_snapshots=KEPT))


def test_the_cost_of_a_run_depends_only_on_its_own_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(tmp_path, monkeypatch)
    runs.run(ENTITIES)
    openings = []
    for _ in range(KEPT + 2):
        runs.run(ENTITIES[:1])
        openings.append(runs.openings)
        of_columns = [name for name in runs.documents if name.startswith("schemas/")]
        assert [name.split("/")[1] for name in of_columns] == [ENTITIES[0].name]
        assert sum(name.startswith("snapshots/") for name in runs.documents) <= KEPT
    assert openings[:2] == [2, 2], "the table and the quarantine"
    assert openings[-1] == 3, "one more opening to delete the files that only the removed snapshot used"
    files = list((tmp_path / "replica" / ENTITIES[0].name).glob("*.parquet"))
    assert len(files) == KEPT


def test_a_run_reads_no_held_window_unless_it_can_apply_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, monkeypatch)
    read, held = [], []
    for _ in range(4):
        held.append(runs.run(ENTITIES[:2], "max_events").held)
        read.append(sum(name.endswith("/manifest.json") for name in runs.documents))
    assert (held, read) == ([2, 4, 6, 8], [1, 2, 1, 1])
    with pytest.raises(ConfigurationError, match="5 windows have 10 events, more than max_events=9"):
        runs.run(ENTITIES[:2], "max_events", max_events=9)
    assert runs.run(ENTITIES[:2]).tables["Thing0__c"].rows == 1
