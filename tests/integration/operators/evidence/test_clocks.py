"""Interval runs after the clock of the worker or of Salesforce was 2.5 hours fast for a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import IntervalNotEndedError
from tests.support.hours import hours_ago
from tests.support.interval_runs import TOPIC, Run, make, org_with_hours, run, store
from tests.support.landed import replay_ids_of
from tests.support.localorg import LocalOrg
from tests.support.moved_clocks import MovedClocks

__all__ = ["make", "run", "store"]

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture
def org(tmp_path: Path) -> Iterator[LocalOrg]:
    with org_with_hours(tmp_path / "org") as local_org:
        yield local_org


@pytest.fixture
def clocks(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> MovedClocks:
    return MovedClocks(org, monkeypatch)


def publish(org: LocalOrg, begin: float) -> list[bytes]:
    """Publish three events in the hour that began ``begin`` hours ago."""
    times = [hours_ago(begin) + timedelta(minutes=minute) for minute in (5, 20, 40)]
    return org.publish(TOPIC, [{"Number__c": 1.0, "CreatedDate": time.isoformat()} for time in times])


def counted(org: LocalOrg, result: dict[str, Any]) -> list[bytes]:
    """Return the replay IDs of the events that belong to the interval of ``result``."""
    begin, end = (datetime.fromisoformat(result[name]) for name in ("event_time_from", "event_time_to"))
    happened = {
        event["replay_id"]: datetime.fromtimestamp(event["fields"]["CreatedDate"] / 1_000, begin.tzinfo)
        for event in org.record(TOPIC)
    }
    found: list[bytes] = []
    for window in result["windows"]:
        since = window["counts_from"] and datetime.fromisoformat(window["counts_from"])
        for replay_id in replay_ids_of(window["manifest_url"]):
            counts_at = max(happened[replay_id], since or happened[replay_id])
            found += [replay_id] if begin <= counts_at < end else []
    return found


@pytest.mark.parametrize("fast", ["worker", "org"])
def test_the_hours_after_a_clock_was_corrected_are_drained(
    org: LocalOrg, run: Run, clocks: MovedClocks, fast: str
) -> None:
    clocks.move(**{"org": -3, "worker": -3, fast: -0.5})
    run("scheduled", 4, 3, mode="interval")
    for begin in (3, 2):
        clocks.move(org=1 - begin, worker=1 - begin)
        published, calls = publish(org, begin), len(org.requests())
        result = run("scheduled", begin, begin - 1, mode="interval")
        assert len(org.requests()) > calls
        assert set(published) <= set(counted(org, result))
        if fast == "worker":
            assert hours_ago(begin - 1) <= datetime.fromisoformat(result["confirmed_at"]) <= clocks.now()


def test_a_worker_with_a_fast_clock_does_not_complete_an_unfinished_hour(
    org: LocalOrg, run: Run, clocks: MovedClocks
) -> None:
    clocks.move(org=-3, worker=-0.5)
    with pytest.raises(IntervalNotEndedError, match="has not ended"):
        run("scheduled", 2, 1, mode="interval", run_id="the-run")
    clocks.move(org=0, worker=0)
    published = publish(org, 2)
    result = run("scheduled", 2, 1, mode="interval", run_id="the-run")
    assert set(published) <= set(counted(org, result))
