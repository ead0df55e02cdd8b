"""Prune operator on a landing with a replica and an event log: pruned windows, kept windows and the reported reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.operators.prune_replay_windows import PruneReplayWindowsOperator
from airflow_provider_sfstream.replay_stores.table import TableReplayStore
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.table_files import PartitionFiles
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, Snapshot, StreamState
from tests.support.pruning import DailyWindows, day
from tests.support.replay_stores import StoreUnderTest
from tests.support.tasks import context_for, set_connection

ORG = "00D000000000001EAA"
TOPIC = "/data/AccountChangeEvent"
FIRST = (datetime.now(UTC) - day(0)).days - 40
"""Day number of the first window in the tests' calendar: forty days before today."""


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DailyWindows]:
    database = tmp_path / "replay.db"
    extra = {"organization_id": ORG, "consumer_key": "key", "consumer_secret": "word", "domain": "nowhere"}
    set_connection(monkeypatch, "salesforce_default", conn_type="salesforce", extra=extra)
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(database))
    catalog = LandingCatalog(Landing.from_url(str(tmp_path / "landing")))
    under_test = StoreUnderTest(lambda: TableReplayStore(f"sqlite:///{database}"), catalog)
    yield DailyWindows(under_test, days=8, first=FIRST, stream=Stream(ORG, "pubsub", TOPIC))
    under_test.store.close()


Prune = Callable[..., dict[str, Any]]
NO_READERS: dict[str, Any] = {"replica_urls": [], "event_log_urls": []}


@pytest.fixture
def prune(windows: DailyWindows, tmp_path: Path) -> Prune:
    def execute(**arguments: Any) -> dict[str, Any]:
        given = {"topic": TOPIC, "older_than": timedelta(days=20), "replay_store": "table", **NO_READERS, **arguments}
        operator = PruneReplayWindowsOperator(task_id="prune", landing_url=str(tmp_path / "landing"), **given)
        return operator.execute(context_for("prune"))

    return execute


def make_replica(output: Path, stream: Stream, last: ReplayWindow, *held: ReplayWindow) -> str:
    """Write the snapshot of a replica that has applied the windows up to ``last``, except the ``held`` ones."""

    def applied(window: ReplayWindow) -> AppliedWindow:
        return AppliedWindow(window.window_id, window.manifest_url, 1, window.event_count)

    state = StreamState(**vars(stream), last=applied(last), through=None, held=tuple(map(applied, held)))
    snapshots = output / "_sfstream/replica/snapshots"
    snapshots.mkdir(parents=True)
    number = len(list(snapshots.iterdir())) + 1
    text = Snapshot(number - 1).next({"s": state}, {}, datetime(2026, 1, 1, tzinfo=UTC)).to_json({})
    (snapshots / f"{number:012d}.json").write_text(text)
    return str(output)


def test_old_windows_are_removed_and_counted(windows: DailyWindows, prune: Prune) -> None:
    would = prune(dry_run=True)
    assert (would["dry_run"], would["windows"]) == (True, 7)
    assert windows.recorded() == windows.live

    result = prune()

    assert result == {
        "stream": vars(windows.stream),
        "dry_run": False,
        "windows": 7,
        "events": 14,
        "bytes": 700,
        "first_window": windows.live[0].window_id,
        "last_window": windows.live[6].window_id,
        "kept": 1,
        "kept_because": f"window {windows.live[7].window_id} is among the last 1",
    }
    assert windows.recorded() == windows.live[7:]
    windows.check()
    assert prune()["windows"] == 0


def test_windows_that_a_replica_has_not_applied_are_kept(windows: DailyWindows, prune: Prune, tmp_path: Path) -> None:
    ahead = make_replica(tmp_path / "ahead", windows.stream, windows.live[5])
    behind = make_replica(tmp_path / "behind", windows.stream, windows.live[4], windows.live[3], windows.live[4])

    result = prune(replica_urls=[ahead, behind])

    assert windows.recorded() == windows.live[3:]
    assert result["kept_because"] == f"the replica at {behind} is on window {windows.live[3].window_id}"
    assert prune(replica_urls=ahead)["windows"] == 2
    assert windows.recorded() == windows.live[5:]


def test_a_replica_without_a_window_of_the_stream_keeps_all_windows(
    windows: DailyWindows, prune: Prune, tmp_path: Path
) -> None:
    other = Stream(ORG, "pubsub", TOPIC, "another")
    urls = [str(tmp_path / "nothing"), make_replica(tmp_path / "another", other, windows.live[7])]

    for url in urls:
        result = prune(replica_urls=[url])
        assert result["windows"] == 0
        assert result["kept_because"] == f"the replica at {url} has no window of the stream yet"

    assert windows.recorded() == windows.live


def test_a_replica_of_another_landing_fails_the_pruning(windows: DailyWindows, prune: Prune, tmp_path: Path) -> None:
    strange = DailyWindows(windows.under_test, days=1, first=FIRST + 9, stream=Stream(ORG, "pubsub", TOPIC, "other"))
    url = make_replica(tmp_path / "replica", windows.stream, strange.live[0])

    with pytest.raises(AirflowFailException, match=f"{strange.live[0].window_id}.*landing"):
        prune(replica_urls=[url])

    assert windows.recorded() == windows.live


def test_only_committed_rows_of_delta_tables_count(windows: DailyWindows, prune: Prune, tmp_path: Path) -> None:
    """A killed job leaves uncommitted files in its window's folder; a compaction moves rows out of this folder."""
    log = tmp_path / "log"
    schema = pa.schema([("window_id", pa.string()), ("event_date", pa.date32())])

    def write(window: ReplayWindow, table: str = "AccountChangeEvent", part: str = "", commit: bool = True) -> None:
        assert window.first_event_time is not None
        location = TableLocation(str(log / table))
        partition_by = [] if table == "_quarantine" else ["event_date"]
        row = {"window_id": window.window_id + part, "event_date": window.first_event_time.date()}
        rows = pa.RecordBatch.from_pylist([row], schema=schema)
        with PartitionFiles(location) as written:
            written.append("", rows, partition_by)
            files = [file for _, file in written.close()]
        if commit:
            deltas = DeltaTableLog(location)
            deltas.commit(deltas.version(), schema, files, [], partition_by)

    assert prune(event_log_urls=[str(log)])["windows"] == 0
    write(windows.live[4])
    write(windows.live[0])
    (log / "Other/event_date=2026-01-10" / windows.live[3].window_id).mkdir(parents=True)
    DeltaTable(str(log / "AccountChangeEvent")).create_checkpoint()
    write(windows.live[1], part=".20261120T000000.000000Z-20261120T010000.000000Z")
    write(windows.live[2], "_quarantine")
    write(windows.live[3], commit=False)
    write(windows.live[3], "_quarantine", part=".replica-0")
    DeltaTable(str(log / "_quarantine")).optimize.compact()

    assert prune(event_log_urls=[str(log)])["windows"] == 3
    assert windows.recorded() == windows.live[3:]

    write(windows.live[3])
    write(windows.live[3])
    DeltaTable(str(log / "AccountChangeEvent")).optimize.compact()
    result = prune(event_log_urls=[str(log)])
    assert windows.recorded() == windows.live[5:]
    assert result["kept_because"] == f"the event log at {log} has no row of window {windows.live[5].window_id}"


def test_tables_of_a_replica_in_the_folder_of_an_event_log_are_ignored(
    windows: DailyWindows, prune: Prune, tmp_path: Path
) -> None:
    write_deltalake(str(tmp_path / "log/Account"), pa.table({"Id": ["001000000000001AAA"]}))
    result = prune(event_log_urls=[str(tmp_path / "log")])
    assert result["windows"] == 0
    assert result["kept_because"].endswith(f"has no row of window {windows.live[0].window_id}")


def test_windows_without_events_are_pruned_without_a_row_in_the_event_log(
    windows: DailyWindows, prune: Prune, tmp_path: Path
) -> None:
    stream = Stream(ORG, "pubsub", TOPIC, "quiet")
    quiet = DailyWindows(windows.under_test, days=0, stream=stream)
    for number in range(FIRST, FIRST + 5):
        quiet.land(number, events=None)

    assert prune(subscription="quiet", event_log_urls=[str(tmp_path / "log")])["windows"] == 4
    assert windows.recorded() == windows.live


@pytest.mark.parametrize(
    "arguments",
    [
        {"older_than": timedelta(days=3)},
        {"older_than": 30},
        {"keep_last": 0},
        {"replay_store": "file"},
    ],
)
def test_bad_arguments_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any]) -> None:
    given = {"older_than": timedelta(days=30), **NO_READERS, **arguments}
    with pytest.raises(ConfigurationError, match=next(iter(arguments))):
        PruneReplayWindowsOperator(task_id="prune", topic=TOPIC, landing_url="s3://lake", **given)


@pytest.mark.parametrize("reader", NO_READERS)
def test_the_readers_of_the_windows_are_required_arguments(reader: str) -> None:
    given = {name: value for name, value in NO_READERS.items() if name != reader}
    with pytest.raises(TypeError, match=reader):
        PruneReplayWindowsOperator(
            task_id="prune", topic=TOPIC, landing_url="s3://lake", older_than=timedelta(days=30), **given
        )


def test_an_empty_reader_url_fails_the_pruning(windows: DailyWindows, prune: Prune) -> None:
    with pytest.raises(AirflowFailException, match="replica_urls"):
        prune(replica_urls=["", "s3://lake/replica"])
    assert windows.recorded() == windows.live


def test_a_replay_store_without_the_stream_fails_the_pruning(windows: DailyWindows, prune: Prune) -> None:
    with pytest.raises(AirflowFailException, match="no record of this stream"):
        prune(replay_store="landing")
    assert windows.recorded() == windows.live
