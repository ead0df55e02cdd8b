"""Erasure of records from a landing and an event log: no byte of the person remains, all other data is unchanged."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.erasure.landing import ERASURE_DOCUMENT, Erasure
from airflow_provider_sfstream.erasure.tables import TableErasure
from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.landing import catalog as catalog_module
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.row_groups import PartWriter
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from airflow_provider_sfstream.operators.replica import ReplicaOperator
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.table_files import TableFileWriter
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.maintenance.config import MaintenanceConfig
from airflow_provider_sfstream.tables.maintenance.job import run as maintain
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine
from tests.support.killed import Killed, killed_at
from tests.support.landing_files import drop_column
from tests.support.localorg import LocalOrg
from tests.support.marked_bytes import files_with
from tests.support.tasks import context_for, error_text, set_connection

TOPIC = "/data/AccountChangeEvent"
MARK = "MARKED"
"""Marker in every value of the person."""


@dataclass
class Lake:
    """Accounts of an org, in a landing and an event log."""

    folder: Path
    org: LocalOrg
    runs: int = 0
    person: str = ""
    other: str = ""

    @classmethod
    def filled(cls, folder: Path, org: LocalOrg) -> Lake:
        """Return a lake of three windows with a person and others."""
        lake = cls(folder, org)
        marked = {"Phone": f"{MARK} 1", "BillingStreet": f"{MARK} Road"}
        lake.person, lake.other = lake.create({"Name": f"{MARK} Ada", **marked}), lake.create({"Name": "Bob"})
        lake.drained()
        org.rest("PATCH", f"/sobjects/Account/{lake.person}", {"Phone": f"{MARK} 3"})
        lake.create({"Name": "Cleo", "ParentId": lake.other})
        lake.drained()
        both = [{"attributes": {"type": "Account"}, "id": each, "Site": "Graz"} for each in (lake.person, lake.other)]
        org.rest("PATCH", "/composite/sobjects", {"allOrNone": True, "records": both})
        org.rest("PATCH", f"/sobjects/Account/{lake.other}", {"Phone": "4"})
        lake.drained()
        return lake

    def create(self, fields: dict[str, Any]) -> str:
        return str(self.org.rest("POST", "/sobjects/Account", fields)["id"])

    def drained(self) -> dict[str, Any]:
        self.runs += 1
        run_id, landing = f"run-{self.runs}", str(self.folder / "landing")
        given = {"topic": TOPIC, "landing_url": landing, "replay_store": "landing", "idle_timeout": 1.0}
        result = DrainReplayWindowOperator(task_id="drain", **given).execute(
            context_for("drain", run_id=run_id, hour=self.runs)
        )
        metrics = self.log(result, run_id)
        assert metrics is not None
        return metrics

    def log(self, windows: Any, run_id: str = "again") -> Any:
        operator = EventLogOperator(task_id="log", windows=windows, output_url=str(self.folder / "tables"))
        return operator.execute(context_for("log", run_id=run_id))


def erase(folder: Path, ids: Any, run_id: str = "run-1", conf: Any = None, **given: Any) -> dict[str, Any]:
    urls = {"landing_url": str(folder / "landing"), "event_log_urls": str(folder / "tables"), "replica_urls": []}
    operator = EraseRecordsOperator(task_id="erase", ids=ids, **{"entity": "Account", **urls, **given})
    return operator.execute(context_for("erase", run_id=run_id, hour=20, conf=conf))


def rows(folder: Path, table: str = "AccountChangeEvent") -> list[dict[str, Any]]:
    found = DeltaTable(folder / "tables" / table).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row.get("_replay_id") or row.get("replay_id"))


def landed(folder: Path) -> list[tuple[Manifest, list[dict[str, Any]]]]:
    """Verify the files of the stream's windows; return the windows, oldest first."""
    catalog = LandingCatalog(Landing.from_url(str(folder / "landing")))
    (stream,) = catalog.streams()
    found = []
    for window_id in sorted(catalog.window_ids(stream)):
        manifest = catalog.read_manifest(stream, window_id)
        assert manifest is not None
        catalog.verify(manifest, sha256=True)
        path = Path(catalog.landing.window_folder(stream, window_id))
        assert {each.name for each in path.iterdir()} == {"manifest.json", *(file.name for file in manifest.files)}
        found.append((manifest, [row for f in manifest.files for row in pq.read_table(path / f.name).to_pylist()]))
    newest = found[-1][0].window.window_id
    assert len(list(catalog.chain(stream, newest))) == len(found), "the chain of windows is complete"
    return found


def without(events: list[dict[str, Any]], person: str) -> list[dict[str, Any]]:
    """Return the rows that are expected after the erasure of the person."""
    left = []
    for row in events:
        header = row["ChangeEventHeader"]
        ids = [each for each in header["recordIds"] if each != person]
        left += [{**row, "ChangeEventHeader": {**header, "recordIds": ids}}] if ids else []
    return left


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("erase")
    patch = pytest.MonkeyPatch()
    with LocalOrg.running(folder / "org") as org, patch.context() as monkeypatch:
        org.knobs(keepalive_seconds=0.3)
        set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
        yield Lake.filled(folder / "source", org)


@pytest.fixture
def lake(source: Lake, tmp_path: Path) -> Path:
    """Copy the landing and its tables."""
    shutil.copytree(source.folder, tmp_path / "lake")
    return tmp_path / "lake"


def test_erasure_leaves_no_byte_of_the_person_and_changes_nothing_else(
    lake: Path, source: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    before, events = landed(lake), rows(lake)
    assert files_with(lake, MARK), "the search finds the mark before the erasure"

    result = erase(lake, [source.person[:15]])

    assert result["landing"] == {
        **{"streams": 1, "windows": 3, "events": 3, "emptied": 2, "shortened": 1, "files": 3},
        **{"mentions": 0, "unfinished": 0},
    }
    assert result["event_logs"] == {str(lake / "tables"): {"tables": 1, "rows": 3, "files": 3}}
    for text in (MARK, source.person[:15]):
        assert files_with(lake, text) == []
        assert text not in caplog.text + json.dumps(result)
    assert rows(lake) == without(events, source.person)
    (shared,) = [row for row in rows(lake) if row["Site"] == "Graz"]
    assert shared["ChangeEventHeader"]["recordIds"] == [source.other]
    for (manifest, was), (new, now) in zip(before, landed(lake), strict=True):
        assert [{**row, "payload": now[number]["payload"]} for number, row in enumerate(was)] == now
        changed = [old["ordinal"] for old, row in zip(was, now, strict=True) if old != row]
        assert changed == [row["ordinal"] for row in was if source.person[:15].encode() in row["payload"]]
        assert new.erased == {result["erasure_id"]: len(changed)}
        assert (new.window, new.schemas, new.fence) == (manifest.window, manifest.schemas, manifest.fence)
    record = ERASURE_DOCUMENT.from_json((lake / f"landing/erasures/{result['erasure_id']}.json").read_text(), "record")
    assert (len(record.hashes), record.entity, record.result) == (1, "Account", result)
    assert record.finished_at is not None

    again = erase(lake, [source.person], run_id="run-2")
    assert (again["landing"]["events"], again["event_logs"][str(lake / "tables")]["rows"]) == (0, 0)


def test_drains_and_tables_accept_new_events_after_an_erasure(lake: Path, source: Lake) -> None:
    erase(lake, source.person)
    updated_lake = replace(source, folder=lake)
    events = rows(lake)
    source.org.rest("PATCH", f"/sobjects/Account/{source.other}", {"Phone": "5"})
    assert updated_lake.drained()["rows_written"] >= 1
    assert rows(lake)[: len(events)] == events
    metrics = updated_lake.log([manifest.window.manifest_url for manifest, _ in landed(lake)])
    assert metrics["quarantined"] == 2
    assert {row["reason"].partition(":")[0] for row in rows(lake, "_quarantine")} == {"the landed row has no payload"}
    assert not [row for row in rows(lake) if source.person in row["ChangeEventHeader"]["recordIds"]]
    events, base = rows(lake), str(lake / "tables")
    files = ObjectStorageFiles(None)
    maintenance = maintain(EmbeddedEngine(files, files, base), MaintenanceConfig(output_url=base))
    assert {table.left for table in maintenance.tables.values()} == {None}
    assert rows(lake) == events
    assert files_with(lake, MARK) == []


def test_erasure_rewrites_files_landed_before_a_column_existed(lake: Path, source: Lake) -> None:
    for manifest, _ in landed(lake):
        drop_column(manifest.window.manifest_url, "event_id")
    before = landed(lake)
    assert erase(lake, source.person)["landing"]["files"] == 3
    assert files_with(lake / "landing", MARK) == []
    for (_, was), (_, now) in zip(before, landed(lake), strict=True):
        assert now == [{**row, "event_id": None, "payload": new["payload"]} for row, new in zip(was, now, strict=True)]


def test_erasure_covers_older_table_versions_and_files_of_killed_jobs(lake: Path, source: Lake) -> None:
    table = DeltaTable(lake / "tables/AccountChangeEvent")
    table.optimize.compact()
    table.create_checkpoint()
    (live,) = DeltaTable(lake / "tables/AccountChangeEvent").file_uris()
    killed = Path(live).with_name("part-killed.parquet")
    shutil.copy(live, killed)
    debris = next((lake / "landing").rglob("part-*.parquet")).with_name("part-00000-dead.parquet")
    shutil.copy(next((lake / "landing").rglob("part-*.parquet")), debris)
    with pytest.raises(Exception, match="younger than a day") as caught:
        erase(lake, source.person)
    assert source.person[:15] not in error_text(caught.value)
    assert all("killed" in path for path in files_with(lake, MARK)), (
        "only files that may belong to a running job remain"
    )
    cut = killed.with_name("part-cut.parquet")
    cut.write_bytes(b"PAR1 cut off")
    for path in (killed, cut):
        os.utime(path, (time.time() - 90_000,) * 2)
    erase(lake, source.person)
    assert files_with(lake, MARK) == []
    assert not debris.exists()
    assert not cut.exists()
    assert len(rows(lake)) == 4


CALLS = [
    (Erasure, "write"),
    (PartWriter, "_end_part"),
    (catalog_module, "replace_file"),
    (LandingCatalog, "remove_unlisted"),
    (TableFileWriter, "close"),
    (DeltaTableLog, "commit"),
    (DeltaTable, "create_checkpoint"),
    (TableErasure, "_remove"),
]


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.extended)], ids=["before", "after"])
def test_an_erasure_killed_at_any_step_is_completed_by_the_next_try(source: Lake, tmp_path: Path, after: bool) -> None:
    expected = without(rows(source.folder), source.person)
    for nth in itertools.count(1):
        lake = tmp_path / str(nth)
        shutil.copytree(source.folder, lake)
        was_killed = False
        try:
            with killed_at(CALLS, nth, after=after):
                erase(lake, source.person)
        except Killed:
            was_killed = True
        assert len(landed_ids(lake)) == 3, "readers find every window complete"

        result = erase(lake, source.person)

        assert result["landing"]["events"] == 3
        assert files_with(lake, MARK) == files_with(lake, source.person[:15]) == []
        assert rows(lake) == expected
        landed(lake)
        assert len(list((lake / "landing/erasures").iterdir())) == 1
        shutil.rmtree(lake)
        if not was_killed:
            break
    assert nth > 10


def landed_ids(folder: Path) -> list[str]:
    """Return the IDs of the windows whose files match their manifests."""
    catalog = LandingCatalog(Landing.from_url(str(folder / "landing")))
    (stream,) = catalog.streams()
    manifests = [catalog.read_manifest(stream, window_id) for window_id in catalog.window_ids(stream)]
    for manifest in filter(None, manifests):
        catalog.verify(manifest, sha256=True)
    return [manifest.window.window_id for manifest in manifests if manifest is not None]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"ids": ["001000000000001", "003000000000001"]}, "several objects"),
        ({"ids": ["001000000000001AAB"]}, r"ids\[0\] is not a record ID"),
        ({"ids": []}, "Expected 1 to 1000 record IDs, got 0"),
        ({"entity": "Case"}, "has change events of Case"),
        ({"entity": "no name"}, "must be the name of an object"),
        ({"event_log_urls": ["", "s3://lake"]}, "not a list of URLs"),
        ({"replica_urls": ["s3://key:secret@lake/replica"]}, "contains a password"),
    ],
)
def test_invalid_erasure_arguments_are_refused_before_anything_changes(
    lake: Path, source: Lake, given: dict[str, Any], text: str
) -> None:
    before = {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}
    with pytest.raises(AirflowFailException) as caught:
        erase(lake, **{"ids": [source.person], **given})
    message = error_text(caught.value)
    assert re.search(text, message), message
    assert "Nothing was erased" in message
    assert "001000000000001AAB" not in message
    assert {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()} == before


def test_an_erasure_with_unsearched_windows_is_not_recorded_as_finished(lake: Path, source: Lake) -> None:
    newest = max(lake.glob("landing/**/manifest.json"))
    unfinished = newest.parent.with_name(f"{newest.parent.name}-killed")
    shutil.copytree(newest.parent, unfinished)
    (unfinished / "manifest.json").unlink()

    def finished_at(result: dict[str, Any]) -> Any:
        record = json.loads((lake / f"landing/erasures/{result['erasure_id']}.json").read_text())
        assert record["result"] == result
        return record["finished_at"]

    result = erase(lake, [source.person])
    assert result["landing"]["unfinished"] == 1
    assert finished_at(result) is None
    assert files_with(lake, source.person[:15]), "in the folder that was not searched"
    shutil.rmtree(unfinished)
    assert finished_at(erase(lake, [source.person])) is not None
    assert files_with(lake, source.person[:15]) == []


def test_an_event_log_with_masked_record_ids_is_refused(source: Lake, tmp_path: Path) -> None:
    shutil.copytree(source.folder, tmp_path / "lake")
    windows = [manifest.window.manifest_url for manifest, _ in landed(tmp_path / "lake")]
    output = str(tmp_path / "hidden")
    given = {"mask_fields": ["ChangeEventHeader.recordIds"]}
    EventLogOperator(task_id="log", windows=windows, output_url=output, **given).execute(context_for("log"))
    with pytest.raises(AirflowFailException, match="Then write a new table from the landing"):
        erase(tmp_path / "lake", [source.person], event_log_urls=[output])
    assert not (tmp_path / "lake/landing/erasures").exists()


def test_events_in_quarantine_are_erased(source: Lake, tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path / "org") as org, pytest.MonkeyPatch.context() as monkeypatch:
        org.knobs(keepalive_seconds=0.3)
        set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
        org.fault("answer_schema", code="", status="NOT_FOUND")
        lake = Lake(tmp_path / "lake", org)
        person = lake.create({"Name": f"{MARK} Ada"})
        other = lake.create({"Name": "Bob"})
        assert lake.drained()["quarantined"] == 2
    assert files_with(lake.folder, MARK), "the search finds the mark before the erasure"
    before = rows(lake.folder, "_quarantine")

    result = erase(lake.folder, person)

    assert (result["landing"]["emptied"], result["event_logs"][str(lake.folder / "tables")]["rows"]) == (1, 1)
    assert files_with(lake.folder, MARK) == files_with(lake.folder, person) == []
    (mine, theirs), (was, theirs_before) = rows(lake.folder, "_quarantine"), before
    assert theirs == theirs_before
    assert other[:15].encode() in theirs["payload"]
    assert mine == {**was, "payload": None, "reason": mine["reason"]}
    assert mine["reason"].startswith("erased")


def test_a_replica_can_be_rebuilt_from_the_erased_landing(lake: Path, source: Lake) -> None:
    erase(lake, "{{ dag_run.conf['ids'] }}", conf={"ids": f"{source.person}, {source.person[:15]}"})
    windows = [manifest.window.manifest_url for manifest, _ in landed(lake)]
    operator = ReplicaOperator(task_id="replica", windows=windows, output_url=str(lake / "replica"))
    metrics = operator.execute(context_for("replica"))
    assert metrics is not None
    assert metrics["quarantined"] == 2
    found = DeltaTable(lake / "replica/Account").to_pyarrow_table().to_pylist()
    assert source.person not in {row["Id"] for row in found}
    assert len(found) == 2
    assert files_with(lake, MARK) == []


def test_a_job_that_began_before_an_erasure_cannot_commit_erased_files(lake: Path, source: Lake) -> None:
    log = DeltaTableLog(TableLocation(str(lake / "tables/AccountChangeEvent")), "late job")
    began, columns = log.version(progress=["sfstream:late"]), pa.schema([])
    path = next(iter(began.files))
    erase(lake, source.person)
    with pytest.raises(PositionConflictError, match="erase run run-1"):
        log.commit(began, columns, [], [path], ["event_date"])
    number = log.commit(began, columns, [], [], ["event_date"])
    assert log.version(progress=["sfstream:late"]).progress == {"sfstream:late": 1}
    assert number == log.version().number
