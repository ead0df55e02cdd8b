"""Interval runs on the Pub/Sub API while the server sends empty responses before it delivers a backlog."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.hours import hours_ago
from tests.support.interval_runs import TOPIC, Run, make, org_with_hours, published_ids, result_ids, run, store
from tests.support.localorg import LocalOrg

__all__ = ["make", "run", "store"]

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture
def org(tmp_path: Path) -> Iterator[LocalOrg]:
    with org_with_hours(tmp_path / "org") as local_org:
        yield local_org


@pytest.mark.parametrize("run_type", ["scheduled", "backfill"])
def test_empty_responses_before_a_backlog_do_not_complete_an_hour(org: LocalOrg, run: Run, run_type: str) -> None:
    """The run succeeds without the undelivered events and does not report a confirmed end."""
    org.fault("seek", topic=TOPIC, responses=40, seconds=0.2)
    empty = run(run_type, 4, 3, mode="interval", run_id="the-run", idle_timeout=0.6)
    assert (result_ids(org, empty), empty["confirmed_at"], empty["missing"]) == ([], None, [])
    org.clear_faults()
    again = run(run_type, 4, 3, mode="interval", run_id="the-run")
    assert (result_ids(org, again), again["drained"]) == (published_ids(org, 4, 3), True)
    assert datetime.fromisoformat(again["confirmed_at"]) > hours_ago(3)


def test_a_run_with_wait_for_confirmation_lands_the_events_after_empty_responses(org: LocalOrg, run: Run) -> None:
    org.fault("seek", topic=TOPIC, responses=10, seconds=0.2)
    result = run("scheduled", 4, 3, mode="interval", idle_timeout=0.6, wait_for_confirmation=True)
    assert result_ids(org, result) == published_ids(org, 4, 3)
    assert datetime.fromisoformat(result["confirmed_at"]) > hours_ago(3)
