"""Backfills of hours whose events were lost by a reset of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from tests.support.hours import hours_ago
from tests.support.interval_runs import TOPIC, Run, make, org_with_hours, result_ids, run, store, stream
from tests.support.localorg import LocalOrg
from tests.support.moved_clocks import MovedClocks

__all__ = ["make", "run", "store"]


@pytest.fixture
def org(tmp_path: Path) -> Iterator[LocalOrg]:
    with org_with_hours(tmp_path / "org") as local_org:
        yield local_org


@pytest.fixture
def clocks(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> MovedClocks:
    return MovedClocks(org, monkeypatch)


def publish(org: LocalOrg, clocks: MovedClocks) -> None:
    """Publish three events two hours ago."""
    clocks.move(org=-1.9, worker=-1.9)
    created = hours_ago(1.5).isoformat()
    org.publish(TOPIC, [{"Number__c": float(number), "CreatedDate": created} for number in range(3)])


def reset(org: LocalOrg, clocks: MovedClocks) -> None:
    """Reset the stream half an hour ago."""
    clocks.move(org=-0.5, worker=-0.5)
    org.fault("reset_stream", topic=TOPIC)
    clocks.move(org=0, worker=0)


@pytest.mark.parametrize("start_from", ["earliest", "latest"])
def test_a_backfill_after_a_reset_is_not_complete(
    org: LocalOrg, store: TableReplayStore, run: Run, clocks: MovedClocks, start_from: str
) -> None:
    clocks.move(org=-3, worker=-3)
    live = run("scheduled", 4, 3, mode="interval", start_from=start_from)
    publish(org, clocks)
    reset(org, clocks)
    with pytest.raises(AirflowFailException, match=r"ReplayIdLostError.*or the stream was reset"):
        run("backfill", 2, 1)
    assert store.gaps(stream(org)) == []
    result = run("backfill", 2, 1, on_expired="partial", run_id="partial")
    assert (result_ids(org, result), result["confirmed_at"]) == ([], None)
    assert result["missing"] == [{"from": hours_ago(2).isoformat(), "to": hours_ago(1).isoformat()}]
    assert [gap.since for gap in store.gaps(stream(org))] == [hours_ago(2)]
    assert live["confirmed_at"] is not None


def test_a_backfill_from_the_earliest_event_detects_a_reset_by_the_stored_position(
    org: LocalOrg, store: TableReplayStore, run: Run, clocks: MovedClocks
) -> None:
    """The first live run began after the hour, so the store has no position from before the hour."""
    publish(org, clocks)
    clocks.move(org=-0.9, worker=-0.9)
    run("scheduled", 2, 1, start_from="latest", wait_for_confirmation=True)
    reset(org, clocks)
    with pytest.raises(AirflowFailException, match=r"ReplayIdLostError.*or the stream was reset"):
        run("backfill", 2, 1)
    assert store.gaps(stream(org)) == []
