"""Tables that a worker writes on S3 in its own process, with the credentials of an Airflow connection."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.actions.tables.iceberg_catalog import storage_properties
from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.changes import read_changes
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from airflow_provider_sfstream.operators.replica import ReplicaOperator
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from tests.integration.landing.conftest import connect
from tests.support.change_lake import SCHEMAS, START, TOPIC, change
from tests.support.landing_files import LandedEvent, encode, land_window
from tests.support.marked_bytes import files_with
from tests.support.object_storage import ObjectStorage
from tests.support.tasks import context_for, set_connection

pytestmark = pytest.mark.extended

ORDER = {"type": "record", "name": "Order__e", "fields": [{"name": "CreatedDate", "type": "long"}]}


@pytest.fixture
def conn_id(object_storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    has_role = getattr(request, "param", "keys") == "role"
    connection = object_storage.airflow_connection_of_role if has_role else object_storage.airflow_connection
    return connect(monkeypatch, connection())


def table(url: str, conn_id: str) -> DeltaTable:
    location: TableLocation = ObjectStorageFiles(conn_id).table_location(url)
    return DeltaTable(location.uri, storage_options=dict(location.options))


@pytest.mark.parametrize("conn_id", ["keys", "role"], indirect=True)
def test_event_log_on_s3_has_no_duplicates_after_a_rerun(
    tmp_path: Path, url: str, conn_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_landing(url, conn_id).landing.check_writable()
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    set_connection(monkeypatch, "catalog", conn_type="generic", extra=catalog)
    moment = int(START.timestamp() * 1000)
    events: list[Any] = [LandedEvent(number, "one", {"CreatedDate": moment + number}) for number in range(9)]
    events.append(LandedEvent(9, "one", b"\xff"))
    manifest = land_window(tmp_path, "20260110T000000Z-a", events, {"one": ORDER}, event_times=(START, START))
    for _ in range(2):
        tables = {"output_url": url, "output_conn_id": conn_id, "catalog_conn_id": "catalog"}
        operator = EventLogOperator(task_id="log", windows=manifest, **tables)
        metrics = operator.execute(context_for("log"))
        assert metrics is not None
        assert (metrics["rows_written"], metrics["quarantined"]) == (9, 1)
    assert len(table(f"{url}/Order__e", conn_id).to_pyarrow_table()) == 9
    storage = storage_properties(ObjectStorageFiles(conn_id).table_location(url))
    assert len(load_catalog("catalog", **storage, **catalog).load_table("salesforce.order__e").scan().to_arrow()) == 9


def test_changes_on_s3_are_read_with_the_connection(tmp_path: Path, url: str, conn_id: str) -> None:
    moment = int(START.timestamp() * 1000)
    manifests = [
        land_window(
            tmp_path,
            f"20260110T00000{number}Z-a",
            [LandedEvent(number, "one", {"CreatedDate": moment + number})],
            {"one": ORDER},
            event_times=(START, START),
        )
        for number in range(2)
    ]
    arguments: dict[str, Any] = {"output_url": url, "output_conn_id": conn_id}
    read = partial(read_changes, table="Order__e", **arguments)
    EventLogOperator(task_id="log", windows=manifests[0], **arguments).execute(context_for("log"))
    first = read(since=None)
    EventLogOperator(task_id="log", windows=manifests, **arguments).execute(context_for("log"))
    assert [len(pa.table(read(since=since))) for since in (None, first.next_since)] == [2, 1]
    log = DeltaTableLog(ObjectStorageFiles(conn_id).table_location(f"{url}/Order__e"))
    (replaced,) = log.version(first.version).files
    log.location.filesystem().delete_file(replaced)
    with pytest.raises(ConfigurationError, match="1 files of version 0"):
        read(since=first.next_since)


def test_replica_on_s3_has_rows_and_a_list_of_dirty_rows(tmp_path: Path, url: str, conn_id: str) -> None:
    ids = ["a0W000000000001AAA", "a0W000000000002AAA"]
    first = [change(1, "CREATE", ids[:1], "t1", Name="one"), change(2, "GAP_UPDATE", ids[1:], "t2")]
    manifest = land_window(tmp_path, "20260110T000000Z-c", first, SCHEMAS, topic=TOPIC)
    operator = ReplicaOperator(task_id="replica", windows=manifest, output_url=url, output_conn_id=conn_id)
    metrics = operator.execute(context_for("replica"))
    assert metrics is not None
    assert metrics["tables"]["Widget__c"]["dirty"] == 1
    state = read_snapshot(url, conn_id).tables["Widget__c"]
    files, listed = ObjectStorageFiles(conn_id), f"{url}/{state.dirty_list}"
    (name,) = files.file_names(listed)
    assert files.read_text(f"{listed}/{name}") == f'{{"Id": "{ids[1]}", "sequence": 2}}\n'
    assert sorted(table(f"{url}/Widget__c", conn_id).to_pyarrow_table()["Id"].to_pylist()) == ids


def test_erasing_from_landing_event_log_and_replica(tmp_path: Path, url: str, conn_id: str) -> None:
    gone, stays = to_18("a0W000000000001"), to_18("a0W000000000002")
    changes = [change(1, "CREATE", [gone], "t1", Name="MARKED"), change(2, "CREATE", [stays], "t2", Name="two")]
    broken = change(3, "UPDATE", [gone], "t3", Name="MARKED 3")
    payload = encode(SCHEMAS[str(broken.schema_id)], dict(broken.record))[:-3]  # type: ignore[arg-type]
    changes.append(LandedEvent(3, broken.schema_id, payload))
    manifest = land_window(tmp_path / "landing", "20260110T000000Z-e", changes, SCHEMAS, topic=TOPIC)
    landing = open_landing(f"{url}/landing", conn_id).landing
    landing.filesystem.put(f"{tmp_path}/landing/", f"{landing.base}/", recursive=True)
    tables = {"output_url": f"{url}/tables", "output_conn_id": conn_id}
    EventLogOperator(task_id="log", windows=manifest, **tables).execute(context_for("log"))
    replica = {"output_url": f"{url}/replica", "output_conn_id": conn_id, "history": True}
    ReplicaOperator(task_id="replica", windows=manifest, **replica).execute(context_for("replica"))
    operator = EraseRecordsOperator(
        task_id="erase",
        entity="Widget__c",
        ids=[gone],
        landing_url=f"{url}/landing",
        event_log_urls=[f"{url}/tables"],
        replica_urls=[f"{url}/replica"],
        landing_conn_id=conn_id,
        output_conn_id=conn_id,
    )
    for rows in (1, 0):
        result = operator.execute(context_for("erase"))
        assert result["landing"]["events"] == 2
        assert result["event_logs"][f"{url}/tables"]["rows"] == 2 * rows
        replica_result = result["replicas"][f"{url}/replica"]
        assert (replica_result["rows"], replica_result["quarantined"]) == (rows, rows)
    landing.filesystem.get(url, f"{tmp_path}/left", recursive=True)
    assert files_with(tmp_path / "left", stays), "all files were downloaded"
    assert files_with(tmp_path / "left", "MARKED") == files_with(tmp_path / "left", gone) == []
    assert len(table(f"{url}/tables/Widget__ChangeEvent", conn_id).to_pyarrow_table()) == 1
    assert len(table(f"{url}/replica/Widget__c", conn_id).to_pyarrow_table()) == 1
