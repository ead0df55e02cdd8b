"""Backfills created by the REST endpoint of the UI's dialog, on a real scheduler, compared with the org's record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.backfills import HOUR, PastTopic, live_position, recorded_gaps
from tests.support.landed import landed_replay_ids
from tests.support.localorg import LocalOrg

pytestmark = pytest.mark.extended


def start(airflow: AirflowStack, *dag_ids: str) -> list[dict[str, Any]]:
    """Unpause DAGs and return the run of the last hour of each DAG."""
    for dag_id in dag_ids:
        airflow.wait_for_dag(dag_id)
        airflow.unpause(dag_id)
    runs = []
    for dag_id in dag_ids:
        run_id = wait_for(lambda: airflow.run_ids(dag_id), 300, f"the scheduled run of {dag_id}")[0]  # noqa: B023
        airflow.wait_for_run(dag_id, run_id)
        runs.append(airflow.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}"))
    return runs


def start_without_login(airflow: AirflowStack, org: LocalOrg, *dag_ids: str) -> None:
    """Unpause DAGs while Salesforce refuses logins, so that the scheduled run fails and drains nothing."""
    org.admin("POST", "/oauth", {"fail_next": 1_000_000, "fail_error": "invalid_client"})
    try:
        for run in start(airflow, *dag_ids):
            assert run["state"] == "failed"
            assert "AuthenticationError" in log_of(airflow, run)
    finally:
        org.admin("POST", "/oauth", {"fail_next": 0})


def log_of(airflow: AirflowStack, run: dict[str, Any]) -> str:
    return airflow.task_log(run["dag_id"], run["dag_run_id"], "drain")


def result_of(airflow: AirflowStack, run: dict[str, Any]) -> dict[str, Any]:
    """Check that a run succeeded and return the result of its drain."""
    assert run["state"] == "success", log_of(airflow, run)
    result: dict[str, Any] = airflow.xcom(run["dag_id"], run["dag_run_id"], "drain")
    return result


def run_live(airflow: AirflowStack, dag_id: str, begin: datetime, end: datetime) -> dict[str, Any]:
    """Trigger a manual run for an interval and return the drain's result."""
    interval = {"data_interval_start": begin.isoformat(), "data_interval_end": end.isoformat()}
    run_id = airflow.trigger(dag_id, logical_date=begin.isoformat(), **interval)
    airflow.wait_for_run(dag_id, run_id)
    return result_of(airflow, airflow.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}"))


def check_hours(airflow: AirflowStack, topic: PastTopic, runs: dict[datetime, dict[str, Any]]) -> None:
    """Check that every run succeeded and returned each event of its hour exactly once."""
    for begin, run in runs.items():
        result = result_of(airflow, run)
        assert (result["mode"], result["missing"]) == ("interval", [])
        assert datetime.fromisoformat(result["event_time_from"]) == begin
        assert datetime.fromisoformat(result["event_time_to"]) == begin + HOUR
        assert topic.events_of(result) == topic.replay_ids_between(begin, begin + HOUR), run["dag_run_id"]


def test_backfill_of_ten_hours_that_were_never_drained(airflow: AirflowStack, past_org: LocalOrg) -> None:
    dag_id = "backfill.fresh"
    topic = PastTopic(airflow, past_org, "Fresh__e")
    topic.publish_hours(13, 7)
    # Out of order: an event of the end of an hour, published after the next hour began.
    topic.publish([topic.hour(6) + timedelta(minutes=2), topic.hour(7) + timedelta(minutes=58)])
    topic.publish_hours(6, 0, (10, 30, 50))
    start(airflow, dag_id)  # starts from "latest", so that it reads only the last hour
    position = live_position(airflow, topic.stream("fresh"))
    assert position is not None
    first, last = topic.hour(11), topic.hour(2)
    begun = time.monotonic()
    runs = airflow.wait_for_backfill(airflow.backfill(dag_id, first, last, run_backwards=True, max_active_runs=10))
    print(f"\nten hours at a time: {time.monotonic() - begun:.0f} s")
    assert len(runs) == 10
    check_hours(airflow, topic, runs)
    assert live_position(airflow, topic.stream("fresh")) == position
    assert recorded_gaps(airflow, topic.stream("fresh")) == ()


def test_backfill_of_landed_hours_does_not_call_salesforce(
    airflow: AirflowStack, past_org: LocalOrg, lake: Path
) -> None:
    dag_id = "backfill.landed"
    topic = PastTopic(airflow, past_org, "Landed__e")
    topic.publish_hours(8, 1)
    (scheduled,) = start(airflow, dag_id)
    live = result_of(airflow, scheduled)
    assert topic.events_of(live) == topic.replay_ids_between(topic.hour(1), topic.hour(0))
    position = live_position(airflow, topic.stream("landed"))
    assert position is not None
    landed = landed_replay_ids(lake / "backfill" / "landing", topic.stream("landed"))
    assert position["position"] == landed[-1].hex()

    past_org.admin("DELETE", "/requests")
    # The last of the three hours belongs to the scheduled run, which the backfill repeats.
    runs = airflow.wait_for_backfill(
        airflow.backfill(dag_id, topic.hour(3), topic.hour(1), reprocess_behavior="completed")
    )
    assert past_org.requests() == []
    assert len(runs) == 3
    check_hours(airflow, topic, runs)
    assert runs[topic.hour(1)]["dag_run_id"] == scheduled["dag_run_id"]
    assert result_of(airflow, runs[topic.hour(1)]) == {**live, "drained": False}
    assert {window["origin"] for window in result_of(airflow, runs[topic.hour(3)])["windows"]} == {"landed"}
    assert live_position(airflow, topic.stream("landed")) == position
    assert landed_replay_ids(lake / "backfill" / "landing", topic.stream("landed")) == landed


def test_backfill_of_expired_hours_fails_or_records_a_gap(airflow: AirflowStack, past_org: LocalOrg) -> None:
    """Hours that were never landed and are older than the retention fail by name, or are accepted as a gap.

    The other hours are returned.
    """
    topic = PastTopic(airflow, past_org, "Expired__e")
    topic.publish_hours(72, 69)
    topic.publish_hours(2, 0)
    streams = {name: topic.stream(name) for name in ("fail", "partial")}
    start_without_login(airflow, past_org, *(f"backfill.{name}" for name in streams))
    runs = {}
    for name in streams:
        # One run at a time: of two runs that record a gap in a Variable at the same time, one may overwrite the other.
        backfill_id = airflow.backfill(f"backfill.{name}", topic.hour(75), topic.hour(70), max_active_runs=1)
        runs[name] = list(airflow.wait_for_backfill(backfill_id).values())
    assert all(live_position(airflow, stream) is None for stream in streams.values())

    assert [run["state"] for run in runs["fail"]][:2] == ["failed", "failed"]
    lost = [(topic.hour(75), topic.hour(74)), (topic.hour(74), topic.hour(73))]
    for run, (begin, end) in zip(runs["fail"], lost, strict=False):
        assert f"ReplayIdLostError: {streams['fail']}" in log_of(airflow, run)
        assert f"[{begin.isoformat()}, {end.isoformat()}) was never landed" in log_of(airflow, run)
    assert recorded_gaps(airflow, streams["fail"]) == ()

    partial = [result_of(airflow, run) for run in runs["partial"]]
    expected = [[{"from": begin.isoformat(), "to": end.isoformat()}] for begin, end in lost]
    assert [result["missing"] for result in partial[:2]] == expected
    assert [result["windows"] for result in partial[:2]] == [[], []]
    assert [gap.since for gap in recorded_gaps(airflow, streams["partial"])][:2] == [begin for begin, _ in lost]
    for name in streams:
        check_hours(airflow, topic, {topic.hour(70): runs[name][-1]})


def test_each_reprocess_behaviour(airflow: AirflowStack, past_org: LocalOrg) -> None:
    dag_id = "backfill.again"
    topic = PastTopic(airflow, past_org, "Again__e")
    topic.publish_hours(8, 1)
    start_without_login(airflow, past_org, dag_id)

    def backfill(first: int, last: int, reprocess_behavior: str, **body: Any) -> dict[int, dict[str, Any]]:
        """Backfill the hours from ``first`` to ``last`` hours ago; return all backfill runs of the DAG by hours ago."""
        dates = topic.hour(first), topic.hour(last)
        airflow.wait_for_backfill(airflow.backfill(dag_id, *dates, reprocess_behavior=reprocess_behavior, **body))
        runs = airflow.backfill_runs(dag_id, topic.hour(24), topic.hour(0))
        return {(topic.hour(0) - begin) // HOUR: run for begin, run in runs.items()}

    assert {hour: run["state"] for hour, run in backfill(3, 1, "none").items()} == {3: "success", 2: "success"}
    missing = backfill(3, 1, "none")
    assert list(missing) == [3, 2], "behavior `none` must not repeat the failed run"

    errored = backfill(4, 1, "failed", run_backwards=True)
    assert {hour: errored[hour] for hour in (3, 2)} == missing, "a successful run was repeated"
    check_hours(airflow, topic, {topic.hour(hour): run for hour, run in errored.items()})
    results = {hour: result_of(airflow, run) for hour, run in errored.items()}
    assert list(results) == [4, 3, 2, 1]

    past_org.admin("DELETE", "/requests")
    topic.publish([topic.hour(hour) + timedelta(minutes=30) for hour in results])  # long after these hours ended
    everything = backfill(4, 1, "completed", run_backwards=True, max_active_runs=1)
    assert past_org.requests() == []
    again = {hour: result_of(airflow, run) for hour, run in everything.items()}
    assert again == {hour: {**result, "drained": False} for hour, result in results.items()}
    started = [everything[hour]["start_date"] for hour in (1, 2, 3, 4)]
    assert started == sorted(started), "the runs did not start backwards, one at a time"
    assert live_position(airflow, topic.stream("again")) is None


@contextmanager
def steady_flow(topic: PastTopic) -> Iterator[None]:
    """Publish events continuously, so that drains never become idle."""
    stop = Event()

    def publish() -> None:
        while not stop.wait(0.2):
            topic.org.publish(topic.topic, [{"Number__c": 2.0}])

    publisher = Thread(target=publish)
    publisher.start()
    try:
        yield
    finally:
        stop.set()
        publisher.join()


@contextmanager
def long_silences(org: LocalOrg) -> Iterator[None]:
    """Delay the org's empty responses, which confirm the end of a stream."""
    org.knobs(keepalive_seconds=60)
    try:
        yield
    finally:
        org.knobs(keepalive_seconds=0.5)


def test_backfill_beside_a_scheduled_drain_of_the_same_stream(
    airflow: AirflowStack, past_org: LocalOrg, lake: Path
) -> None:
    dag_id = "backfill.beside"
    topic = PastTopic(airflow, past_org, "Beside__e")
    topic.publish_hours(6, 1)
    airflow.wait_for_dag(dag_id)
    # A busy machine may publish nothing for a second or two; the scheduled drain must not end then.
    with steady_flow(topic), long_silences(past_org):
        airflow.unpause(dag_id)
        scheduled = wait_for(lambda: airflow.run_ids(dag_id), 180, "the scheduled run")[0]
        wait_for(lambda: topic.topic in {each["topic"] for each in past_org.streams()}, 180, "the scheduled drain")
        runs = airflow.wait_for_backfill(airflow.backfill(dag_id, topic.hour(5), topic.hour(3)))
        assert airflow.run_states(dag_id)[scheduled] == "running"
        check_hours(airflow, topic, runs)
        # The backfill runs end without silence: they read an event that was published after they began.
        assert all(result_of(airflow, run)["confirmed_at"] for run in runs.values())
        assert live_position(airflow, topic.stream("beside")) is None
    assert airflow.wait_for_run(dag_id, scheduled) == "success", airflow.task_log(dag_id, scheduled, "drain")

    record = [event["replay_id"] for event in past_org.record(topic.topic)]
    assert landed_replay_ids(lake / "backfill" / "landing", topic.stream("beside")) == record
    position = live_position(airflow, topic.stream("beside"))
    assert position is not None
    assert position["position"] == record[-1].hex()
    check_hours(airflow, topic, runs)
