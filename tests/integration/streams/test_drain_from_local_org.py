"""Drain and landing against a local org with faults: landed rows are compared with the org's record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.exceptions import QuotaExceededError, ReplayIdLostError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter, WrittenWindow
from airflow_provider_sfstream.salesforce.auth.credentials import Credentials
from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.streams import Stream, window_id_for
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.drain.result import DrainResult
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.localorg import LocalOrg, wait_until
from tests.support.scripted_source import ListSink
from tests.support.windows import run_identity

TOPIC = "/event/Order__e"
WINDOW = window_id_for(run_identity(), "live", None)
EVENTS = 3_000
CONFIRMING = DrainLimits(confirm_timeout=60, wait_for_confirmation=True)


@pytest.fixture(scope="module")
def shared_org(tmp_path_factory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        org.define("Order__e", Amount__c="double", Note__c="string")
        org.publish_many(TOPIC, EVENTS, {"Amount__c": 1.5, "Note__c": "order {n}"})
        yield org


@pytest.fixture
def org(shared_org) -> Iterator[LocalOrg]:
    yield shared_org
    shared_org.clear_faults()
    shared_org.knobs(keepalive_seconds=120.0, delivery_quota=None)


@pytest.fixture
def client(org) -> Iterator[PubSubClient]:
    provider = OAuthTokenProvider(
        Credentials("client_credentials", org.instance_url, org.client_id, consumer_secret=org.client_secret)
    )
    with PubSubClient(provider, endpoint=f"http://{org.grpc_target}") as client:
        yield client


def drain_into(
    folder: Path, client: PubSubClient, org: LocalOrg, after=StartFrom.EARLIEST, *, limits=None, **arguments
) -> tuple[DrainResult, WrittenWindow, list[dict]]:
    """Drain until the end is confirmed (the org sends an empty response soon); return result, files and rows."""
    org.knobs(keepalive_seconds=0.3)
    landing, stream = Landing.from_url(str(folder / "lake")), Stream(org.org_id, "pubsub", TOPIC)
    with ParquetWindowWriter(
        landing, stream, WINDOW, attempt="1", schema=client.schema, row_group_rows=500, part_bytes=20_000
    ) as writer:
        result = Drain(client, writer, TOPIC, after, limits or CONFIRMING, **{"random": lambda: 0.0, **arguments}).run()
        landed = writer.finish()
    tables = [pq.read_table(f"{landing.window_folder(stream, WINDOW)}/{file.name}") for file in landed.files]
    return result, landed, pa.concat_tables(tables).to_pylist() if tables else []


def assert_rows_are(rows: list[dict], record: list[dict]) -> None:
    assert [row["ordinal"] for row in rows] == list(range(len(record)))
    for column in ("replay_id", "payload", "event_id", "schema_id"):
        assert [row[column] for row in rows] == [event[column] for event in record], column


FAULTS = {
    "none": None,
    "dropped with a status": {"how": "error", "code": "", "status": "UNAVAILABLE"},
    "dropped as if done": {"how": "end"},
    "reset without a status": {"how": "reset"},
    "service.unavailable as INTERNAL": {"how": "error", "code": "service.unavailable", "status": "INTERNAL"},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_every_event_is_landed_once_and_in_order_despite_dropped_streams(org, client, tmp_path, fault):
    if fault is not None:
        org.fault("drop_every", every=270, topic=TOPIC, **fault)
    result, landed, rows = drain_into(tmp_path, client, org)
    record = org.record(TOPIC)
    assert_rows_are(rows, record)
    assert result.stop_reason is StopReason.CAUGHT_UP
    assert result.reconnects >= (0 if fault is None else EVENTS // 270)
    assert (result.event_count, result.payload_bytes) == (EVENTS, sum(len(event["payload"]) for event in record))
    assert result.gap is None
    assert len(landed.files) > 1


def test_a_token_revoked_during_a_drain_is_renewed(org, client, tmp_path):
    revoked = []

    class RevokingSink:
        """Sink that revokes every token of the org after 500 events; the client prefetches at most 2,000 events."""

        def __init__(self, writer):
            self.writer, self.count = writer, 0

        def append(self, batch):
            self.writer.append(batch)
            self.count += len(batch)
            if self.count > 500 and not revoked:
                revoked.append(org.revoke())

    landing, stream = Landing.from_url(str(tmp_path / "lake")), Stream(org.org_id, "pubsub", TOPIC)
    with ParquetWindowWriter(landing, stream, WINDOW, attempt="1", schema=client.schema) as writer:
        result = Drain(client, RevokingSink(writer), TOPIC, StartFrom.EARLIEST, DrainLimits(max_events=EVENTS)).run()
        (file,) = writer.finish().files
    assert revoked[0] > 0
    assert result.reconnects == 1
    rows = pq.read_table(f"{landing.window_folder(stream, WINDOW)}/{file.name}").to_pylist()
    assert_rows_are(rows, org.record(TOPIC))


def test_max_events_is_exact_and_the_next_window_continues_after_it(org, client, tmp_path):
    record = org.record(TOPIC)
    start, rows = StartFrom.EARLIEST, []
    for number in range(4):
        limits = DrainLimits(max_events=731)
        result, _, landed = drain_into(tmp_path / str(number), client, org, start, limits=limits)
        assert result.stop_reason is StopReason.MAX_EVENTS
        assert result.through == landed[-1]["replay_id"]
        start, rows = result.through, rows + landed
    assert [row["replay_id"] for row in rows] == [event["replay_id"] for event in record[: 4 * 731]]
    result, _, landed = drain_into(tmp_path / "rest", client, org, start)
    assert [row["replay_id"] for row in landed] == [event["replay_id"] for event in record[4 * 731 :]]
    assert result.stop_reason is StopReason.CAUGHT_UP


def test_a_drain_requests_no_more_events_than_max_events(org, client, tmp_path):
    drain_into(tmp_path, client, org, limits=DrainLimits(max_events=130))
    wait_until(lambda: not org.streams(), what="the end of the stream")
    assert org.requests(method="Subscribe")[-1]["detail"]["events"] == 130


def test_an_expired_replay_id_applies_on_invalid_replay(tmp_path):
    with LocalOrg.running(tmp_path / "org") as org:
        org.define("Order__e", Amount__c="double", Note__c="string")
        org.publish_many(TOPIC, 300, {"Amount__c": 1.5, "Note__c": "order {n}"})
        record = org.record(TOPIC)
        position = record[99]["replay_id"]
        org.fault("expire_before", topic=TOPIC, replay_id=record[200]["replay_id"].hex())
        provider = OAuthTokenProvider(
            Credentials("client_credentials", org.instance_url, org.client_id, consumer_secret=org.client_secret)
        )
        with PubSubClient(provider, endpoint=f"http://{org.grpc_target}") as client:
            with pytest.raises(ReplayIdLostError, match=f'{position.hex()}.*on_invalid_replay="earliest"'):
                drain_into(tmp_path / "fail", client, org, position)
            assert not list((tmp_path / "fail").rglob("*.parquet"))

            result, _, rows = drain_into(tmp_path / "earliest", client, org, position, on_invalid_replay="earliest")
            assert result.gap is not None
            assert result.gap.after == position
            assert result.gap.resumed_at == rows[0]["replay_id"]
            assert_rows_are(rows, [event for event in record if event["replay_id"] >= rows[0]["replay_id"]])
            assert 99 <= len(rows) <= 100

            result, _, rows = drain_into(tmp_path / "latest", client, org, position, on_invalid_replay="latest")
            assert result.gap is not None
            assert (result.gap.after, result.gap.resumed_at, rows) == (position, None, [])
            assert result.pinned == result.through == record[-1]["replay_id"]


def subscribe_calls(org: LocalOrg) -> int:
    return len(org.requests(method="Subscribe"))


def test_a_quiet_topic_is_confirmed_by_empty_responses_of_two_subscriptions(org, client, tmp_path):
    end, before, began = org.record(TOPIC)[-1]["replay_id"], subscribe_calls(org), datetime.now(UTC)
    result, _, rows = drain_into(tmp_path, client, org, end)
    assert (result.stop_reason, rows) == (StopReason.CAUGHT_UP, [])
    assert began - timedelta(seconds=2) <= result.confirmed_at <= datetime.now(UTC)
    assert result.confirmed_at < result.contact_at
    wait_until(lambda: not org.streams(), what="the end of both streams")
    assert subscribe_calls(org) == before + 2
    assert sum(request["detail"]["events"] for request in org.requests(method="Subscribe")[-2:]) == 0


def test_the_end_of_a_topic_without_any_event_is_confirmed(org, client, tmp_path):
    org.define("Empty__e", Note__c="string")
    org.knobs(keepalive_seconds=0.3)
    result = Drain(client, ListSink(), "/event/Empty__e", StartFrom.EARLIEST, CONFIRMING).run()
    assert (result.stop_reason, result.event_count) == (StopReason.CAUGHT_UP, 0)
    assert result.confirmed_at is not None


def test_empty_responses_before_the_events_do_not_confirm_the_end(org, client, tmp_path):
    """The server sends empty responses with newer replay IDs before it sends the events."""
    record = org.record(TOPIC)
    org.fault("seek", topic=TOPIC, responses=5, seconds=0.2)
    result, _, rows = drain_into(tmp_path, client, org, record[-200]["replay_id"])
    assert_rows_are(rows, record[-199:])
    assert (result.stop_reason, result.gap) == (StopReason.CAUGHT_UP, None)


def test_a_plain_drain_opens_one_subscription_and_confirms_nothing(org, client, tmp_path):
    before = subscribe_calls(org)
    end = org.record(TOPIC)[-2]["replay_id"]
    result, _, rows = drain_into(tmp_path, client, org, end, limits=DrainLimits(idle_timeout=2))
    assert (result.stop_reason, len(rows), result.confirmed_at) == (StopReason.IDLE, 1, None)
    wait_until(lambda: not org.streams(), what="the end of the stream")
    assert subscribe_calls(org) == before + 1


def test_an_exhausted_delivery_allocation_fails_without_retry(org, client, tmp_path):
    org.knobs(delivery_quota=0)
    with pytest.raises(QuotaExceededError):
        drain_into(tmp_path, client, org)


MEMORY = """
    import importlib.util, json, os, sys
    spec = importlib.util.spec_from_file_location("drain_benchmark", "benchmarks/drain.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    benchmark.run_side("drain")
"""


@pytest.mark.extended
def test_two_hundred_thousand_events_stay_in_bounded_memory(tmp_path):
    count = 200_000
    with LocalOrg.running(tmp_path / "org") as org:
        org.define("Order__e", Number__c="double", Status__c="string", Note__c="string")
        org.publish_many(TOPIC, count, {"Number__c": 1.5, "Status__c": "shipped", "Note__c": "{n} " + "x" * 340})
        given = {
            "target": org.grpc_target,
            "token": org.token(),
            "instance_url": org.instance_url,
            "org_id": org.org_id,
            "count": count,
        }
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(MEMORY)],
            env={**os.environ, "SFSTREAM_BENCHMARK": json.dumps(given), "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["events"] == count
    assert figures["payload_bytes"] > 350 * count
    assert figures["peak_mib_above_idle"] < 250
