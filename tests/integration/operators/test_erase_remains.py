"""Erasure of records from places that a simple search misses: remains of killed jobs, logs, and names in other case."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from tests.support.change_lake import GADGET, SCHEMAS, ChangeLake, change
from tests.support.engines import embedded
from tests.support.killed import Killed, killed_at
from tests.support.landing_files import LandedEvent, encode
from tests.support.marked_bytes import files_with
from tests.support.tasks import context_for, error_text

MARK = "MARKED"
GONE, STAYS, GADGET_ID = to_18("a0W000000000001"), to_18("a0W000000000002"), to_18("a0G000000000001")
NAMES = ("Gadget", "Widget")
CREATED = change(1, "CREATE", [GONE], "t1", Name=MARK), change(2, "CREATE", [STAYS], "t2", Name="two")


def log_events(lake: ChangeLake, url: str, output: Path) -> None:
    EventLogOperator(task_id="log", windows=[url], output_url=str(output)).execute(context_for("log"))


def erase(folder: Path, **given: Any) -> dict[str, Any]:
    urls = {"landing_url": folder / "landing", "event_log_urls": folder / "tables", "replica_urls": folder / "replica"}
    arguments = {"entity": "Widget__c", "ids": [GONE], **{name: str(url) for name, url in urls.items()}, **given}
    return EraseRecordsOperator(task_id="erase", **arguments).execute(context_for("erase"))


def set_age(*paths: Path) -> None:
    """Set the time of files to more than a day ago."""
    for path in paths:
        os.utime(path, (time.time() - 90_000,) * 2)


@pytest.fixture
def lake(tmp_path: Path) -> ChangeLake:
    """Return a lake with a landing, a replica and an event log of two records."""
    lake = ChangeLake(None, tmp_path / "lake", lambda: embedded(tmp_path / "engine"))
    url = lake.land(*CREATED)
    lake.run(url, history=True)
    log_events(lake, url, lake.folder / "tables")
    assert files_with(lake.folder, MARK), "the search finds the mark before the erasure"
    return lake


def test_names_of_objects_are_case_insensitive(lake: ChangeLake) -> None:
    result = erase(lake.folder, entity="widget__C")
    assert result["event_logs"][str(lake.folder / "tables")]["rows"] == 1
    assert result["replicas"][lake.output]["rows"] == 1
    assert files_with(lake.folder, MARK) == []


def test_tables_of_other_objects_are_not_changed(lake: ChangeLake) -> None:
    gadget = change(3, "CREATE", [GADGET_ID], "t3", entity=GADGET, Name=MARK.lower())
    log_events(lake, lake.land(gadget), lake.folder / "tables")
    other, own = (DeltaTableLog(TableLocation(str(lake.folder / f"tables/{name}__ChangeEvent"))) for name in NAMES)
    result = erase(lake.folder)["event_logs"][str(lake.folder / "tables")]
    assert (result["tables"], result["rows"]) == (1, 1)
    assert (other.version().number, own.version().number) == (0, 1)
    assert files_with(lake.folder, MARK) == []


def test_events_of_other_records_that_name_a_record_are_counted_and_kept(lake: ChangeLake) -> None:
    lake.land(change(3, "UPDATE", [STAYS], "t3", Name=f"parent {GONE}"))
    for expected in ((1, 1), (0, 1)):
        landing = erase(lake.folder, replica_urls=[])["landing"]
        assert (landing["emptied"], landing["mentions"]) == expected
    assert len(files_with(lake.landing, GONE)) == 1


def test_a_stream_is_searched_although_its_newest_windows_are_unfinished(lake: ChangeLake) -> None:
    (manifest,) = lake.landing.rglob("manifest.json")
    for number in range(50):
        folder = manifest.parent.parent / f"20260110T2300{number:02d}Z-dead"
        folder.mkdir()  # a failed drain removes its files, not the folder
        if number == 49:
            (folder / "part-00000-dead.parquet").write_bytes(b"PAR1")
    landing = erase(lake.folder)["landing"]
    assert (landing["streams"], landing["windows"], landing["unfinished"]) == (1, 1, 1)
    assert files_with(manifest.parent, MARK) == []


def test_a_stream_without_a_finished_window_is_counted_as_unfinished(lake: ChangeLake) -> None:
    (manifest,) = lake.landing.rglob("manifest.json")
    manifest.unlink()
    result = erase(lake.folder)
    assert (result["landing"]["streams"], result["landing"]["unfinished"]) == (1, 1)
    record = json.loads((lake.landing / f"erasures/{result['erasure_id']}.json").read_text())
    assert record["finished_at"] is None


@pytest.mark.parametrize("call", [(SnapshotStore, "publish"), (DeltaTableLog, "commit")], ids=["snapshot", "commit"])
def test_a_table_of_a_replica_that_no_snapshot_names_is_searched(lake: ChangeLake, call: tuple[Any, str]) -> None:
    before = set((lake.folder / "replica").rglob("*"))
    url = lake.land(change(3, "CREATE", [GADGET_ID], "t3", entity=GADGET, Name="GADGET"))
    with pytest.raises(Killed), killed_at([call], 1, after=False):
        lake.run(url, history=True)
    uncommitted = [path for path in set((lake.folder / "replica").rglob("*.parquet")) - before if call[1] == "commit"]
    if uncommitted:
        with pytest.raises(PositionConflictError, match="younger than a day"):
            erase(lake.folder, entity=GADGET.name, ids=[GADGET_ID])
        set_age(*uncommitted)
    erase(lake.folder, entity=GADGET.name, ids=[GADGET_ID])
    assert files_with(lake.folder, "GADGET") == files_with(lake.folder, GADGET_ID) == []
    lake.run(url, lake.land(change(4, "UPDATE", [STAYS], "t4", Name="four")), history=True)
    state = lake.snapshot().tables
    assert (state.keys(), state["Gadget__c"].version) == ({"Widget__c", "Gadget__c"}, -1)
    assert lake.log().version().number == state["Widget__c"].version
    assert files_with(lake.folder, "GADGET") == files_with(lake.folder, GADGET_ID) == []


def test_a_replica_without_the_folders_of_its_table_is_erased(lake: ChangeLake) -> None:
    before = lake.snapshot()
    shutil.rmtree(Path(lake.output) / "Widget__c")
    erase(lake.folder)
    assert files_with(lake.folder, MARK) == []
    assert lake.snapshot() == before


def test_an_event_table_that_a_killed_job_has_not_committed_is_searched(lake: ChangeLake) -> None:
    (manifest,) = lake.landing.rglob("manifest.json")
    shutil.rmtree(lake.folder / "tables")
    with pytest.raises(Killed), killed_at([(DeltaTableLog, "commit")], 1, after=False):
        log_events(lake, manifest.as_uri(), lake.folder / "tables")
    with pytest.raises(PositionConflictError, match="younger than a day"):
        erase(lake.folder)
    set_age(*(lake.folder / "tables").rglob("*.parquet"))
    erase(lake.folder)
    assert files_with(lake.folder, MARK) == []


def test_a_quarantine_that_a_killed_job_has_not_committed_is_searched(lake: ChangeLake) -> None:
    shutil.rmtree(lake.folder / "tables")
    record = CREATED[0].record
    assert isinstance(record, dict)
    undecodable = LandedEvent(3, "Widget__c", encode(SCHEMAS["Widget__c"], record)[:-3])
    with pytest.raises(Killed), killed_at([(DeltaTableLog, "commit")], 1, after=False):
        log_events(lake, lake.land(undecodable), lake.folder / "tables")
    assert [path.name for path in (lake.folder / "tables").iterdir() if path.name != "_sfstream"] == ["_quarantine"]
    set_age(*(lake.folder / "tables").rglob("*.parquet"))
    erase(lake.folder)
    assert files_with(lake.folder, MARK) == []


def test_unfinished_and_damaged_files_of_a_table_are_removed(lake: ChangeLake) -> None:
    (live,) = (lake.folder / "tables").rglob("*.parquet")
    content = live.read_bytes()
    damaged = {
        f"{live.name}#1": content,  # unfinished file of deltalake on a local disk
        "part-footer.parquet": content[:-200] + bytes(190) + content[-10:],
        "part-pages.parquet": content[:4] + bytes(len(content) - 2_004) + content[-2_000:],
    }
    for name, data in damaged.items():
        live.with_name(name).write_bytes(data)
        set_age(live.with_name(name))
    erase(lake.folder)
    names = {path.name for path in live.parent.iterdir()}
    assert len(names) == 1, names
    assert names.isdisjoint({*damaged, live.name})


def test_checksum_files_of_other_programs_are_removed_with_the_log_before_the_erasure(lake: ChangeLake) -> None:
    checksum = lake.folder / f"tables/Widget__ChangeEvent/_delta_log/{0:020d}.crc"
    checksum.write_text(json.dumps({"allFiles": [{"path": "part.parquet", "stats": MARK}]}))
    erase(lake.folder)
    assert files_with(lake.folder, MARK) == []


def test_a_landing_without_windows_of_the_object_is_logged(lake: ChangeLake, caplog: pytest.LogCaptureFixture) -> None:
    assert erase(lake.folder, landing_url=str(lake.folder / "landign"))["landing"]["streams"] == 0
    assert "landign has no windows to search. Check landing_url." in caplog.text


def test_a_folder_without_an_event_log_or_with_an_unnamed_one_is_refused(lake: ChangeLake) -> None:
    (manifest,) = lake.landing.rglob("manifest.json")
    log_events(lake, manifest.as_uri(), lake.folder / "replica")
    for given, text in (
        ({"event_log_urls": str(lake.folder / "nowhere")}, "There is no event log at"),
        ({}, "/replica also holds an event log, which is not in event_log_urls"),
    ):
        with pytest.raises(AirflowFailException) as caught:
            erase(lake.folder, **given)
        assert text in error_text(caught.value)
        assert "Nothing was erased" in error_text(caught.value)
    assert not (lake.landing / "erasures").exists()
    erase(lake.folder, event_log_urls=[str(lake.folder / "tables"), lake.output])
    assert files_with(lake.folder, MARK) == []
