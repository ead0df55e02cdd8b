"""A stream that lands first, without Spark around it: its offsets, and what is read for them, against a local org."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from airflow_provider_sfstream.exceptions import ManifestError, SalesforceStreamError
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.protocol.streams import Stream
from airflow_provider_sfstream.stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.tasks.parts import open_landing
from pyspark_sfstream import DefaultSource
from pyspark_sfstream.readers import StreamReader
from tests.support.killed import Killed, killed_at
from tests.support.localorg import wait_until
from tests.support.shared_org import SharedOrg, shared_org
from tests.support.tasks import set_connection

__all__ = ["shared_org"]


@pytest.fixture
def org(shared_org: SharedOrg, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedOrg]:
    shared_org.begin_test()
    shared_org.knobs(keepalive_seconds=0.05)
    set_connection(monkeypatch, "salesforce_default", **shared_org.airflow_connection())
    yield shared_org
    shared_org.end_test()


class Query:
    """What Spark does with a stream: asks for offsets, plans partitions between two, and reads them elsewhere."""

    def __init__(self, org: SharedOrg, landing: Path, **options: Any) -> None:
        usual = {"path": str(landing), "topic": org.topic, "live": "true", "rows": "raw", "idle_timeout": "1"}
        self.source = DefaultSource({**usual, **{name: str(value) for name, value in options.items()}})
        self.reader: StreamReader = self.source.streamReader(self.source.schema())

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        elsewhere = pickle.loads(pickle.dumps(self.source.streamReader(self.source.schema())))
        partitions = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        batches = (batch for each in partitions for batch in elsewhere.read(each))
        return [replay_id for batch in batches for replay_id in batch.column("replay_id").to_pylist()]


def publish(org: SharedOrg, count: int) -> list[bytes]:
    return org.publish(org.topic, [{"Number__c": number} for number in range(count)])


def test_what_is_new_is_landed_first_and_a_batch_that_failed_is_read_again_from_storage(
    org: SharedOrg, tmp_path: Path
) -> None:
    query, first = Query(org, tmp_path), publish(org, 5)
    beginning = query.reader.initialOffset()
    landed = query.reader.latestOffset(beginning, ReadAllAvailable())
    later = publish(org, 3)
    assert query.read(beginning, landed) == first
    delivered = org.delivered
    assert query.read(beginning, landed) == first
    again = Query(org, tmp_path)
    assert again.read(beginning, landed) == first
    assert org.delivered == delivered
    end = again.reader.latestOffset(landed, ReadAllAvailable())
    assert again.read(landed, end) == later


def test_a_query_that_ends_with_what_there_is_drains_once(org: SharedOrg, tmp_path: Path) -> None:
    query, first = Query(org, tmp_path, max_events=4), publish(org, 4)
    query.reader.prepareForTriggerAvailableNow()
    publish(org, 2)
    start = query.reader.initialOffset()
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxRows)
    assert query.read(start, end) == first
    assert query.reader.latestOffset(end, query.reader.getDefaultReadLimit()) == end


@pytest.mark.parametrize("windows", [0, 1])
@pytest.mark.parametrize("after", [False, True])
def test_a_driver_that_is_killed_as_the_position_moves_loses_and_repeats_nothing(
    org: SharedOrg, tmp_path: Path, windows: int, after: bool
) -> None:
    """With the manifest written, before and after the position has moved, of the first window and a later one."""
    start, read = Query(org, tmp_path).reader.initialOffset(), list[bytes]()
    for _ in range(windows):
        publish(org, 2)
        query = Query(org, tmp_path)
        end = query.reader.latestOffset(start, ReadAllAvailable())
        read += query.read(start, end)
        start = end
    publish(org, 3)
    with killed_at([(DocumentReplayStore, "advance")], 1, after=after), pytest.raises(Killed):
        Query(org, tmp_path).reader.latestOffset(start, ReadAllAvailable())
    publish(org, 2)
    query = Query(org, tmp_path)
    for _ in range(2):  # what was finished is adopted first
        end = query.reader.latestOffset(start, ReadAllAvailable())
        read += query.read(start, end)
        start = end
    assert read == [event["replay_id"] for event in org.record(org.topic)]


def test_a_drain_that_fails_fails_the_query_and_loses_nothing(org: SharedOrg, tmp_path: Path) -> None:
    query, first = Query(org, tmp_path), publish(org, 2)
    start = query.reader.initialOffset()
    org.kill()
    with pytest.raises(SalesforceStreamError):
        query.reader.latestOffset(start, ReadAllAvailable())
    org.start()
    wait_until(lambda: org.token(), what="the org's answer")
    end = query.reader.latestOffset(start, ReadAllAvailable())
    assert query.read(start, end) == first


@pytest.mark.parametrize("store", ["landing", "table"])
def test_after_a_reset_the_store_says_which_windows_there_are(
    org: SharedOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Any
) -> None:
    set_connection(monkeypatch, "positions", conn_type="sqlite", host=str(tmp_path / "positions.db"))
    given = {"replay_store": store, "replay_store_conn_id": "positions"}
    landing, first = tmp_path / "landing", publish(org, 2)
    query = Query(org, landing, **given)
    start = query.reader.initialOffset()
    place = query.reader.latestOffset(start, ReadAllAvailable())
    catalog = open_landing(str(landing), None)
    stream = Stream(org.org_id, "pubsub", org.topic)
    opened = open_replay_store(store, "positions", catalog)
    opened.reset(stream, None, reason="a test", updated_by="somebody")
    end = query.reader.latestOffset(place, ReadAllAvailable())
    assert query.read(place, end) == first
    assert Query(org, landing, **given).read(start, end) == first * 2
    publish(org, 1)
    drained = int(time.time())
    wait_until(lambda: int(time.time()) > drained, what="the next second, which ids of windows are told apart by")
    query.reader.latestOffset(end, ReadAllAvailable())
    without = DefaultSource({"path": str(landing), "topic": org.topic, "rows": "raw"})
    with pytest.raises(ManifestError, match=r"set back by hand.*Give the option replay_store"):
        without.reader(without.schema()).partitions()


def test_the_windows_of_a_landing_that_a_dag_drains_are_read_up_to_its_position(org: SharedOrg, tmp_path: Path) -> None:
    """Another reader of the same subscription, with the store of who drains it."""
    writer, first = Query(org, tmp_path), publish(org, 2)
    writer.reader.latestOffset(writer.reader.initialOffset(), ReadAllAvailable())
    follower = DefaultSource({"path": str(tmp_path), "topic": org.topic, "rows": "raw", "replay_store": "landing"})
    rows = follower.reader(follower.schema())
    batches = (batch for each in rows.partitions() for batch in rows.read(each))
    assert [replay_id for batch in batches for replay_id in batch.column("replay_id").to_pylist()] == first
