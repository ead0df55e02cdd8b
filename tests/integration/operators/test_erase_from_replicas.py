"""Erasure of records from a replica: tables, history, lists, fetched files, quarantine and old snapshots."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.erasure.landing import Erasure
from airflow_provider_sfstream.erasure.tables import TableErasure
from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.table_files import TableFileWriter
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from tests.support.change_lake import SCHEMAS, ChangeLake, change
from tests.support.engines import embedded
from tests.support.killed import Killed, killed_at
from tests.support.landing_files import LandedEvent, encode
from tests.support.marked_bytes import files_with
from tests.support.tasks import context_for, error_text

MARK = "MARKED"
GONE, STAYS, DIRTY = (to_18(f"a0W00000000000{number}") for number in "123")


@dataclass
class ReplicaSource:
    folder: Path
    lake: ChangeLake


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ReplicaSource:
    """Create a replica of a person and others, with several snapshots, a history, dirty rows and a quarantine."""
    folder = tmp_path_factory.mktemp("replica")
    lake = ChangeLake(None, folder / "lake", lambda: embedded(folder / "engine"))
    lake.run(
        lake.land(
            change(1, "CREATE", [GONE], "t1", Name=MARK),
            change(2, "CREATE", [STAYS], "t2", Name="two"),
            change(3, "CREATE", [DIRTY], "t3", Name="three"),
        ),
        history=True,
    )
    broken = change(6, "UPDATE", [GONE], "t6", Name=f"{MARK} 6")
    assert isinstance(broken.record, dict)
    lake.run(
        lake.land(
            change(4, "UPDATE", [GONE, STAYS], "t4", Amount__c=4.0),
            change(5, "UPDATE", [GONE], "t5", Name=f"{MARK} 5"),
            LandedEvent(6, broken.schema_id, encode(SCHEMAS[str(broken.schema_id)], broken.record)[:-3]),
        ),
        history=True,
    )
    lake.run(lake.land(change(7, "GAP_UPDATE", [GONE], "t7"), change(8, "GAP_UPDATE", [DIRTY], "t8")), history=True)
    fetched = Path(lake.output) / "_sfstream/replica/refresh/run/Widget__c/part-00000.jsonl"
    fetched.parent.mkdir(parents=True)
    fetched.write_text(f'{{"Id": "{GONE}", "Name": "{MARK}"}}\n')
    # Earlier versions of the package wrote record IDs into these reports.
    for table, record_id in (("Widget__c", GONE), ("Other__c", STAYS)):
        report = Path(lake.output) / f"_sfstream/replica/reconciliations/run/{table}.json"
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(json.dumps({"table": table, "ranges": [{"first": record_id, "last": record_id}]}))
    metrics = Path(lake.output) / "_sfstream/metrics/dag.verify.json"
    metrics.parent.mkdir()
    metrics.write_text(json.dumps({"reconciliation": {"differing_ranges": [{"first": GONE, "last": GONE}]}}))
    return ReplicaSource(folder / "lake", lake)


def erase(folder: Path, **given: Any) -> dict[str, Any]:
    urls = {"landing_url": str(folder / "landing"), "event_log_urls": [], "replica_urls": str(folder / "replica")}
    operator = EraseRecordsOperator(task_id="erase", ids=[GONE], **{"entity": "Widget__c", **urls, **given})
    return operator.execute(context_for("erase"))


def rows(folder: Path, table: str = "Widget__c") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(folder / "replica" / table).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["Id"], row["_sequence"]))


def check_erased(folder: Path, source: ReplicaSource) -> None:
    """Assert that no data of the person remains and that all other records are unchanged."""
    for text in (MARK, GONE[:15]):
        assert files_with(folder, text) == []
    for table in ("Widget__c", "Widget__c__history"):
        assert rows(folder, table) == [row for row in rows(source.folder, table) if row["Id"] != GONE]
    base = str(folder / "replica")
    assert [path.name for path in Path(base).rglob("reconciliations/*/*")] == ["Other__c.json"]
    (snapshot,) = SnapshotStore(ObjectStorageFiles(None), base).kept()
    state = snapshot.tables["Widget__c"]
    assert DeltaTable(f"{base}/Widget__c").version() == state.version
    assert DeltaTable(f"{base}/Widget__c__history").version() == state.history
    assert (state.dirty, state.computed.changed) == (1, 0)
    (listed,) = (Path(base) / str(state.dirty_list)).iterdir()
    assert listed.read_text() == f'{{"Id": "{DIRTY}", "sequence": 8}}\n'
    assert snapshot.streams == source.lake.snapshot().streams


def test_erasure_leaves_no_byte_of_the_record_and_the_replica_accepts_new_windows(
    source: ReplicaSource, tmp_path: Path
) -> None:
    lake = ChangeLake(None, tmp_path / "lake", lambda: embedded(tmp_path / "engine"))
    shutil.copytree(source.folder, lake.folder)
    lake._windows = list(source.lake._windows)
    history = sum(row["Id"] == GONE for row in rows(source.folder, "Widget__c__history"))
    assert history >= 2
    assert files_with(lake.folder, MARK), "the search finds the mark before the erasure"

    result = erase(lake.folder)

    counts = result["replicas"][lake.output]
    assert (counts["rows"], counts["listed"], counts["quarantined"]) == (1 + history, 1, 1)
    check_erased(lake.folder, source)
    assert set(erase(lake.folder)["replicas"][lake.output].values()) == {0}
    manifest = lake.land(change(9, "UPDATE", [STAYS], "t9", Name="nine"))
    lake.run(manifest, history=True)
    names = {row["Id"]: row["Name"] for row in rows(lake.folder)}
    assert names == {STAYS: "nine", DIRTY: "three"}
    assert files_with(lake.folder, GONE) == []


CALLS = [
    (Erasure, "write"),
    (TableFileWriter, "close"),
    (DeltaTableLog, "commit"),
    (SnapshotStore, "publish"),
    (SnapshotStore, "remove"),
    (DeltaTable, "create_checkpoint"),
    (TableErasure, "_remove"),
    (ObjectStorageFiles, "delete"),
    (ObjectStorageFiles, "replace_text"),
]


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.extended)], ids=["before", "after"])
def test_a_replica_erasure_killed_at_any_step_is_completed_by_the_next_try(
    source: ReplicaSource, tmp_path: Path, after: bool
) -> None:
    for nth in itertools.count(1):
        lake = tmp_path / str(nth)
        shutil.copytree(source.folder, lake)
        was_killed = False
        try:
            with killed_at(CALLS, nth, after=after):
                erase(lake)
        except Killed:
            was_killed = True
        erase(lake)
        check_erased(lake, source)
        shutil.rmtree(lake)
        if not was_killed:
            break
    assert nth > 10


def test_a_missing_or_unnamed_replica_is_refused(source: ReplicaSource, tmp_path: Path) -> None:
    shutil.copytree(source.folder, tmp_path / "lake")
    replica = str(tmp_path / "lake/replica")
    for given, text in (
        ({"replica_urls": [str(tmp_path / "nowhere")]}, "There is no replica"),
        ({"replica_urls": [], "event_log_urls": [replica]}, "which is not in replica_urls"),
    ):
        with pytest.raises(AirflowFailException) as caught:
            erase(tmp_path / "lake", **given)
        assert text in error_text(caught.value)
    assert not (tmp_path / "lake/landing/erasures").exists()


def test_uncommitted_files_of_a_first_quarantine_are_searched(source: ReplicaSource, tmp_path: Path) -> None:
    shutil.copytree(source.folder, tmp_path / "lake")
    quarantine = tmp_path / "lake/replica" / QUARANTINE_TABLE
    shutil.rmtree(quarantine / "_delta_log")
    with pytest.raises(PositionConflictError, match="a job is about to commit them, or was killed"):
        erase(tmp_path / "lake")
    for file in quarantine.rglob("*.parquet"):
        os.utime(file, (0, 0))
    erase(tmp_path / "lake")
    check_erased(tmp_path / "lake", source)


def test_a_quarantine_of_an_early_version_must_be_removed_first(source: ReplicaSource, tmp_path: Path) -> None:
    shutil.copytree(source.folder, tmp_path / "lake")
    former = tmp_path / "lake/replica/_replica_quarantine"
    former.mkdir()
    with pytest.raises(AirflowFailException) as caught:
        erase(tmp_path / "lake")
    assert "Nothing was erased. Read the events that you still need, and delete the folder." in error_text(caught.value)
    assert not (tmp_path / "lake/landing/erasures").exists()
    former.rmdir()
    erase(tmp_path / "lake")
    check_erased(tmp_path / "lake", source)
