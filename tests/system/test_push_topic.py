"""PushTopics and generic channels on a real Airflow: the example with Spark, a deferred drain, a watch, a backfill."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from airflow_provider_sfstream.salesforce.streams import Stream
from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.backfills import HOUR, PastPushTopic, live_position
from tests.support.landed import landed_replay_ids
from tests.support.localorg import LocalOrg

pytestmark = pytest.mark.extended
EXAMPLE = "sfstream_push_topic"


def record(org: LocalOrg, topic: str) -> list[bytes]:
    return [event["replay_id"] for event in org.record(topic)]


def subscribed(org: LocalOrg, topic: str) -> int:
    """Return the number of CometD sessions that are subscribed to a topic."""
    sessions = org.admin("GET", "/org")["cometd_sessions"]
    return sum(topic in session["subscriptions"] for session in sessions)


def table_rows(lake: Path) -> list[tuple[bytes, Any, Any]]:
    table = ds.dataset(lake / "push_topics" / "OrderUpdates", partitioning="hive").to_table(
        columns=["_replay_id", "_event_type", "Name"]
    )
    return sorted((row["_replay_id"], row["_event_type"], row["Name"]) for row in table.to_pylist())


def test_example_lands_record_changes_and_builds_the_table(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path
) -> None:
    system_org.push_topic("OrderUpdates", "SELECT Id, Name FROM Account", NotifyForFields="All")
    topic = "/topic/OrderUpdates"
    names = [f"Account {number}" for number in range(120)]
    records = [{"attributes": {"type": "Account"}, "Name": name} for name in names]
    created = system_org.rest("POST", "/composite/sobjects", {"records": records})
    airflow.wait_for_dag(EXAMPLE)
    airflow.unpause(EXAMPLE)
    scheduled = wait_for(lambda: airflow.run_ids(EXAMPLE), 180, "the scheduled run")[0]
    assert airflow.wait_for_run(EXAMPLE, scheduled) == "success", airflow.task_log(EXAMPLE, scheduled, "event_log")

    system_org.rest("PATCH", f"/sobjects/Account/{created[0]['id']}", {"Name": "Renamed"})
    system_org.rest("DELETE", f"/sobjects/Account/{created[1]['id']}")
    second = airflow.trigger(EXAMPLE)
    assert airflow.wait_for_run(EXAMPLE, second) == "success", airflow.task_log(EXAMPLE, second, "event_log")
    replay_ids = record(system_org, topic)
    happened = [("created", name) for name in names] + [("updated", "Renamed"), ("deleted", None)]
    assert table_rows(lake) == [(each, *what) for each, what in zip(replay_ids, happened, strict=True)]
    window = airflow.xcom(EXAMPLE, second, "drain")
    assert (window["stream"]["api"], bytes.fromhex(window["through"])) == ("streaming", replay_ids[-1])

    empty = airflow.trigger(EXAMPLE)
    assert airflow.wait_for_run(EXAMPLE, empty) == "success"
    assert airflow.task_states(EXAMPLE, empty) == {"drain": "skipped", "event_log": "skipped"}
    for task in ("drain", "event_log"):
        log = airflow.task_log(EXAMPLE, second, task)
        assert system_org.client_secret not in log
        assert "00D" not in log or "!" not in log.split("00D", 1)[1][:20], "an access token is in the log"


def test_deferred_drain_of_a_push_topic_survives_a_killed_triggerer(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path
) -> None:
    dag_id, topic = "push_topic.waiting", "/topic/Waited"
    system_org.push_topic("Waited", "SELECT Id, Name FROM Contact")
    airflow.wait_for_dag(dag_id)
    airflow.unpause(dag_id)
    run_id = airflow.trigger(dag_id)
    wait_for(lambda: airflow.task_states(dag_id, run_id)["drain"] == "deferred", 180, "the deferral")
    wait_for(lambda: subscribed(system_org, topic) == 1, 180, "the session of the trigger")
    wait_for(lambda: airflow.task_processes() == [], 120, "the task process to end")
    system_org.publish(topic, [{"sobject": {"Name": "first"}}])
    airflow.kill_component("triggerer")
    system_org.publish(topic, [{"sobject": {"Name": f"{number}"}} for number in range(40)])
    airflow.start_component("triggerer")
    assert airflow.wait_for_run(dag_id, run_id) == "success", airflow.task_log(dag_id, run_id, "drain")
    stream = Stream(system_org.org_id, "streaming", topic, "waiting")
    assert landed_replay_ids(lake, stream) == record(system_org, topic)


def test_a_generic_channel_starts_a_dag(airflow: AirflowStack, system_org: LocalOrg, lake: Path) -> None:
    dag_id, topic = "push_topic.watched", "/u/Watched"
    channel = system_org.generic_channel(topic)
    stream = Stream(system_org.org_id, "streaming", topic, "watched")
    airflow.wait_for_dag(dag_id)
    airflow.unpause(dag_id)
    try:
        wait_for(lambda: airflow.run_ids(dag_id), 180, "the first run of the watch")
        wait_for(lambda: set(airflow.run_states(dag_id).values()) == {"success"}, 180, "its end")
        published = time.monotonic()
        events = [{"payload": f"number {number}", "userIds": []} for number in range(150)]
        system_org.rest("POST", f"/sobjects/StreamingChannel/{channel['id']}/push", {"pushEvents": events})
        wait_for(lambda: len(airflow.run_ids(dag_id)) > 1, 180, "a run")
        print(f"\nfrom push to the start of a run: {time.monotonic() - published:.2f} s")
        wait_for(lambda: len(landed_replay_ids(lake, stream)) >= 150, 180, "the events to land")
        wait_for(lambda: set(airflow.run_states(dag_id).values()) == {"success"}, 180, "all runs to end")
    finally:
        airflow.pause(dag_id)
    assert landed_replay_ids(lake, stream) == record(system_org, topic)


def test_backfilled_hours_of_a_push_topic_are_never_confirmed(airflow: AirflowStack, past_org: LocalOrg) -> None:
    dag_id = "push_topic.hourly"
    topic = PastPushTopic(airflow, past_org, "Past")
    topic.publish_hours(6, 1)
    airflow.wait_for_dag(dag_id)
    airflow.unpause(dag_id)
    scheduled = wait_for(lambda: airflow.run_ids(dag_id), 180, "the scheduled run")[0]
    assert airflow.wait_for_run(dag_id, scheduled) == "success", airflow.task_log(dag_id, scheduled, "drain")
    position = live_position(airflow, topic.stream("hourly"))
    first, last = topic.hour(5), topic.hour(3)

    runs = airflow.wait_for_backfill(airflow.backfill(dag_id, first, last))
    assert [run["state"] for run in runs.values()] == ["success"] * 3
    for begin, run in runs.items():
        result = airflow.xcom(dag_id, run["dag_run_id"], "drain")
        assert sorted(set(topic.events_of(result))) == topic.replay_ids_between(begin, begin + HOUR)
        assert result["confirmed_at"] is None
    assert live_position(airflow, topic.stream("hourly")) == position

    calls = len(past_org.requests())
    again = airflow.wait_for_backfill(airflow.backfill(dag_id, first, last, reprocess_behavior="completed"))
    assert [run["state"] for run in again.values()] == ["success"] * 3
    assert len(past_org.requests()) > calls, "unconfirmed hours must be read again"
