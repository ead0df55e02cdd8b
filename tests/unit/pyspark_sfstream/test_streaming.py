"""Streaming queries without Spark: offsets, and the rows between two offsets."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.replay_stores.kinds import ReplayStoreKind
from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream
from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from pyspark_sfstream import DefaultSource
from pyspark_sfstream.readers import StreamReader
from tests.support.scripted_source import ScriptedSource, events
from tests.support.tasks import set_connection

EVENTS = events(20)
IDS = [event.replay_id for event in EVENTS]
STREAM = Stream("00Dxx0000001gPLEAY", "pubsub", "/event/Order__e")
BEGAN = datetime(2024, 1, 10, tzinfo=UTC)


@pytest.fixture(params=["landing", "table"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReplayStoreKind:
    set_connection(monkeypatch, "positions", conn_type="sqlite", host=str(tmp_path / "positions.db"))
    kind: ReplayStoreKind = request.param
    return kind


class Topic:
    """Landing into which a topic is drained, window by window."""

    def __init__(self, folder: Path, store: ReplayStoreKind = "landing") -> None:
        self.folder, self._runs = folder / "lake", 0
        catalog = LandingCatalog(Landing.from_url(str(self.folder)))
        self.store = open_replay_store(store, "positions", catalog)
        self._landed = LandedStream(STREAM, catalog, self.store, lambda: LONG_RETENTION)

    def drain(self, count: int, *, advance: bool = True) -> None:
        """Land a window of ``count`` events, and advance the position."""
        self._runs += 1
        now = BEGAN + timedelta(hours=self._runs)
        run = RunIdentity("orders", "drain", f"run-{self._runs}", now)
        request = WindowRequest(run, DrainLimits(max_events=count), advance=advance)
        drain_window(self._landed, request, source=ScriptedSource(EVENTS, began=now), now=lambda: now)

    def source(self, **options: Any) -> DefaultSource:
        settings = {"path": self.folder, "topic": STREAM.topic, "rows": "raw", **options}
        return DefaultSource({name: str(value) for name, value in settings.items()})


class Query:
    """Query that acts as Spark: it requests offsets, plans partitions between them, and reads pickled copies."""

    def __init__(self, source: DefaultSource) -> None:
        self._source = source
        self.reader: StreamReader = source.streamReader(source.schema())

    def newest(self, start: dict[str, Any]) -> dict[str, Any]:
        return self.reader.latestOffset(start, self.reader.getDefaultReadLimit())

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        elsewhere = pickle.loads(pickle.dumps(self._source.streamReader(self._source.schema())))
        return replay_ids(elsewhere, pickle.loads(pickle.dumps(self.reader.partitions(start, end))))


def replay_ids(reader: Any, partitions: Any) -> list[bytes]:
    batches = (batch for each in partitions for batch in reader.read(each))
    return [replay_id for batch in batches for replay_id in batch.column("replay_id").to_pylist()]


def test_failed_batch_is_read_again_without_later_windows(tmp_path: Path, store: ReplayStoreKind) -> None:
    topic, options = Topic(tmp_path, store), {"replay_store": store, "replay_store_conn_id": "positions"}
    topic.drain(5)
    query = Query(topic.source(**options))
    start = query.reader.initialOffset()
    end = query.newest(start)
    topic.drain(3)
    again = Query(topic.source(**options))
    assert query.read(start, end) == query.read(start, end) == again.read(start, end) == IDS[:5]
    assert again.read(end, again.newest(end)) == IDS[5:8]


def test_available_now_query_ignores_later_windows(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.drain(4)
    query = Query(topic.source(replay_store="landing", max_events=4))
    query.reader.prepareForTriggerAvailableNow()
    topic.drain(2)
    limit = query.reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    start = query.reader.initialOffset()
    end = query.newest(start)
    assert query.read(start, end) == IDS[:4]
    assert query.newest(end) == end


def test_a_window_that_no_position_covers_is_not_read(tmp_path: Path, store: ReplayStoreKind) -> None:
    topic, options = Topic(tmp_path, store), {"replay_store": store, "replay_store_conn_id": "positions"}
    topic.drain(5)
    query = Query(topic.source(**options))
    assert isinstance(query.reader.getDefaultReadLimit(), ReadAllAvailable)
    end = query.newest(query.reader.initialOffset())
    topic.drain(3, advance=False)
    assert query.newest(end) == end
    rows = topic.source(**options).reader(query.reader._schema)
    assert replay_ids(rows, rows.partitions()) == IDS[:5]


def test_after_a_reset_the_replay_store_decides_which_windows_are_read(tmp_path: Path, store: ReplayStoreKind) -> None:
    topic, options = Topic(tmp_path, store), {"replay_store": store, "replay_store_conn_id": "positions"}
    topic.drain(2)
    query = Query(topic.source(**options))
    start = query.reader.initialOffset()
    place = query.newest(start)
    topic.store.reset(STREAM, None, reason="a test", updated_by="somebody")
    topic.drain(2)
    end = query.newest(place)
    assert query.read(place, end) == IDS[:2]
    assert Query(topic.source(**options)).read(start, end) == IDS[:2] * 2
    topic.drain(1)
    without = topic.source()
    with pytest.raises(ManifestError, match=r"set back by hand.*Set the option replay_store"):
        without.reader(without.schema()).partitions()
