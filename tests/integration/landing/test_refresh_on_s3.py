"""Files of a refresh on S3 through an Airflow connection: the operator reads dirty rows and writes records."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.exceptions import LandingError
from airflow_provider_sfstream.operators.refresh_replica import RefreshReplicaOperator
from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.tables.replica.refresh_document import FOLDER, RefreshDocument
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, Snapshot, StreamState, TableState
from tests.integration.landing.conftest import IMPATIENT, connect
from tests.support.localorg import LocalOrg
from tests.support.object_storage import BUCKET, ObjectStorage
from tests.support.object_storage_proxy import ObjectStorageProxy
from tests.support.tasks import context_for, set_connection

pytestmark = pytest.mark.extended

DIRTY = "_sfstream/replica/dirty/Account/list"


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        yield local_org


class Replica:
    """A replica on S3 whose table of accounts has dirty rows."""

    def __init__(self, storage: ObjectStorage, org: LocalOrg) -> None:
        self.storage, self.org = storage, org
        self.folder = f"replica-{secrets.token_hex(8)}"
        self.url = f"s3a://{BUCKET}/{self.folder}"
        self.ids = [str(org.rest("POST", "/sobjects/Account", {"Name": f"number {n}"})["id"]) for n in range(3)]

    def put(self, name: str, text: str) -> None:
        self.storage.client().put_object(Bucket=BUCKET, Key=f"{self.folder}/{name}", Body=text.encode())

    def publish(self, number: int) -> None:
        """Write a snapshot and its list of dirty rows."""
        lines = [json.dumps({"Id": record_id, "sequence": place}) for place, record_id in enumerate(self.ids)]
        self.put(f"{DIRTY}/part-0.json", "\n".join(lines) + "\n")
        self.put(f"{DIRTY}/_SUCCESS", "")
        state = StreamState(
            self.org.org_id, "pubsub", "/data/ChangeEvents", "", AppliedWindow("window-1", "", 1, 50), None, 49
        )
        table = TableState("stream", columns={"Name": "string"}, dirty=3, dirty_list=DIRTY)
        snapshot = Snapshot(number, None, {"stream": state}, {"Account": table})
        schema = f"{number:012d}-0123456789abcdef"
        self.put(f"_sfstream/replica/schemas/Account/{schema}.json", table.schema.to_json())
        self.put(f"_sfstream/replica/snapshots/{number:012d}.json", snapshot.to_json({"Account": schema}))

    def remaining_files(self) -> list[str]:
        return self.storage.keys(self.folder + "/" + FOLDER)


@pytest.fixture
def replica(object_storage: ObjectStorage, org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> Replica:
    set_connection(monkeypatch, "sf", **org.airflow_connection())
    return Replica(object_storage, org)


class Capturing(SparkSubmitRefreshReplicaOperator):
    """Operator that stores the files that the job would read, with another client."""

    storage: ObjectStorage
    captured: dict[str, str]

    def run_job(self, context: Any, config: Any) -> dict[str, Any] | None:
        folder = config.refresh_url.removeprefix(f"s3a://{BUCKET}/").rpartition("/")[0]
        client = self.storage.client()
        self.captured = {
            key.removeprefix(f"{folder}/"): client.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
            for key in self.storage.keys(folder + "/")
            if not key.endswith("/")
        }
        return None


@pytest.fixture
def refresh(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], Capturing]:
    def make(endpoint: str | None = None) -> Capturing:
        connection = replica.storage.airflow_connection(endpoint, **IMPATIENT)
        operator = Capturing(
            task_id="refresh",
            output_url=replica.url,
            output_conn_id=connect(monkeypatch, connection),
            salesforce_conn_id="sf",
        )
        operator.storage = replica.storage
        return operator

    return make


def test_records_of_dirty_rows_are_fetched_and_written_for_the_job(replica: Replica, refresh: Any) -> None:
    replica.publish(3)
    operator = refresh()
    operator.execute(context_for("refresh"))
    document = RefreshDocument.from_json(operator.captured["refresh.json"], "captured")
    (name,) = document.tables["Account"].files
    records = [json.loads(line) for line in operator.captured[name].splitlines()]
    assert [(record["Id"], record["Name"]) for record in records] == [
        (record_id, f"number {number}") for number, record_id in enumerate(replica.ids)
    ]
    assert [key for key in replica.remaining_files() if not key.endswith("/")] == [], (
        "all files of the refresh are removed"
    )


def test_refresh_in_the_worker_fetches_all_dirty_rows(replica: Replica, refresh: Any) -> None:
    replica.publish(3)
    connection_id = refresh().output_conn_id
    arguments = {"output_url": replica.url, "output_conn_id": connection_id, "salesforce_conn_id": "sf"}
    result = RefreshReplicaOperator(task_id="refresh", scope="all", **arguments).execute(context_for("refresh"))
    assert result["tables"]["Account"]["still_dirty"] == 0
    location = ObjectStorageFiles(connection_id).table_location(f"{replica.url}/Account")
    rows = DeltaTable(location.uri, storage_options=dict(location.options)).to_pyarrow_table(columns=["Id", "Name"])
    names = {row["Id"]: row["Name"] for row in rows.to_pylist()}
    assert {record_id: names[record_id] for record_id in replica.ids} == {
        record_id: f"number {number}" for number, record_id in enumerate(replica.ids)
    }


@pytest.mark.parametrize("part", ["/refresh.json", "/Account/part-"])
def test_refresh_that_cannot_write_submits_no_job_and_succeeds_on_retry(
    replica: Replica, refresh: Any, proxy: ObjectStorageProxy, part: str
) -> None:
    replica.publish(3)
    operator = refresh(proxy.endpoint)
    proxy.cut("PUT", part, body_bytes=10, times=None)
    with pytest.raises(LandingError, match=f"{replica.folder}.*cannot be written") as caught:
        operator.execute(context_for("refresh"))
    assert caught.value.retriable
    assert not hasattr(operator, "captured")
    proxy.heal()
    operator.execute(context_for("refresh", try_number=2))
    assert "refresh.json" in operator.captured


def test_snapshot_published_by_another_client_is_read(replica: Replica, refresh: Any, tmp_path: Path) -> None:
    connection_id = refresh().output_conn_id
    for number in (3, 4):
        replica.publish(number)
        assert read_snapshot(replica.url, connection_id).number == number
