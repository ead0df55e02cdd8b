"""The hourly example on a real scheduler, its backfill with a DAG param, and hourly partitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from airflow_provider_sfstream.salesforce.streams import Stream
from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.backfills import last_tick, live_position
from tests.support.landed import replay_ids_of
from tests.support.localorg import LocalOrg

pytestmark = pytest.mark.extended
TOPIC = "/event/Hourly__e"
HOUR = timedelta(hours=1)
EXAMPLE, PARTITION, CONFIRMED = "hourly.example", "hourly.partition", "hourly.confirmed"
EVENTS, OF_PARTITION, OF_EVENTS = "hourly.events", "hourly.of_partition", "hourly.of_events"


@pytest.fixture(scope="module")
def this_hour(airflow: AirflowStack, system_org: LocalOrg) -> datetime:
    """Publish three events for each of the last three hours; return the start of the current hour."""
    hour = last_tick(airflow)
    times = [hour - ago * HOUR + timedelta(minutes=minute) for ago in (3, 2, 1) for minute in (0, 20, 59)]
    system_org.define("Hourly__e", Number__c="double")
    system_org.knobs(keepalive_seconds=1)  # the end of the stream is confirmed soon
    system_org.publish(TOPIC, [{"Number__c": 1.0, "CreatedDate": time.isoformat()} for time in times])
    return hour


def replay_ids_of_hour(org: LocalOrg, begin: datetime) -> list[bytes]:
    """Return the replay IDs of the events of the hour that starts at ``begin``."""
    first, last = begin.timestamp() * 1000, (begin + HOUR).timestamp() * 1000
    return [event["replay_id"] for event in org.record(TOPIC) if first <= event["fields"]["CreatedDate"] < last]


def table(lake: Path) -> list[bytes]:
    rows = ds.dataset(lake / "hourly" / "Hourly__e", partitioning="hive").to_table(columns=["_replay_id"])
    return sorted(rows["_replay_id"].to_pylist())


def follow(airflow: AirflowStack, dag_id: str, expected: list[datetime]) -> None:
    """Wait until a partitioned DAG has run for these times, and compare its partitions with their hours."""
    wait_for(lambda: len(airflow.run_ids(dag_id)) >= len(expected), 180, f"{dag_id} to follow {len(expected)} hours")
    runs = airflow.run_ids(dag_id)
    assert all(airflow.wait_for_run(dag_id, run) == "success" for run in runs)
    hours = [time.astimezone(UTC).replace(minute=0, second=0, microsecond=0) for time in expected]
    found = sorted(airflow.xcom(dag_id, run, "partition") for run in runs)
    assert found == sorted([f"{hour:%Y-%m-%dT%H}", hour.isoformat()] for hour in hours)


def test_example_returns_the_last_hour_and_a_backfill_returns_an_older_hour(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path, this_hour: datetime
) -> None:
    airflow.wait_for_dag(EXAMPLE)
    airflow.unpause(EXAMPLE)
    run_id = wait_for(lambda: airflow.run_ids(EXAMPLE), 180, "the scheduled run")[0]
    assert airflow.wait_for_run(EXAMPLE, run_id) == "success", airflow.task_log(EXAMPLE, run_id, "drain")
    last_hour = replay_ids_of_hour(system_org, this_hour - HOUR)
    assert table(lake) == sorted(last_hour), "the table must have the events of the run's own hour only"
    position = live_position(airflow, Stream(system_org.org_id, "pubsub", TOPIC, "hourly"))
    assert position is not None

    begin = this_hour - 3 * HOUR
    backfill = airflow.backfill(EXAMPLE, begin, begin, dag_run_conf={"on_expired": "partial"})
    (run,) = airflow.wait_for_backfill(backfill).values()
    assert run["state"] == "success", airflow.task_log(EXAMPLE, run["dag_run_id"], "drain")
    assert run["conf"] == {"on_expired": "partial"}
    given = airflow.xcom(EXAMPLE, run["dag_run_id"], "drain")
    assert [window["origin"] for window in given["windows"]] == ["landed"]
    assert table(lake) == sorted([*last_hour, *replay_ids_of_hour(system_org, begin)])
    assert live_position(airflow, Stream(system_org.org_id, "pubsub", TOPIC, "hourly")) == position


def test_partition_covers_the_hour_that_starts_at_its_partition_date(
    airflow: AirflowStack, system_org: LocalOrg, this_hour: datetime
) -> None:
    begin = this_hour - 2 * HOUR
    stream = Stream(system_org.org_id, "pubsub", TOPIC, "partition")
    for dag_id in (OF_PARTITION, PARTITION):  # asset events do not start paused DAGs
        airflow.wait_for_dag(dag_id)
        airflow.unpause(dag_id)
    scheduled = wait_for(lambda: airflow.run_ids(PARTITION), 180, "the scheduled run")[0]
    assert airflow.wait_for_run(PARTITION, scheduled) == "success", airflow.task_log(PARTITION, scheduled, "drain")
    position = live_position(airflow, stream)
    airflow.backfill(PARTITION, begin, begin)
    runs = wait_for(lambda: [each for each in airflow.run_ids(PARTITION) if "backfill" in each], 180, "the run")
    assert len(runs) == 1
    assert airflow.wait_for_run(PARTITION, runs[0]) == "success", airflow.task_log(PARTITION, runs[0], "drain")
    result = airflow.xcom(PARTITION, runs[0], "drain")
    assert datetime.fromisoformat(result["event_time_from"]) == begin
    assert datetime.fromisoformat(result["event_time_to"]) == begin + HOUR
    given = {replay_id for window in result["windows"] for replay_id in replay_ids_of(window["manifest_url"])}
    assert set(replay_ids_of_hour(system_org, begin)) <= given
    assert result["missing"] == []
    assert live_position(airflow, stream) == position is not None
    follow(airflow, OF_PARTITION, [this_hour - HOUR, begin])


def test_partitioned_dag_follows_the_hours_of_the_events_of_each_window(
    airflow: AirflowStack, system_org: LocalOrg, this_hour: datetime
) -> None:
    for dag_id in (OF_EVENTS, EVENTS):
        airflow.wait_for_dag(dag_id)
        airflow.unpause(dag_id)
    run = airflow.trigger(EVENTS)
    assert airflow.wait_for_run(EVENTS, run) == "success", airflow.task_log(EVENTS, run, "drain")
    times = [datetime.fromtimestamp(event["fields"]["CreatedDate"] / 1000, UTC) for event in system_org.record(TOPIC)]
    first, last = (time.replace(minute=0, second=0, microsecond=0) for time in (min(times), max(times)))
    expected = [first + n * HOUR for n in range((last - first) // HOUR + 1)]
    follow(airflow, OF_EVENTS, expected)
    late = this_hour - 2 * HOUR  # its hour gets a second run
    system_org.publish(TOPIC, [{"Number__c": 2.0, "CreatedDate": late.isoformat()}])
    run = airflow.trigger(EVENTS)
    assert airflow.wait_for_run(EVENTS, run) == "success", airflow.task_log(EVENTS, run, "drain")
    follow(airflow, OF_EVENTS, [*expected, late])


def test_a_run_waits_for_its_confirmation_on_the_triggerer(
    airflow: AirflowStack, system_org: LocalOrg, this_hour: datetime
) -> None:
    airflow.wait_for_dag(CONFIRMED)
    system_org.knobs(keepalive_seconds=30)  # the drain becomes idle earlier, even on a busy machine
    try:
        airflow.unpause(CONFIRMED)
        run_id = wait_for(lambda: airflow.run_ids(CONFIRMED), 180, "the scheduled run")[0]
        assert airflow.wait_for_run(CONFIRMED, run_id) == "success", airflow.task_log(CONFIRMED, run_id, "drain")
    finally:
        system_org.knobs(keepalive_seconds=1)
    result = airflow.xcom(CONFIRMED, run_id, "drain")
    log = airflow.task_log(CONFIRMED, run_id, "drain")
    assert "waiting on the triggerer for Salesforce to confirm the end of the stream" in log
    assert "Woken by 'quiet'" in log
    assert datetime.fromisoformat(result["confirmed_at"]) >= this_hour
    given = {replay_id for window in result["windows"] for replay_id in replay_ids_of(window["manifest_url"])}
    assert set(replay_ids_of_hour(system_org, this_hour - HOUR)) <= given
