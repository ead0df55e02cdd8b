"""Allocation reserve of drains and refreshes, against a local org."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, Flag, Snapshot, StreamState, TableState
from tests.support.interval_runs import (
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
from tests.support.localorg import LocalOrg, reset_org
from tests.support.tasks import context_for, error_text

__all__ = ["make", "run", "store"]


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with org_with_hours(tmp_path_factory.mktemp("org")) as local_org:
        yield local_org


@pytest.fixture
def org(running_org: LocalOrg) -> Iterator[LocalOrg]:
    running_org.knobs(keepalive_seconds=0.5)
    yield running_org
    reset_org(running_org)


def set_remaining_events(org: LocalOrg, events: int) -> int:
    """Set the delivery allocation so that ``events`` remain; return the number delivered so far."""
    before = delivered(org)
    org.knobs(delivery_quota=before + events)
    return before


def test_a_backfill_below_the_reserve_is_refused_and_starts_nothing(
    org: LocalOrg, store: TableReplayStore, run: Run, tmp_path: Path
) -> None:
    before = set_remaining_events(org, 99)
    with pytest.raises(AirflowFailException) as caught:
        run("backfill", 4, 3, allocation_reserve=100)
    text = error_text(caught.value)
    assert "AllocationReserveError: /event/Order__e (org 00D" in text
    assert "less than the reserve of 100 would remain (DailyDeliveredPlatformEvents: 99 of" in text
    assert "Data loss: Nothing: nothing was started." in text
    assert "SalesforceAllocationSensor(allocation='DailyDeliveredPlatformEvents'" in text
    assert delivered(org) == before
    assert not list(tmp_path.rglob("*.parquet"))
    assert store.read(stream(org)).fence == 0


@pytest.mark.parametrize("reserve", [100, 0.0001, {"DailyDeliveredPlatformEvents": 100, "DailyApiRequests": 0.1}])
def test_a_backfill_above_the_reserve_returns_its_hour(org: LocalOrg, run: Run, reserve: Any) -> None:
    set_remaining_events(org, 1_000)
    result = run("backfill", 4, 3, allocation_reserve=reserve)
    assert result_ids(org, result) == published_ids(org, 4, 3)


def test_each_allocation_of_the_reserve_is_checked(org: LocalOrg, run: Run) -> None:
    with pytest.raises(AirflowFailException, match="AllocationReserveError") as caught:
        run("backfill", 4, 3, allocation_reserve={"DailyDeliveredPlatformEvents": 0, "DailyApiRequests": 1.0})
    assert "DailyApiRequests: " in error_text(caught.value)


def test_the_estimate_of_a_backfill_without_reuse_counts_landed_events(org: LocalOrg, run: Run) -> None:
    """With ``reuse=False`` Salesforce delivers the events of landed live windows again, so the estimate counts them."""
    run("scheduled", 6, 5, run_id="first")
    org.publish("/event/Order__e", [{"Number__c": 1.0}] * 7)
    assert run("scheduled", 5, 4, run_id="second")["event_count"] == 7
    before = set_remaining_events(org, 106)
    anew = {"reuse": False, "mode": "interval", "run_id": "anew"}
    with pytest.raises(AirflowFailException) as caught:
        run("backfill", 1, 0, allocation_reserve=100, **anew)
    assert "(DailyDeliveredPlatformEvents: 106 of" in error_text(caught.value)
    assert "and this task uses at least 7" in error_text(caught.value)
    assert delivered(org) == before


def test_a_backfill_of_a_landed_hour_makes_no_call_to_salesforce(org: LocalOrg, run: Run) -> None:
    run("scheduled", 6, 2, mode="interval")
    set_remaining_events(org, 0)
    calls = len(org.requests())
    result = run("backfill", 5, 4, mode="interval", allocation_reserve=1.0)
    assert origins(result) == [("live", "landed")]
    assert len(org.requests()) == calls


@pytest.mark.parametrize("mode", ["incremental", "interval"])
def test_a_live_drain_is_never_refused(org: LocalOrg, run: Run, mode: str) -> None:
    """Unread events expire, and Salesforce has to deliver each of them once in any case."""
    set_remaining_events(org, 1_000)
    assert run("scheduled", 6, 2, mode=mode, allocation_reserve=1.0)["event_count"] > 0


def test_an_unknown_allocation_is_reported_as_unknown(org: LocalOrg, run: Run) -> None:
    before = delivered(org)
    with pytest.raises(AirflowFailException, match="AllocationUnknownError") as caught:
        run("backfill", 4, 3, allocation_reserve={"MonthlyPlatformEventsUsageEntitlement": 0})
    assert "it is unknown whether enough remains" in error_text(caught.value)
    assert delivered(org) == before


@pytest.mark.parametrize("wrong", [1.5, -1, "0.2", True, {"": 1}, {None: 1}, {"DailyApiRequests": 2.0}])
def test_an_invalid_reserve_is_refused_when_the_dag_is_parsed(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="allocation_reserve"):
        DrainReplayWindowOperator(
            task_id="drain", topic="/event/Order__e", landing_url="/lake", allocation_reserve=wrong
        )


@pytest.fixture
def replica(org: LocalOrg, store: TableReplayStore, tmp_path: Path) -> str:
    """Create a replica whose only table is flagged for a full fetch; return its URL."""
    state = StreamState(org.org_id, "pubsub", "/data/ChangeEvents", "", AppliedWindow("window-1", "", 1, 50), None, 49)
    table = TableState("stream", flag=Flag("new", "2026-01-01T00:00:00+00:00", 1))
    url = (tmp_path / "replica").as_uri()
    SnapshotStore(ObjectStorageFiles(None), url).publish(Snapshot(3, None, {"stream": state}, {"Account": table}))
    return url


@pytest.mark.parametrize("scope", [{}, {"scope": "computed"}, {"scope": "all"}, {"scope": "all", "verify": True}])
def test_a_refresh_below_the_reserve_fetches_nothing(org: LocalOrg, replica: str, scope: dict[str, Any]) -> None:
    remaining = org.rest("GET", "/limits")["DailyApiRequests"]["Remaining"]
    # The test itself makes one request, the check another one, and the refresh at least three.
    reserve = remaining - 1 - 3 + 1
    calls = len(org.requests("http"))
    operator = SparkSubmitRefreshReplicaOperator(
        task_id="refresh", output_url=replica, allocation_reserve=reserve, **scope
    )
    with pytest.raises(AirflowFailException) as caught:
        operator.execute(context_for("refresh"))
    text = error_text(caught.value)
    assert f"Account: nothing is fetched: less than the reserve of {reserve:,} would remain" in text
    assert "and this task uses at least 3" in text
    asked = [request["method"] for request in org.requests("http")[calls:]]
    assert [method for method in asked if "/sobjects/" in method or "/query" in method] == []
    assert sum("/limits" in method for method in asked) == 1


def test_a_refresh_above_the_reserve_starts_to_fetch(
    org: LocalOrg, replica: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*result_ids: Any) -> dict[str, dict[str, Any]]:
        raise ConfigurationError("It goes on. Enough.")

    monkeypatch.setattr(SparkSubmitRefreshReplicaOperator, "_fetch", fetch)
    operator = SparkSubmitRefreshReplicaOperator(task_id="refresh", output_url=replica, allocation_reserve=0.5)
    with pytest.raises(AirflowFailException, match="It goes on"):
        operator.execute(context_for("refresh"))
