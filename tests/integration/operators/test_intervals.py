"""Interval drains against a local org: returned windows, calls to Salesforce, and unchanged positions."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.actions.drain.results import DrainedInterval
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from airflow_provider_sfstream.operators.replay_position import CommitReplayPositionOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from tests.support.airflow_names import PARTITIONS
from tests.support.hours import hours_ago
from tests.support.interval_runs import (
    MINUTES,
    TOPIC,
    Run,
    delivered,
    make,
    org_with_hours,
    origins,
    published_ids,
    result_ids,
    run,
    store,
    stream,
)
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, set_connection

__all__ = ["make", "run", "store"]


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with org_with_hours(tmp_path_factory.mktemp("org")) as local_org:
        yield local_org


def test_a_backfill_of_an_incremental_drain_returns_its_hour_and_moves_no_position(
    org: LocalOrg, store: TableReplayStore, run: Run
) -> None:
    """A backfill ignores limits, waiting and manual commits of the drain; only its interval counts."""
    incremental = {
        "max_events": 1,
        "max_seconds": 600,
        "deferrable": True,
        "advance": "manual",
        "until": "2020-01-01T00Z",
    }
    result = run("backfill", 4, 3, **incremental)
    assert result_ids(org, result) == published_ids(org, 4, 3)
    assert len(published_ids(org, 4, 3)) == len(MINUTES)
    assert origins(result) == [("backfill", "bus")]
    bounds = (hours_ago(4).isoformat(), hours_ago(3).isoformat())
    assert (result["event_time_from"], result["event_time_to"]) == bounds
    assert result["event_hours"] == [bounds[0].removesuffix("+00:00")], "its windows have others too"
    assert (result["mode"], result["missing"], result["drained"]) == ("interval", [], True)
    assert set(result) == set(DrainedInterval.__annotations__), "the documented keys"
    assert run("backfill", 4, 3, **incremental) == {**result, "drained": False}, (
        "a second backfill returns the same windows"
    )
    assert (store.read(stream(org)).fence, store.read(stream(org)).replay_id) == (0, None)
    commit = CommitReplayPositionOperator(task_id="commit", window=result, replay_store="table")
    assert commit.execute(context_for("commit")) == {"window_id": None, "replay_id": None}
    assert store.read(stream(org)).fence == 0


def test_a_landed_hour_is_returned_without_any_call_to_salesforce(
    org: LocalOrg, store: TableReplayStore, run: Run
) -> None:
    live = run("scheduled", 6, 2, mode="interval")
    assert origins(live) == [("live", "bus")]
    position, calls = store.read(stream(org)), len(org.requests())
    assert position.replay_id is not None
    result = run("backfill", 5, 4, mode="interval")
    assert len(org.requests()) == calls, "no call to Salesforce, not even a login"
    assert result_ids(org, result) == published_ids(org, 5, 4)
    assert origins(result) == [("live", "landed")]
    assert store.read(stream(org)) == position


def test_consecutive_hours_return_their_own_events(org: LocalOrg, store: TableReplayStore, run: Run) -> None:
    for begin in (6, 5, 4, 3):
        result = run("scheduled", begin, begin - 1, mode="interval")
        assert result_ids(org, result) == published_ids(org, begin, begin - 1)
    assert store.read(stream(org)).replay_id == published_ids(org, 2, -1)[-1], "the first run lands all events"
    (window,) = store.windows_overlapping(stream(org), hours_ago(6), hours_ago(2))
    assert (window.kind, result["confirmed_at"]) == ("live", window.covered_until.isoformat())


def test_an_interval_with_an_unconfirmed_end_is_read_again(org: LocalOrg, store: TableReplayStore, run: Run) -> None:
    """The server stalls, then the run is cleared: an empty response is never recorded as complete."""
    org.knobs(keepalive_seconds=120)
    try:
        org.fault("silence", topic=TOPIC)
        empty = run("scheduled", 4, 3, mode="interval", run_id="the-run", idle_timeout=0.5)
        assert (result_ids(org, empty), empty["confirmed_at"], empty["drained"]) == ([], None, True)
        org.admin("DELETE", "/faults")
        again = run("scheduled", 4, 3, mode="interval", run_id="the-run")
    finally:
        org.admin("DELETE", "/faults")
        org.knobs(keepalive_seconds=0.5)
    assert (result_ids(org, again), again["confirmed_at"]) == (published_ids(org, 4, 3), None)
    confirmed = run("scheduled", 4, 3, mode="interval", run_id="the-run", wait_for_confirmation=True)
    assert result_ids(org, confirmed) == published_ids(org, 4, 3)
    assert datetime.fromisoformat(confirmed["confirmed_at"]) > hours_ago(3)
    assert run("scheduled", 4, 3, mode="interval", run_id="the-run") == {**confirmed, "drained": False}
    anew = run("scheduled", 4, 3, mode="interval", run_id="the-run", reuse=False)
    assert sorted(set(result_ids(org, anew))) == published_ids(org, 4, 3)
    assert run("scheduled", 4, 3, mode="interval", run_id="the-run") == {**anew, "drained": False}


@pytest.mark.parametrize("is_live", [False, True], ids=["forwards", "backwards, with a live position"])
def test_hours_of_a_backfill_deliver_each_event_once(
    org: LocalOrg, store: TableReplayStore, run: Run, is_live: bool
) -> None:
    """No end is confirmed, and no recorded position is answered in time."""
    if is_live:
        run("scheduled", 3, 2, start_from="latest")
    before, hours = delivered(org), (5, 4, 3)
    org.knobs(keepalive_seconds=120)
    try:
        for begin in reversed(hours) if is_live else hours:
            result = run("backfill", begin, begin - 1)
            assert (result_ids(org, result), result["confirmed_at"]) == (published_ids(org, begin, begin - 1), None)
        assert delivered(org) - before == len(org.record(TOPIC))
        for waits in (True, False):  # the end that the first run confirms is that of the windows that it continues too
            org.knobs(keepalive_seconds=0.5 if waits else 120)
            result = run("backfill", 5, 4, run_id=f"again-{waits}", wait_for_confirmation=waits)
            assert (result_ids(org, result), result["missing"]) == (published_ids(org, 5, 4), [])
            assert result["confirmed_at"] is not None
    finally:
        org.knobs(keepalive_seconds=0.5)
    assert delivered(org) - before <= len(org.record(TOPIC)) + 2, "the events that confirmed it"


@pytest.mark.parametrize("again", ["scheduled", "backfill"], ids=["cleared", "reprocessed"])
@pytest.mark.parametrize("run_type", ["scheduled", "backfill"])
def test_a_repeated_interval_run_returns_the_same_windows_without_any_call(
    org: LocalOrg, store: TableReplayStore, run: Run, run_type: str, again: str
) -> None:
    first = run(run_type, 4, 3, mode="interval", run_id="the-run")
    if run_type == "backfill":
        run("scheduled", 4, 3, mode="interval")  # adds a live window of the same hour
    position, calls = store.read(stream(org)), len(org.requests())
    assert run(again, 4, 3, mode="interval", run_id="the-run") == {**first, "drained": False}
    assert len(org.requests()) == calls
    assert store.read(stream(org)) == position


def test_a_lost_hour_fails_and_changes_nothing(org: LocalOrg, store: TableReplayStore, run: Run) -> None:
    with pytest.raises(AirflowFailException, match=r"ReplayIdLostError.*on_expired=\"partial\""):
        run("backfill", 100, 99)
    assert not store.gaps(stream(org))
    assert store.read(stream(org)).fence == 0
    assert not store.windows_overlapping(stream(org), hours_ago(200), hours_ago(0))


def test_on_expired_partial_returns_the_rest_of_a_partly_lost_interval(
    org: LocalOrg, store: TableReplayStore, run: Run
) -> None:
    result = run("backfill", 100, 5, on_expired="partial")
    assert result_ids(org, result) == published_ids(org, 100, 5)
    assert origins(result) == [("backfill", "bus")]
    (missing,) = result["missing"]
    assert missing["from"] == hours_ago(100).isoformat()
    until = datetime.now(UTC) - timedelta(hours=72) - datetime.fromisoformat(missing["to"])
    assert timedelta(seconds=-5) <= until < timedelta(hours=1), (
        "the missing span ends at an upper bound of Salesforce's time"
    )
    assert [gap.since for gap in store.gaps(stream(org))] == [hours_ago(100)]
    assert store.read(stream(org)).fence == 0
    assert run("backfill", 100, 5, on_expired="partial") == {**result, "drained": False}
    assert len(store.gaps(stream(org))) == 1


def test_skip_if_empty_skips_an_hour_without_events(run: Run) -> None:
    result = run("backfill", 30, 29)
    assert (result["windows"], result["event_count"], result["missing"]) == ([], 0, [])
    with pytest.raises(AirflowSkipException, match="no events"):
        run("backfill", 30, 29, skip_if_empty=True, run_id="another")


@pytest.mark.parametrize(("mode", "run_type"), [("interval", "asset_triggered"), ("incremental", "backfill")])
def test_a_run_without_an_interval_is_refused_before_any_call(
    org: LocalOrg, store: TableReplayStore, tmp_path: Path, mode: Any, run_type: str
) -> None:
    calls = len(org.requests())
    operator = DrainReplayWindowOperator(
        task_id="drain", topic=TOPIC, landing_url=str(tmp_path / "landing"), replay_store="table", mode=mode
    )
    bare_cron = {"data_interval_start": hours_ago(3), "data_interval_end": hours_ago(3)}
    for fields in ({"run_type": run_type}, {"run_type": run_type, **bare_cron}):
        with pytest.raises(AirflowFailException, match="CronDataIntervalTimetable"):
            operator.execute(context_for("drain", **fields))
    assert len(org.requests()) == calls
    assert not (tmp_path / "landing").exists()


@pytest.mark.parametrize("interval", [{}, {"data_interval_start": hours_ago(3), "data_interval_end": hours_ago(2)}])
def test_an_incremental_run_reprocessed_by_a_backfill_returns_its_window(
    org: LocalOrg, store: TableReplayStore, tmp_path: Path, interval: dict[str, datetime]
) -> None:
    """Reprocessing changes the run type of a finished run, for every kind of schedule."""
    operator = DrainReplayWindowOperator(
        task_id="drain", topic=TOPIC, landing_url=str(tmp_path / "landing"), replay_store="table", idle_timeout=1.0
    )
    first = operator.execute(context_for("drain", run_type="scheduled", **interval))
    position, calls = store.read(stream(org)), len(org.requests())
    again = operator.execute(context_for("drain", run_type="backfill", try_number=2, **interval))
    assert first["event_count"] == 20
    assert again == {**first, "drained": False}
    assert (store.read(stream(org)), len(org.requests())) == (position, calls)


def test_a_wrong_organization_id_fails_the_first_drain(
    org: LocalOrg, store: TableReplayStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(organization_id="00D5g000001QCmE"))
    with pytest.raises(AirflowFailException, match="organization_id"):
        run("backfill", 4, 3)


def test_two_intervals_in_one_window_write_each_event_once_to_the_table(
    org: LocalOrg, store: TableReplayStore, run: Run, tmp_path: Path
) -> None:
    """Each interval writes only the events inside its bounds, once each."""
    run("scheduled", 6, 2, wait_for_confirmation=True)  # one window with all events
    first, second = run("backfill", 5, 4), run("backfill", 4, 3)
    assert [window["window_id"] for window in first["windows"]] == [window["window_id"] for window in second["windows"]]
    for result, numbers in ((first, range(4, 8)), (second, range(4, 12))):
        job = EventLogOperator(task_id="event_log", windows=result, output_url=str(tmp_path / "tables"))
        metrics = job.execute(context_for("event_log"))
        assert metrics is not None
        assert (metrics["rows_in"], metrics["rows_written"]) == (20, len(MINUTES))
        table = DeltaTable(str(tmp_path / "tables" / "Order__e")).to_pyarrow_table(columns=["Number__c"])
        assert sorted(table.column("Number__c").to_pylist()) == [float(number) for number in numbers]


def test_the_hourly_example_dag_returns_its_hour(
    org: LocalOrg, store: TableReplayStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test runs the drain of the example DAG, with the table store, which needs no running Airflow."""
    monkeypatch.setenv("SFSTREAM_LAKE", str(tmp_path))
    file = Path(__file__).parents[3] / "dags" / "sfstream_hourly.py"
    operator = runpy.run_path(str(file))["drain"]
    operator.replay_store = "table"
    bounds = {"data_interval_start": hours_ago(4), "data_interval_end": hours_ago(3)}
    context = context_for("drain", run_type="backfill", **bounds) | {
        "params": {"on_invalid_replay": "fail", "on_expired": "fail", "reuse": True}
    }
    operator.render_template_fields(context)
    result = operator.execute(context)
    assert result_ids(org, result) == published_ids(org, 4, 3)
    assert result["stream"]["subscription"] == "hourly"
    assert operator.dag.get_task("event_log").max_active_tis_per_dag == 1


def test_a_partition_date_defines_the_interval(org: LocalOrg, store: TableReplayStore, tmp_path: Path) -> None:
    if not PARTITIONS:
        pytest.skip("this Airflow has no partitions")
    from airflow.sdk import CronPartitionTimetable

    with DAG("orders", schedule=CronPartitionTimetable("0 */2 * * *", timezone="UTC")):
        operator = DrainReplayWindowOperator(
            task_id="drain",
            topic=TOPIC,
            landing_url=str(tmp_path),
            replay_store="table",
            mode="interval",
            idle_timeout=1.0,
        )
    even = 4 if hours_ago(4).hour % 2 == 0 else 5
    result = operator.execute(context_for("drain", partition_date=hours_ago(even)))
    assert result_ids(org, result) == published_ids(org, even, even - 2)
    assert len(published_ids(org, even, even - 2)) == 2 * len(MINUTES)
