"""``until`` on an incremental drain, and events whose publisher's clock is a year ahead."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from tests.support.landed import replay_ids_of
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, set_connection

TOPIC = "/event/Order__e"


@pytest.fixture
def org(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path / "org") as local_org:
        local_org.define("Order__e", Number__c="double")
        set_connection(monkeypatch, "salesforce_default", **local_org.airflow_connection())
        yield local_org


@pytest.mark.parametrize("api", ["pubsub", "streaming"])
def test_events_dated_a_year_ahead_are_landed_with_the_others(
    org: LocalOrg, tmp_path: Path, caplog: pytest.LogCaptureFixture, api: str
) -> None:
    now = datetime.now(UTC)
    ahead = now + timedelta(days=365)

    def publish(numbers: range, time: datetime) -> None:
        created = int(time.timestamp() * 1_000)
        org.publish(TOPIC, [{"Number__c": float(n), "CreatedDate": created} for n in numbers])

    def drain(hour: int) -> dict[str, object]:
        operator = DrainReplayWindowOperator(
            task_id="drain",
            topic=TOPIC,
            api=api,
            landing_url=str(tmp_path / "landing"),
            replay_store="landing",
            start_from="earliest",
            idle_timeout=2.0,
            until=now.isoformat(),
        )
        return operator.execute(context_for("drain", run_id=f"run-{hour}", hour=hour))

    publish(range(1), now - timedelta(minutes=3))
    publish(range(1, 3), ahead)
    publish(range(3, 12), now - timedelta(minutes=2))
    publish(range(12, 13), now + timedelta(minutes=1))
    record = [event["replay_id"] for event in org.record(TOPIC)]
    with caplog.at_level(logging.WARNING):
        window = drain(1)
    assert (window["event_count"], window["stop_reason"]) == (12, "until")
    landed = replay_ids_of(str(window["manifest_url"]))
    # The Streaming API's replay IDs are the first 8 bytes of those that the Pub/Sub API delivers.
    assert landed == [replay_id[: len(landed[0])] for replay_id in record[:12]]
    (warning,) = [text for text in caplog.messages if "publisher's clock" in text]
    assert TOPIC in warning
    assert ahead.isoformat(timespec="milliseconds")[:23] in warning
    assert drain(2)["event_count"] == 0, "an event after 'until' is drained by a run with a later 'until'"
