"""Copies of tables that consumers update from ``read_changes`` equal the tables, whatever runs they skip."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.changes import read_changes
from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.tables.changes import table_changes
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.event_log.job import run as run_event_log
from airflow_provider_sfstream.tables.maintenance.config import MaintenanceConfig
from airflow_provider_sfstream.tables.maintenance.job import run as maintain
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine
from sfstream_localorg.records.fields import Field
from tests.support.change_lake import WIDGET, ChangeLake, change
from tests.support.engines import embedded
from tests.support.landing_files import LandedEvent, encode, land_window
from tests.support.tasks import context_for

TABLE, PAST = "Widget__c", "Widget__c__history"
WIDER = dataclasses.replace(WIDGET, fields=(*WIDGET.fields, Field("Note__c", "Text")))
IDS = [to_18(f"a0W{number:012d}") for number in range(40)]
DAY = 86_400_000
START = 20_463 * DAY
Row = dict[str, Any]


class Consumer:
    """Copy of a table, updated from its changes."""

    def __init__(self, output: str, table: str) -> None:
        self.output, self.table = output, table
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.since: str | None = None

    def update(self) -> list[str]:
        """Apply the changes; return their types. Each change must have an effect."""
        changes = read_changes(self.output, self.table, since=self.since)
        rows = pa.table(changes).to_pylist()
        seen = set()
        for row in rows:
            change_type, key = row["_change_type"], tuple(row[name] for name in changes.key)
            row = {name: value for name, value in row.items() if name != "_change_type"}
            assert key not in seen
            seen.add(key)
            assert (key in self.rows) == (change_type != "insert")
            former = self.rows.pop(key, None)
            if change_type == "delete":
                assert former is not None
                assert {name: row[name] for name in former} == former
            else:
                assert row != former
                self.rows[key] = row
        self.since = changes.next_since
        self.check(changes.version)
        return [row["_change_type"] for row in rows]

    def check(self, version: int) -> None:
        """Compare the copy with a version of the table."""
        table = DeltaTable(f"{self.output}/{self.table}", version).to_pyarrow_table()
        assert in_order(self.rows.values()) == in_order(table.to_pylist())


def in_order(rows: Iterable[Row]) -> list[str]:
    """Return rows as sorted texts, without nulls: a row copied earlier lacks the columns that the table got since."""

    def without_nulls(value: Any) -> Any:
        if isinstance(value, list):
            return [without_nulls(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {name: without_nulls(item) for name, item in sorted(value.items()) if item is not None}

    return sorted(repr(without_nulls(row)) for row in rows)


def compact(output: str) -> None:
    files = ObjectStorageFiles(None)
    maintain(EmbeddedEngine(files, files, output), MaintenanceConfig(output_url=output))


def run_consumers(
    output: str, tables: tuple[str, ...], runs: list[Callable[[], Any]], chosen: random.Random
) -> set[str]:
    """Run jobs, and consumers after some of them; return the change types."""
    consumers = [Consumer(output, table) for table in tables for _ in range(2)]
    types = set()
    for number, run in enumerate(runs):
        run()
        for consumer in consumers:
            if number in (0, len(runs) - 1) or chosen.random() < 0.4:
                types.update(consumer.update())
    for consumer in consumers:
        assert consumer.update() == []
    return types


@pytest.mark.parametrize(("deletes", "most_bytes"), [("soft", 500), ("hard", 64 << 20)])
def test_copies_of_a_replica_equal_it_after_random_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: Any, most_bytes: int
) -> None:
    monkeypatch.setattr(table_changes, "_MOST_BYTES", most_bytes)
    lake, chosen = ChangeLake(None, tmp_path, lambda: embedded(tmp_path / "engine")), random.Random(deletes)
    lake.schemas["wider"] = WIDER.schema()
    numbers = iter(range(1, 10_000))
    options: dict[str, Any] = {"keep_snapshots": 30, "target_file_bytes": 3_000}

    def changes(count: int, *, is_wider: bool = False) -> None:
        events = []
        for number in (next(numbers) for _ in range(count)):
            kind = chosen.choice(["CREATE", "UPDATE", "UPDATE", "UPDATE", "DELETE"])
            values = (
                {} if kind == "DELETE" else {"Name": f"name {number}", "Amount__c": chosen.choice([None, 1.5, 2.5])}
            )
            entity = WIDER if is_wider else WIDGET
            if is_wider and values:
                values["Note__c"] = "note"
            made = change(number, kind, chosen.sample(IDS, 1 + count // 20), f"t{number}", entity=entity, **values)
            events.append(dataclasses.replace(made, schema_id="wider" if is_wider else TABLE))
        lake.run(lake.land(*events), history=True, deletes=deletes, **options)

    def refresh() -> None:
        lines = [{"Id": each, "Name": chosen.choice("xy"), "_deleted": "false"} for each in chosen.sample(IDS, 35)]
        lake.refresh(*lines, max_deleted_fraction=1.0, **options)

    runs: list[Callable[[], Any]] = [lambda: changes(40), lambda: changes(5), lambda: changes(3), refresh]
    runs += [lambda: compact(lake.output), lambda: changes(2), lambda: changes(20), lambda: compact(lake.output)]
    runs += [lambda: changes(4, is_wider=True), lambda: changes(40, is_wider=True), refresh, lambda: changes(1)]
    types = run_consumers(lake.output, (TABLE, PAST), runs, chosen)
    assert len(DeltaTable(f"{lake.output}/{TABLE}").file_uris()) > 2
    assert types == {"insert", "update_postimage", *(["delete"] if deletes == "hard" else [])}


def order_schema(fields: int) -> dict[str, Any]:
    """Return the schema of an event with some texts, also in a compound field and in a list of compounds."""
    texts = [{"name": f"Field{number}__c", "type": ["null", "string"]} for number in range(fields)]
    compound = {"type": "record", "name": "Compound", "fields": texts}
    columns = [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "Amount__c", "type": "double"},
        *texts,
        {"name": "Place__c", "type": ["null", compound]},
        {"name": "Places__c", "type": {"type": "array", "items": "Compound"}},
    ]
    return {"type": "record", "name": "Order__e", "fields": columns}


@pytest.mark.parametrize("most_bytes", [500, 64 << 20])
def test_copies_of_an_event_log_equal_it_after_random_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    monkeypatch.setattr(table_changes, "_MOST_BYTES", most_bytes)
    chosen, output = random.Random(1), str(tmp_path / "tables")
    numbers, manifests = iter(range(1, 10_000)), list[str]()

    def land(fields: int) -> str:
        schema = order_schema(fields)
        window, events = f"20260110T{next(numbers):06d}Z-orders", []
        for number in (next(numbers) for _ in range(chosen.randint(1, 9))):
            texts = {f"Field{each}__c": f"{number}" for each in range(fields)}
            created = START + chosen.randrange(3) * DAY
            amount = chosen.choice([float("nan"), 0.5])
            values = {"CreatedDate": created, "Amount__c": amount, "Place__c": texts, "Places__c": [texts], **texts}
            events.append(LandedEvent(number, f"schema{fields}", encode(schema, values)))
        events.append(LandedEvent(next(numbers), f"schema{fields}", b"\xff"))
        manifests.append(land_window(tmp_path / "landing", window, events, {f"schema{fields}": schema}))
        return manifests[-1]

    def run(*windows: str) -> None:
        run_event_log(embedded(tmp_path / "engine"), EventLogConfig(output_url=output, manifests=windows))

    runs: list[Callable[[], Any]] = []
    for number in range(10):
        fields = 1 + number // 5
        runs.append(lambda fields=fields: run(land(fields), *chosen.sample(manifests, min(2, len(manifests)))))
        if number % 4 == 3:
            runs += [lambda: compact(output), lambda: run(*manifests[:2])]
    assert run_consumers(output, ("Order__e", "_quarantine"), runs, chosen) == {"insert"}


@pytest.fixture
def lake(tmp_path: Path) -> ChangeLake:
    """A replica with two records, of one run."""
    lake = ChangeLake(None, tmp_path, lambda: embedded(tmp_path / "engine"))
    lake.run(lake.land(change(1, "CREATE", IDS[:2], "t1", Name="one")), history=True, keep_snapshots=2)
    return lake


def update(lake: ChangeLake) -> None:
    number = lake.landed + 1
    lake.run(lake.land(change(number, "UPDATE", IDS[:1], f"t{number}", Name=f"name {number}")), keep_snapshots=2)


def names(lake: ChangeLake, since: Any) -> list[tuple[str, str]]:
    rows = pa.table(read_changes(lake.output, TABLE, since=since)).to_pylist()
    return [(row["_change_type"], row["Name"]) for row in rows]


def test_since_is_also_a_version_or_a_time(lake: ChangeLake) -> None:
    before, first = datetime(2026, 1, 1, tzinfo=UTC), read_changes(lake.output, TABLE, since=None)
    created = datetime.now(UTC)
    update(lake)
    changed = [("update_postimage", "name 2")]
    assert names(lake, first.next_since) == names(lake, first.version) == names(lake, created) == changed
    assert names(lake, datetime.now(UTC)) == []
    assert names(lake, before) == names(lake, -1) == names(lake, None) == [("insert", "name 2"), ("insert", "one")]
    update(lake)
    with pytest.raises(ConfigurationError, match="no longer recorded"):
        read_changes(lake.output, TABLE, since=created)
    for invalid in ("yesterday", -2, before.replace(tzinfo=None)):
        with pytest.raises(ConfigurationError, match="No row was read"):
            read_changes(lake.output, TABLE, since=invalid)


def test_a_time_is_found_in_the_log_of_an_event_log(tmp_path: Path) -> None:
    output, times = str(tmp_path / "tables"), [datetime.now(UTC)]
    for number in range(2):
        events = [
            LandedEvent(
                number, "one", encode(order_schema(1), {"CreatedDate": START, "Amount__c": 1.0, "Places__c": []})
            )
        ]
        manifest = land_window(tmp_path / "landing", f"20260110T00000{number}Z-a", events, {"one": order_schema(1)})
        run_event_log(embedded(tmp_path / "engine"), EventLogConfig(output_url=output, manifests=(manifest,)))
        times.append(datetime.now(UTC))
    assert [pa.table(read_changes(output, "Order__e", since=time)).num_rows for time in times] == [2, 1, 0]


def test_a_version_whose_files_were_removed_fails_before_rows_are_read(lake: ChangeLake) -> None:
    first = read_changes(lake.output, TABLE, since=None).next_since
    update(lake)
    update(lake)
    update(lake)
    with pytest.raises(ConfigurationError, match=r"files of version 0 .* were removed.*since=None.*keep_snapshots"):
        read_changes(lake.output, TABLE, since=first)


def test_a_file_that_is_removed_during_the_read_fails_it(lake: ChangeLake) -> None:
    changes = read_changes(lake.output, TABLE, since=None)
    (file,) = DeltaTable(f"{lake.output}/{TABLE}").file_uris()
    Path(file).unlink()
    with pytest.raises(LandingError, match=r"cannot be read.*undo them.*with the same since"):
        list(changes.batches())


def test_a_version_from_before_an_erasure_fails_before_rows_are_read(lake: ChangeLake) -> None:
    first = read_changes(lake.output, TABLE, since=None).next_since
    urls = {"landing_url": str(lake.landing), "event_log_urls": [], "replica_urls": lake.output}
    EraseRecordsOperator(task_id="erase", entity=TABLE, ids=[IDS[1]], **urls).execute(context_for("erase"))
    with pytest.raises(ConfigurationError, match=r"no longer has version 0.*since=None"):
        read_changes(lake.output, TABLE, since=first)
    assert names(lake, None) == [("insert", "one")]


def test_a_table_that_was_created_again_is_detected(lake: ChangeLake, tmp_path: Path) -> None:
    changes = read_changes(lake.output, TABLE, since=None)
    Path(lake.output).rename(tmp_path / "former")
    lake.run(lake.land(change(9, "CREATE", IDS[:1], "t9", Name="again")))
    with pytest.raises(ConfigurationError, match=r"deleted and created again.*since=None"):
        read_changes(lake.output, TABLE, since=changes.next_since)
    with pytest.raises(ConfigurationError, match="has no version 7"):
        read_changes(lake.output, TABLE, since=7)


@pytest.mark.parametrize("runs", [1, 2])
def test_a_table_that_was_restored_and_written_again_is_detected(lake: ChangeLake, tmp_path: Path, runs: int) -> None:
    shutil.copytree(lake.output, tmp_path / "backup")
    update(lake)
    changes = read_changes(lake.output, TABLE, since=None)
    Path(lake.output).rename(tmp_path / "lost")
    shutil.copytree(tmp_path / "backup", lake.output)
    with pytest.raises(ConfigurationError, match=r"has no version 1.*since=None"):
        read_changes(lake.output, TABLE, since=changes.next_since)
    for _ in range(runs):
        update(lake)
    with pytest.raises(ConfigurationError, match=r"restored from a backup.*since=None"):
        read_changes(lake.output, TABLE, since=changes.next_since)


def test_a_name_that_is_no_table_is_refused(lake: ChangeLake) -> None:
    for name in ("widget", "_quarantine"):
        with pytest.raises(ConfigurationError, match=rf"{name} is neither.*Widget__c"):
            read_changes(lake.output, name, since=None)


def test_a_history_without_ended_versions_is_empty(lake: ChangeLake) -> None:
    consumer = Consumer(lake.output, PAST)
    changes = read_changes(lake.output, PAST, since=None)
    assert (pa.table(changes).num_rows, changes.next_since) == (0, "-1")
    update(lake)
    consumer.since = changes.next_since
    assert consumer.update() == ["insert"]


def test_the_commits_of_a_killed_run_are_not_read(lake: ChangeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_changes(lake.output, TABLE, since=None)
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotStore, "publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            update(lake)
    assert DeltaTable(f"{lake.output}/{TABLE}").version() > first.version
    assert names(lake, first.next_since) == []
    assert read_changes(lake.output, TABLE, since=first.version).version == first.version


def test_only_files_that_one_version_lacks_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ChangeLake(None, tmp_path, lambda: embedded(tmp_path / "engine"))
    options: dict[str, Any] = {"target_file_bytes": 500}
    lake.run(lake.land(*(change(n, "CREATE", [each], f"t{n}", Name="one") for n, each in enumerate(IDS, 1))), **options)
    lake.run(lake.land(change(91, "UPDATE", IDS, "t91", Name="two")), **options)
    first = read_changes(lake.output, TABLE, since=None)
    before = {*DeltaTable(f"{lake.output}/{TABLE}").file_uris()}
    lake.run(lake.land(change(92, "UPDATE", IDS[:1], "t92", Name="three")), **options)
    after = {*DeltaTable(f"{lake.output}/{TABLE}").file_uris()}
    opened, rows_of = [], table_changes.part_batches
    monkeypatch.setattr(table_changes, "part_batches", lambda *each: opened.append(1) or rows_of(*each))
    assert names(lake, first.next_since) == [("update_postimage", "three")]
    assert before & after
    assert len(opened) == len(before ^ after)
