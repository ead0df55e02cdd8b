"""A landing that may never hold some fields, and the tables made from it: a grep of every byte that is left."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from airflow_provider_sfstream.operators.replica import ReplicaOperator
from airflow_provider_sfstream.protocol.field_rules import FieldRules
from airflow_provider_sfstream.protocol.manifest import Manifest
from airflow_provider_sfstream.tasks.replica import read_snapshot
from tests.support.localorg import LocalOrg
from tests.support.marked_bytes import files_with
from tests.support.tasks import context_for, set_connection

TOPIC = "/data/AccountChangeEvent"
MARK = "MARKED"
KEY = "a key of sixteen or more characters"


@pytest.fixture
def org(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path / "org") as org:
        org.knobs(keepalive_seconds=0.3)
        set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
        set_connection(monkeypatch, "key", conn_type="generic", password=KEY)
        yield org


def drain(folder: Path, run_id: str = "run-1", **arguments: Any) -> dict[str, Any]:
    given = {"topic": TOPIC, "landing_url": str(folder / "landing"), "replay_store": "landing", "idle_timeout": 1.0}
    given["landing_exclude_fields"] = ["Phone", "BillingAddress.Street", "Name.FirstName", "Nowhere__c"]
    operator = DrainReplayWindowOperator(task_id="drain", **{**given, **arguments})
    return operator.execute(context_for("drain", run_id=run_id))


def manifest_of(result: dict[str, Any]) -> tuple[Manifest, list[dict[str, Any]]]:
    url = result["manifest_url"]
    path = Path(urlsplit(url).path)
    manifest = Manifest.from_json(path.read_text(), url)
    rows = [row for file in manifest.files for row in pq.read_table(path.parent / file.name).to_pylist()]
    return manifest, rows


def record(number: int, **values: Any) -> dict[str, Any]:
    marked = {"Phone": f"{MARK} {number}", "BillingStreet": MARK, "BillingCity": "Graz", "Website": f"{number}.org"}
    return {"Name": f"Account {number}", "Fax": f"{MARK}F", **marked, **values}


def test_nothing_of_the_fields_is_landed_and_tables_have_all_else(org: LocalOrg, tmp_path: Path) -> None:
    ids = [str(org.rest("POST", "/sobjects/Account", record(number))["id"]) for number in range(3)]
    org.rest("PATCH", f"/sobjects/Account/{ids[1]}", {"Phone": f"{MARK}!", "Industry": "Energy", "BillingCity": None})
    org.rest("PATCH", f"/sobjects/Account/{ids[2]}", {"BillingStreet": f"{MARK}?", "BillingCity": "Linz", "Fax": None})
    org.fault("answer_schema", code="schema.api.unavailable", status="INTERNAL", times=1)
    result = drain(tmp_path)
    manifest, rows = manifest_of(result)
    assert (len(rows), manifest.window.event_count) == (5, 5)
    assert len(files_with(tmp_path / "landing", f"{MARK}F")) == 1, "what is not named is landed, and found"
    assert not [path for path in files_with(tmp_path / "landing", MARK) if not path.endswith(".parquet")]
    assert not any(f"{MARK} ".encode() in row["payload"] or f"{MARK}!".encode() in row["payload"] for row in rows)
    assert files_with(tmp_path / "landing", f"{MARK}?") == files_with(tmp_path / "landing", f"{MARK} 1") == []
    left_out = manifest.left_out
    assert left_out is not None
    assert left_out.fields == ("Phone", "BillingAddress.Street", "Name.FirstName", "Nowhere__c")
    ((reduced, original),) = left_out.schemas.items()
    assert {row["schema_id"] for row in rows} == manifest.schemas.keys() == {reduced}
    assert original in {event["schema_id"] for event in org.record(TOPIC)}
    assert left_out.emptied == 0
    assert Manifest.from_json(manifest.to_json(), manifest.window.manifest_url) == manifest

    output = str(tmp_path / "tables")
    rules = {"hash_fields": ["Website"], "mask_fields": ["Fax"], "hash_conn_id": "key"}
    EventLogOperator(task_id="log", windows=result, output_url=output, **rules).execute(context_for("log"))
    ReplicaOperator(task_id="replica", windows=result, output_url=output, **rules).execute(context_for("replica"))
    assert files_with(tmp_path / "tables", MARK) == []
    found = {row["Id"]: row for row in DeltaTable(tmp_path / "tables/Account").to_pyarrow_table().to_pylist()}
    assert [(found[each]["Industry"], found[each]["BillingCity"]) for each in ids] == [
        (None, "Graz"),
        ("Energy", None),
        (None, "Linz"),
    ]
    hashes = FieldRules.of([], [], ["Website"], KEY)
    assert [found[each]["Website"] for each in ids] == [hashes.text(f"{number}.org", "hash") for number in range(3)]
    assert [found[each]["Fax"] for each in ids] == ["***", "***", None]
    assert [found[each]["Name"] for each in ids] == ["Account 0", "Account 1", "Account 2"]
    assert not found[ids[0]].keys() & {"Phone", "BillingStreet", "FirstName"}
    hidden = read_snapshot(output, None).tables["Account"].hidden
    assert {"phone", "billingstreet", "firstname"} <= {column for column, how in hidden.items() if how == "exclude"}
    assert len(DeltaTable(tmp_path / "tables/AccountChangeEvent").to_pyarrow_table()) == 5


def test_what_cannot_be_read_lands_empty_and_is_quarantined(org: LocalOrg, tmp_path: Path) -> None:
    org.rest("POST", "/sobjects/Account", record(1))
    org.fault("answer_schema", code="", status="NOT_FOUND")
    result = drain(tmp_path)
    manifest, rows = manifest_of(result)
    assert [row["payload"] for row in rows] == [b""]
    assert manifest.left_out is not None
    assert manifest.left_out.emptied == manifest.window.event_count == 1
    assert files_with(tmp_path / "landing", MARK) == []
    output = str(tmp_path / "tables")
    metrics = EventLogOperator(task_id="log", windows=result, output_url=output).execute(context_for("log"))
    assert metrics is not None
    assert metrics["quarantined"] == 1
    (outcast,) = DeltaTable(tmp_path / "tables/_quarantine").to_pyarrow_table().to_pylist()
    assert "could not be had" in outcast["reason"]


def test_a_drain_that_was_not_told_reads_nothing(org: LocalOrg, tmp_path: Path) -> None:
    drain(tmp_path, "run-1", landing_exclude_fields=["Phone"])
    org.rest("POST", "/sobjects/Account", record(1))
    landed = sorted((tmp_path / "landing").rglob("*"))
    with pytest.raises(AirflowFailException, match=r"(?s)windows are landed without Phone.*position was not moved"):
        drain(tmp_path, "run-2", landing_exclude_fields=[])
    assert [path for path in sorted((tmp_path / "landing").rglob("*")) if path.is_file()] == [
        path for path in landed if path.is_file()
    ]
    more = drain(tmp_path, "run-3", landing_exclude_fields=["PHONE", "BillingAddress", "Fax"])
    assert more["event_count"] == 1
    assert files_with(tmp_path / "landing", MARK) == []


def test_the_schema_that_is_landed_reads_what_is_landed(org: LocalOrg, tmp_path: Path) -> None:
    org.rest("POST", "/sobjects/Account", record(1))
    manifest, (row,) = manifest_of(drain(tmp_path, landing_exclude_fields=["BillingAddress", "Phone", "Fax"]))
    schema = fastavro.schema.load_schema(urlsplit(manifest.url_of(manifest.schemas[row["schema_id"]])).path)
    event = fastavro.schemaless_reader(io.BytesIO(row["payload"]), schema, None)
    assert isinstance(event, dict)
    assert event["BillingAddress"] is None
    assert event["Website"] == "1.org"
    assert files_with(tmp_path / "landing", MARK) == []


def test_arguments_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Pub/Sub API only"):
        drain(tmp_path, topic="/topic/Accounts")
    with pytest.raises(ConfigurationError, match=r"ordered by ChangeEventHeader.recordIds"):
        drain(tmp_path, landing_exclude_fields=["ChangeEventHeader.recordIds"])
    with pytest.raises(ConfigurationError, match="hash_fields needs hash_conn_id"):
        EventLogOperator(task_id="log", windows=[], output_url="out", hash_fields=["Phone"])
