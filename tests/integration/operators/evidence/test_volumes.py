"""Backfills of standard-volume platform events, which Salesforce retains for 24 hours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from tests.support.hours import hours_ago
from tests.support.interval_runs import Run, make, run, store
from tests.support.landed import replay_ids_of
from tests.support.localorg import LocalOrg
from tests.support.moved_clocks import MovedClocks

__all__ = ["make", "run", "store"]

pytestmark = pytest.mark.usefixtures("store")

TOPICS = {"standard": "/event/Old__e", "high": "/event/New__e"}


@pytest.fixture
def org(tmp_path: Path) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path / "org") as local_org:
        local_org.define("Old__e", volume="standard", Number__c="double")
        local_org.define("New__e", volume="high", Number__c="double")
        local_org.knobs(keepalive_seconds=0.5)
        yield local_org


@pytest.fixture
def hour(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Publish three events of each volume, dated 30 hours ago; return the bounds of that hour."""
    clocks = MovedClocks(org, monkeypatch)
    clocks.move(org=-30, worker=-30)
    for topic in TOPICS.values():
        org.publish(topic, [{"Number__c": float(number)} for number in range(3)])
    clocks.move(org=0, worker=0)
    return 30, 29


def test_a_standard_volume_hour_older_than_24_hours_is_lost(org: LocalOrg, run: Run, hour: tuple[float, float]) -> None:
    topic = TOPICS["standard"]
    with pytest.raises(AirflowFailException, match=r"ReplayIdLostError.*retains its events for 24 hours"):
        run("backfill", *hour, topic=topic)
    result = run("backfill", *hour, topic=topic, on_expired="partial", run_id="partial")
    assert (result["windows"], result["confirmed_at"]) == ([], None)
    assert result["missing"] == [{"from": hours_ago(30).isoformat(), "to": hours_ago(29).isoformat()}]


def test_a_high_volume_hour_older_than_24_hours_is_read(org: LocalOrg, run: Run, hour: tuple[float, float]) -> None:
    result = run("backfill", *hour, topic=TOPICS["high"])
    published = [event["replay_id"] for event in org.record(TOPICS["high"])]
    landed = [replay_id for window in result["windows"] for replay_id in replay_ids_of(window["manifest_url"])]
    assert (landed, len(published)) == (published, 3)
    assert result["confirmed_at"] is not None
