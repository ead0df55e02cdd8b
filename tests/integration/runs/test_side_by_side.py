"""Runs that read a topic on several subscriptions at a time, from a local org behind a slow network, with faults."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.clients.auth.credentials import ClientCredentials
from airflow_provider_sfstream.clients.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.clients.pubsub.client import PubSubClient
from airflow_provider_sfstream.drain.limits import DrainLimits
from airflow_provider_sfstream.exceptions import LandingError, QuotaExceededError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.protocol.streams import RunIdentity, Stream
from airflow_provider_sfstream.runs import known_places
from airflow_provider_sfstream.runs.incremental import WindowOutcome, WindowRequest, drain_window
from airflow_provider_sfstream.runs.landed_stream import LandedStream
from airflow_provider_sfstream.stores.table.store import TableReplayStore
from tests.support.behind_network import OrgBehindNetwork
from tests.support.localorg import LocalOrg, wait_until

TOPIC = "/event/Order__e"
EVENTS = 4_000
DUE = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture(scope="module")
def shared_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrgBehindNetwork]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org, OrgBehindNetwork.of(org) as behind:
        org.define("Order__e", Amount__c="double", Note__c="string")
        org.publish_many(TOPIC, EVENTS, {"Amount__c": 1.5, "Note__c": "order {n}"})
        org.knobs(keepalive_seconds=0.3)
        yield behind


class Lake:
    """A landing and a replay store that some subscriptions to the topic share."""

    def __init__(self, folder: Path, org: OrgBehindNetwork) -> None:
        self.folder, self.org = folder, org
        self.catalog = LandingCatalog(Landing.from_url(str(folder / "lake")))
        self.store = TableReplayStore(f"sqlite:///{folder / 'replay.db'}")

    def landed(self, subscription: str) -> LandedStream:
        return LandedStream(Stream(self.org.org_id, "pubsub", TOPIC, subscription), self.catalog, self.store)

    @contextmanager
    def client(self) -> Iterator[PubSubClient]:
        org = self.org
        provider = OAuthTokenProvider(ClientCredentials(org.instance_url, org.client_id, org.client_secret))
        with PubSubClient(provider, endpoint=f"http://{org.grpc_target}") as client:
            yield client

    def run(self, subscription: str, run_id: str = "one", tries: int = 1, **more: Any) -> WindowOutcome:
        run = RunIdentity(subscription, "drain", run_id, DUE, try_number=tries)
        with self.client() as client:
            request = WindowRequest(run, more.pop("limits", DrainLimits()), **more)
            return drain_window(self.landed(subscription), request, source=client)

    def rows(self, subscription: str, outcome: WindowOutcome) -> list[dict[str, Any]]:
        folder = self.catalog.landing.window_folder(self.landed(subscription).stream, outcome.manifest.window.window_id)
        return [row for file in outcome.manifest.files for row in pq.read_table(f"{folder}/{file.name}").to_pylist()]


@pytest.fixture
def org(shared_org: OrgBehindNetwork) -> Iterator[OrgBehindNetwork]:
    yield shared_org
    shared_org.delay(0.0)
    shared_org.clear_faults()


@pytest.fixture
def lake(org: OrgBehindNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """Another subscription has landed all of it. The network gets slow."""
    monkeypatch.setattr(known_places, "LEAST_EVENTS", 400)
    lake = Lake(tmp_path, org)
    lake.run("other")
    org.admin("DELETE", "/requests")
    org.delay(0.01)
    yield lake
    lake.store.close()


def assert_rows_are(rows: list[dict[str, Any]], record: list[dict[str, Any]]) -> None:
    assert [row["ordinal"] for row in rows] == list(range(len(record)))
    for column in ("replay_id", "payload", "event_id", "schema_id"):
        assert [row[column] for row in rows] == [event[column] for event in record], column


FAULTS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "dropped with a status": {"how": "error", "code": "", "status": "UNAVAILABLE"},
    "reset without a status": {"how": "reset"},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_window_has_every_event_once_and_in_order(
    lake: Lake, org: OrgBehindNetwork, fault: dict[str, Any] | None
) -> None:
    if fault is not None:
        org.fault("drop_every", every=330, topic=TOPIC, **fault)
    outcome = lake.run("airflow", parallel_streams=4)
    assert_rows_are(lake.rows("airflow", outcome), org.record(TOPIC))
    assert outcome.manifest.stop_reason == "idle"
    wait_until(lambda: not org.streams(), what="the end of all streams")
    subscriptions = org.requests(method="Subscribe")
    assert len(subscriptions) >= 9, "ten stretches, and the end"
    if fault is None:
        delivered = sum(request["detail"]["events"] for request in subscriptions)
        assert delivered <= EVENTS + 200 * len(subscriptions), "what one has read, no other reads"


def test_the_window_is_the_one_of_a_single_stream(lake: Lake, org: OrgBehindNetwork) -> None:
    limits = DrainLimits(max_events=2_345)
    outcomes = {
        "airflow": lake.run("airflow", limits=limits, parallel_streams=4),
        "alone": lake.run("alone", limits=limits),
    }
    org.delay(0.0)
    beside, alone = (lake.rows(name, outcome) for name, outcome in outcomes.items())
    without = [[{**row, "received_at": None} for row in rows] for rows in (beside, alone)]
    assert without[0] == without[1]
    windows = [outcome.manifest.window for outcome in outcomes.values()]
    assert windows[0].through == windows[1].through == beside[-1]["replay_id"]
    assert windows[0].contact_at is not None
    assert max(row["received_at"] for row in beside) <= windows[0].contact_at
    following = lake.run("airflow", "two")
    assert_rows_are([*beside, *_after(beside, lake.rows("airflow", following))], org.record(TOPIC))


def _after(before: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "ordinal": row["ordinal"] + len(before)} for row in rows]


def test_a_revoked_token_is_renewed_by_all_of_them(lake: Lake, org: OrgBehindNetwork) -> None:
    class Revoking:
        """Stands in a drain's way once, when some have come."""

        revoked = 0

        def __init__(self, client: PubSubClient) -> None:
            self.client = client

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

        def subscribe(self, *given: Any, **named: Any) -> Iterator[Any]:
            count = 0
            for response in self.client.subscribe(*given, **named):
                count += len(response or ())
                if count > 200 and not Revoking.revoked:
                    Revoking.revoked = org.revoke()
                yield response

    run = RunIdentity("airflow", "drain", "one", DUE)
    with lake.client() as client:
        source: Any = Revoking(client)
        outcome = drain_window(
            lake.landed("airflow"), WindowRequest(run, DrainLimits(), parallel_streams=4), source=source
        )
    assert Revoking.revoked > 0
    assert_rows_are(lake.rows("airflow", outcome), org.record(TOPIC))


def test_what_stops_one_stops_all_and_nothing_is_published(lake: Lake, org: OrgBehindNetwork) -> None:
    quota = {"how": "error", "code": "subscription.limit.exceeded", "status": "RESOURCE_EXHAUSTED"}
    org.fault("drop_every", every=90, topic=TOPIC, **quota)
    with pytest.raises(QuotaExceededError):
        lake.run("airflow", parallel_streams=4)
    wait_until(lambda: not org.streams(), what="the end of all streams")
    landed = lake.landed("airflow")
    assert landed.position().fence == 0
    assert list(Path(lake.catalog.landing.windows_folder(landed.stream)).rglob("*.parquet")) == []
    org.clear_faults()
    assert_rows_are(lake.rows("airflow", lake.run("airflow", tries=2, parallel_streams=4)), org.record(TOPIC))


def test_a_landing_that_fails_ends_all_of_them(
    lake: Lake, org: OrgBehindNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("airflow_provider_sfstream.landing.parts.PartWriter.write", full)
    with pytest.raises(LandingError):
        lake.run("airflow", parallel_streams=4)
    wait_until(lambda: not org.streams(), what="the end of all streams")


KILLED = """
    import sys
    from pathlib import Path
    from types import SimpleNamespace
    from airflow_provider_sfstream.runs import known_places
    from tests.integration.runs.test_side_by_side import Lake
    known_places.LEAST_EVENTS = 400
    folder, org_id, instance_url, client_id, client_secret, grpc_target = sys.argv[1:]
    org = SimpleNamespace(
        org_id=org_id,
        instance_url=instance_url,
        client_id=client_id,
        client_secret=client_secret,
        grpc_target=grpc_target,
    )
    Lake(Path(folder), org).run("airflow", parallel_streams=4)
"""


def test_killed_in_the_middle_and_tried_again(lake: Lake, org: OrgBehindNetwork) -> None:
    org.delay(0.1)
    arguments = [str(lake.folder), org.org_id, org.instance_url, org.client_id, org.client_secret, org.grpc_target]
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[3],
    )
    try:
        wait_until(lambda: len(org.streams()) >= 4, what="four streams")
    finally:
        process.kill()
        process.wait()
    org.delay(0.01)
    assert lake.landed("airflow").position().fence == 0
    outcome = lake.run("airflow", tries=2, parallel_streams=4)
    assert_rows_are(lake.rows("airflow", outcome), org.record(TOPIC))


def test_what_has_aged_out_is_not_read_from(lake: Lake, org: OrgBehindNetwork) -> None:
    """The other subscription's first events are gone. It comes last: what has aged out stays so."""
    record = org.record(TOPIC)
    org.fault("expire_before", topic=TOPIC, replay_id=record[1_500]["replay_id"].hex())
    outcome = lake.run("airflow", parallel_streams=4)
    rows = lake.rows("airflow", outcome)
    kept = [event for event in record if event["replay_id"] in {row["replay_id"] for row in rows}]
    assert len(kept) in (EVENTS - 1_500, EVENTS - 1_501)
    assert_rows_are(rows, kept)
    assert kept == record[-len(kept) :]
