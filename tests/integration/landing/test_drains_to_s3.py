"""Drains from a local org to S3 through an Airflow connection: faults do not change the landed events."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.serde import Serde

from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.exceptions import LandingError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.salesforce.streams import Stream
from tests.integration.landing.conftest import IMPATIENT, connect
from tests.support.localorg import LocalOrg
from tests.support.object_storage import BUCKET, ObjectStorage
from tests.support.object_storage_proxy import ObjectStorageProxy
from tests.support.tasks import context_for, set_connection

TOPIC = "/event/Order__e"
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    """Start an org with 150 events, 50 in each of the hours from four to two hours ago."""
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.knobs(keepalive_seconds=0.5)  # so that it soon confirms the end of the stream
        local_org.define("Order__e", Number__c="double")
        times = [NOW - timedelta(hours=hours) + timedelta(minutes=n) for hours in (4, 3, 2) for n in range(50)]
        local_org.publish(
            TOPIC, [{"Number__c": float(n), "CreatedDate": time.isoformat()} for n, time in enumerate(times)]
        )
        yield local_org


class Drains:
    """Drains of one landing and one replay store, and the events that they landed."""

    def __init__(self, org: LocalOrg, url: str, connection_id: str, replay_store: str) -> None:
        self.stream = Stream(org.org_id, "pubsub", TOPIC)
        self._arguments = {
            "topic": TOPIC, "landing_url": url, "landing_conn_id": connection_id, "replay_store": replay_store,
            "idle_timeout": 1.0,
        }  # fmt: skip

    def run(self, number: int, try_number: int = 1, **arguments: Any) -> dict[str, Any]:
        """Drain at most 60 events as run ``number``."""
        return self.execute(context_for("drain", f"run-{number}", try_number), max_events=60, **arguments)

    def hour(self, hours_ago: int, run_type: str, try_number: int = 1, **arguments: Any) -> dict[str, Any]:
        """Drain the hour that began ``hours_ago`` hours ago, as a run of type ``run_type``."""
        interval = {
            "data_interval_start": NOW - timedelta(hours=hours_ago),
            "data_interval_end": NOW - timedelta(hours=hours_ago - 1),
        }
        run_id = f"{run_type}-{hours_ago}"
        return self.execute(
            context_for("drain", run_id, try_number, run_type=run_type, **interval), mode="interval", **arguments
        )

    def execute(self, context: Any, **arguments: Any) -> dict[str, Any]:
        return self.operator(**arguments).execute(context)

    def operator(self, **arguments: Any) -> DrainReplayWindowOperator:
        return DrainReplayWindowOperator(task_id="drain", **{**self._arguments, **arguments})

    @property
    def catalog(self) -> LandingCatalog:
        return open_landing(self._arguments["landing_url"], self._arguments["landing_conn_id"])

    def landed(self, newest: dict[str, Any]) -> list[bytes]:
        """Verify every file of all windows up to ``newest`` and return the replay IDs of the windows."""
        catalog, found = self.catalog, []
        for manifest in catalog.chain(self.stream, newest["window_id"]):
            catalog.verify(manifest, sha256=True)
            found.insert(0, catalog.replay_ids(manifest))
        return [replay_id for window in found for replay_id in window]


EACH_STORE = pytest.mark.parametrize("replay_store", ["table", pytest.param("landing", marks=pytest.mark.extended)])
"""Run a test with positions in a database, and with positions in files in the landing."""
Make = Callable[[dict[str, Any]], Drains]


@pytest.fixture
def replay_store() -> str:
    return "table"


@pytest.fixture
def make(replay_store: str, org: LocalOrg, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Create drains through a storage connection."""
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(organization_id=org.org_id))
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    return lambda connection: Drains(org, url, connect(monkeypatch, connection), replay_store)


@pytest.fixture
def drains(make: Make, object_storage: ObjectStorage, proxy: ObjectStorageProxy) -> Drains:
    return make(object_storage.airflow_connection(proxy.endpoint, **IMPATIENT))


def of_org(org: LocalOrg) -> list[bytes]:
    return [event["replay_id"] for event in org.record(TOPIC)]


@EACH_STORE
def test_windows_are_consecutive_and_contain_no_credentials(
    org: LocalOrg, drains: Drains, object_storage: ObjectStorage, url: str
) -> None:
    windows = [drains.run(number) for number in range(4)]
    assert [window["event_count"] for window in windows] == [60, 60, 30, 0]
    assert drains.landed(windows[-1]) == of_org(org)
    assert windows[0]["manifest_url"].startswith(f"{url}/{org.org_id}/pubsub/event.Order__e/")
    client = object_storage.client()
    everything = [
        client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        for key in object_storage.keys(url.removeprefix(f"s3://{BUCKET}/"))
    ]
    assert len(everything) >= 8
    for secret in (*object_storage.user, *object_storage.administrator):
        assert secret not in json.dumps(windows)
        assert not any(secret.encode() in document for document in everything)


def test_lineage_reads_storage_in_the_forked_process_of_the_listener(
    org: LocalOrg, drains: Drains, object_storage: ObjectStorage, url: str
) -> None:
    """Clients of object storage use threads, and threads do not exist in a forked process."""
    operator = drains.operator(max_events=60)
    window = operator.execute(context_for("drain"))
    reading, writing = os.pipe()
    if os.fork() == 0:
        with os.fdopen(writing, "w") as pipe, suppress(BaseException):
            pipe.write(Serde.to_json(operator.get_openlineage_facets_on_complete(None).outputs[0]))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.wait()
    written = json.loads(text)
    assert {"replay_id", *org.record(TOPIC)[0]["fields"]} <= {
        each["name"] for each in written["facets"]["schema"]["fields"]
    }
    [folder] = written["facets"]["symlinks"]["identifiers"]
    assert folder["namespace"] == f"s3://{BUCKET}"
    assert window["manifest_url"].startswith(f"s3://{BUCKET}/{folder['name']}/windows/")
    assert not any(secret in text for secret in (*object_storage.user, *object_storage.administrator))
    links = {link.name: link.get_link(operator, ti_key=None) for link in operator.operator_extra_links}
    assert links["Manifest"] == "", "the AWS console does not show the storage of other vendors"


@pytest.mark.extended
@EACH_STORE
def test_backfill_reads_a_landed_hour_and_a_rerun_returns_the_same(org: LocalOrg, drains: Drains) -> None:
    live = drains.hour(4, "scheduled")
    assert live["event_count"] >= 50
    calls = len(org.requests())
    backfill = drains.hour(4, "backfill")
    assert [window["origin"] for window in backfill["windows"]] == ["landed"]
    assert drains.hour(4, "backfill", try_number=2) == {**backfill, "drained": False}
    assert len(org.requests()) == calls, "neither run sends a request, not even a login"


@pytest.mark.extended
def test_a_window_needs_the_documented_number_of_requests(drains: Drains, proxy: ObjectStorageProxy) -> None:
    drains.run(0)
    before = len(proxy.requests)
    assert drains.run(1)["event_count"] == 60
    listing = [request for request in proxy.requests[before:] if "prefix=" in request.query]
    writing = [request for request in proxy.requests[before:] if request.method in ("PUT", "POST")]
    assert (len(listing), len(writing)) == (3, 5)
    assert len(proxy.requests) - before == 21


FAULTS = {
    "part cut": lambda proxy: proxy.cut("PUT", "/part-", body_bytes=50, times=None),
    "manifest cut": lambda proxy: proxy.cut("PUT", "/manifest.json", body_bytes=50, times=None),
    "schema cut": lambda proxy: proxy.cut("PUT", "/schemas/", body_bytes=50, times=None),
    "manifest not heard of": lambda proxy: proxy.lose_answer("PUT", "/manifest.json", times=None),
    "nothing can be written": lambda proxy: proxy.answer("PUT", "", 503, "ServiceUnavailable", times=None),
    "forbidden": lambda proxy: proxy.answer("PUT", "/manifest.json", 403, "AccessDenied", times=None),
}


@pytest.mark.extended
@pytest.mark.parametrize("fault", FAULTS)
def test_retry_after_a_lasting_fault_lands_the_window(
    org: LocalOrg, drains: Drains, proxy: ObjectStorageProxy, object_storage: ObjectStorage, url: str, fault: str
) -> None:
    number = 0 if fault == "schema cut" else 1  # the first window writes the schema
    for earlier in range(number):
        drains.run(earlier)
    before = object_storage.keys(url.removeprefix(f"s3://{BUCKET}/"))
    happened = FAULTS[fault](proxy)
    with pytest.raises(LandingError, match="The stored position was not moved and nothing is lost") as caught:
        drains.run(number)
    assert caught.value.retriable
    assert happened.done >= 1
    proxy.heal()
    new = set(object_storage.keys(url.removeprefix(f"s3://{BUCKET}/"))) - set(before)
    published = [key for key in new if key.endswith("/manifest.json")]
    assert len(published) == (fault == "manifest not heard of")
    retried = drains.run(number, try_number=2)
    assert retried["event_count"] == 60
    assert retried["drained"] is not bool(published)
    newest = [drains.run(later) for later in range(number + 1, 3)][-1]
    assert drains.landed(newest) == of_org(org)
    manifest = drains.catalog.read_manifest_url(retried["manifest_url"])
    folder = retried["manifest_url"].removeprefix(f"s3://{BUCKET}/").rpartition("/")[0]
    listed = {f"{folder}/{file.name}" for file in manifest.files} | {f"{folder}/manifest.json"}
    assert set(object_storage.keys(folder)) - {f"{folder}/"} == listed, "the files of the first try are removed"


@pytest.mark.extended
def test_drain_succeeds_when_one_response_per_file_is_lost(
    org: LocalOrg, drains: Drains, proxy: ObjectStorageProxy
) -> None:
    lost = [proxy.lose_answer("PUT", part) for part in ("/part-", "/schemas/", "/manifest.json")]
    window = drains.run(0)
    assert [fault.done for fault in lost] == [1, 1, 1]
    assert window["drained"]
    assert drains.landed(drains.run(1)) == of_org(org)[:120]


@pytest.mark.extended
@EACH_STORE
def test_outdated_listings_lose_no_window(org: LocalOrg, drains: Drains, proxy: ObjectStorageProxy) -> None:
    """Every listing is empty: it has no windows, files, intervals or positions."""
    with proxy.listing_only([]):
        hours = [drains.hour(hours, "scheduled") for hours in (4, 3)]
        again = drains.hour(3, "scheduled", try_number=2)
        assert again["windows"] == hours[1]["windows"]
        calls = len(org.requests())
        backfills = [drains.hour(hours, "backfill") for hours in (4, 3)]
        assert len(org.requests()) == calls, "landed windows are found without listings"
    for scheduled, backfill in zip(hours, backfills, strict=True):
        assert {w["window_id"] for w in scheduled["windows"]} <= {w["window_id"] for w in backfill["windows"]}
    assert drains.landed(hours[-1]["windows"][-1])[:100] == of_org(org)[:100]


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Run ``work`` in a thread; after the block, the list contains its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    try:
        yield results
    finally:
        thread.join()


@pytest.mark.extended
def test_storage_that_is_down_for_seconds_only_delays_a_drain(org: LocalOrg, make: Make, tmp_path: Path) -> None:
    """The storage is killed during the drain and starts again before the client gives up after eight tries."""
    with ObjectStorage.running(tmp_path / "server") as storage, ObjectStorageProxy.running(storage.port) as proxy:
        patient = {"retries": {"total_max_attempts": 8}}
        drains = make(storage.airflow_connection(proxy.endpoint, config_kwargs=patient))
        drains.run(0)
        reached = proxy.cut("PUT", "/part-", times=None)
        with meanwhile(lambda: drains.run(1)) as results:
            while not reached.done:
                threading.Event().wait(0.01)
            storage.kill()
            proxy.heal()
            storage.start()
        (window,) = results
        assert (window["event_count"], window["drained"]) == (60, True)
        assert drains.landed(drains.run(2)) == of_org(org)
