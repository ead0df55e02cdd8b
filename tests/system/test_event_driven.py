"""DAGs started by events of a topic, on a real scheduler and triggerer, compared with the org's record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.triggers.topic_watch import STATE_KEY
from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.landed import landed_replay_ids
from tests.support.localorg import LocalOrg

pytestmark = pytest.mark.extended
EXAMPLE = "sfstream_on_event"


@pytest.fixture(scope="module", autouse=True)
def long_silences(system_org: LocalOrg) -> Iterator[None]:
    """Delay the org's first empty response beyond these tests: it would make a watch emit its start event again."""
    system_org.knobs(keepalive_seconds=270)
    yield
    system_org.reset_knobs()


def record(org: LocalOrg, topic: str) -> list[bytes]:
    """Return the replay IDs of all events that were published to a topic."""
    return [event["replay_id"] for event in org.record(topic)]


def stream(org: LocalOrg, topic: str, subscription: str) -> Stream:
    return Stream(org.org_id, "pubsub", topic, subscription)


@contextmanager
def unpaused(airflow: AirflowStack, *dag_ids: str) -> Iterator[None]:
    """Unpause DAGs for a ``with`` block."""
    for dag_id in dag_ids:
        airflow.wait_for_dag(dag_id)
        airflow.unpause(dag_id)
    try:
        yield
    finally:
        for dag_id in dag_ids:
            airflow.pause(dag_id)


def stream_count(org: LocalOrg, topic: str) -> int:
    """Return the number of open streams of a topic."""
    return sum(each["topic"] == topic for each in org.streams())


def settled(airflow: AirflowStack, dag_id: str) -> list[str]:
    """Wait until no run of the DAG is queued or running; return the run IDs."""
    wait_for(lambda: set(airflow.run_states(dag_id).values()) <= {"success", "failed"}, 600, f"{dag_id} to settle")
    return airflow.run_ids(dag_id)


def wait_until_landed(airflow: AirflowStack, org: LocalOrg, lake: Path, dag_id: str, topic: str, name: str) -> None:
    """Wait until a DAG has landed all published events; fail if an event was landed twice or out of order."""
    expected = record(org, topic)
    wait_for(
        lambda: len(landed_replay_ids(lake, stream(org, topic, name))) >= len(expected),
        600,
        f"{dag_id} to land {len(expected)} events, it has {len(landed_replay_ids(lake, stream(org, topic, name)))}",
    )
    settled(airflow, dag_id)
    assert landed_replay_ids(lake, stream(org, topic, name)) == expected


def test_a_published_event_starts_the_example_dag(airflow: AirflowStack, system_org: LocalOrg, lake: Path) -> None:
    topic = "/event/Order__e"
    system_org.define("Order__e", Number__c="double")
    with unpaused(airflow, EXAMPLE):
        # A watch starts its DAG once at the beginning, because earlier events may be unread.
        wait_for(lambda: airflow.run_ids(EXAMPLE), 180, "the first run of the watch")
        before = settled(airflow, EXAMPLE)
        wait_for(lambda: stream_count(system_org, topic) == 1, 120, "the watch")
        wait_for(lambda: airflow.task_processes() == [], 180, "all tasks to have ended")
        published_at = datetime.now(UTC)
        system_org.publish(topic, [{"Number__c": float(n)} for n in range(500)])
        run_id = wait_for(lambda: [run for run in airflow.run_ids(EXAMPLE) if run not in before], 180, "a run")[0]
        assert airflow.wait_for_run(EXAMPLE, run_id) == "success", airflow.task_log(EXAMPLE, run_id, "drain")
        run = airflow.api("GET", f"/dags/{EXAMPLE}/dagRuns/{run_id}")
        started = datetime.fromisoformat(run["start_date"])
        print(f"\nfrom publish to run start: {(started - published_at).total_seconds():.2f} s")
        assert run["run_type"] == "asset_triggered"
        settled(airflow, EXAMPLE)

    events = airflow.api("GET", f"/dags/{EXAMPLE}/dagRuns/{run_id}/upstreamAssetEvents")["asset_events"]
    payload = events[-1]["extra"]["payload"]
    assert payload["reason"] == "events"
    assert payload["stream"]["topic"] == topic
    assert bytes.fromhex(payload["first_replay_id"]) in record(system_org, topic)
    window = airflow.xcom(EXAMPLE, run_id, "drain")
    rows = DeltaTable(str(lake / "on_event" / "tables" / "Order__e")).to_pyarrow_table(columns=["_replay_id"])
    assert sorted(rows["_replay_id"].to_pylist()) == record(system_org, topic)
    assert window["stream"]["subscription"] == "on_event"


def state_path(airflow: AirflowStack, uri: str) -> str:
    """Return the path of an asset's state in the REST API."""
    return f"/assets/{airflow.api('GET', '/assets', params={'uri_pattern': uri})['assets'][0]['id']}/state-store"


def watch_position(airflow: AirflowStack, uri: str) -> bytes | None:
    """Return the watch position in the state of the asset, as the UI shows it."""
    entries = airflow.api("GET", state_path(airflow, uri))["asset_state_store"]
    values = {entry["key"]: entry["value"] for entry in entries}
    return bytes.fromhex(values[STATE_KEY]["replay_id"]) if STATE_KEY in values else None


def test_burst_starts_few_runs_and_its_last_event_is_landed(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path
) -> None:
    """One drain without limits receives the burst, and one whose limit spreads it over five runs."""
    topic, dag_ids = "/event/Alone__e", ("on_event.alone", "on_event.limited")
    system_org.define("Alone__e", Number__c="double")
    with unpaused(airflow, *dag_ids):
        wait_for(lambda: all(airflow.run_ids(dag_id) for dag_id in dag_ids), 180, "the first runs of the watch")
        before = {dag_id: len(settled(airflow, dag_id)) for dag_id in dag_ids}
        _, last = system_org.publish_many(topic, 10_000, {"Number__c": "{n}"})
        for dag_id in dag_ids:
            wait_until_landed(airflow, system_org, lake, dag_id, topic, dag_id.removeprefix("on_event."))
        uri = f"sfstream://salesforce_default{topic}?min_interval=2"
        wait_for(lambda: watch_position(airflow, uri) == last, 600, "the watch position to follow")
        runs = {dag_id: len(settled(airflow, dag_id)) - before[dag_id] for dag_id in dag_ids}
    print(f"\n10,000 events at once: {runs}")
    assert 1 <= runs["on_event.alone"] <= 20
    assert 5 <= runs["on_event.limited"] <= 25


def test_events_published_while_the_dag_is_paused_are_landed_after_unpausing(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path
) -> None:
    topic, dag_id = "/event/Alone__e", "on_event.alone"
    airflow.pause(dag_id)
    wait_for(lambda: stream_count(system_org, topic) == 0, 180, "the watch to end with the pause")
    system_org.publish_many(topic, 300, {"Number__c": "{n}"})
    with unpaused(airflow, dag_id):
        wait_until_landed(airflow, system_org, lake, dag_id, topic, "alone")


def test_message_queue_trigger_resumes_from_the_stored_position(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path
) -> None:
    """Without a watch position, the watch starts from the position that the DAG's drain recorded."""
    topic, dag_id, uri = "/event/Stored__e", "on_event.stored", "sfstream://salesforce_default/event/Stored__e"
    system_org.define("Stored__e", Number__c="double")
    system_org.publish(topic, [{"Number__c": 1.0}])
    with unpaused(airflow, dag_id):
        wait_until_landed(airflow, system_org, lake, dag_id, topic, "stored")
    wait_for(lambda: stream_count(system_org, topic) == 0, 180, "the watch to end with the pause")
    airflow.api("DELETE", state_path(airflow, uri))
    new = system_org.publish(topic, [{"Number__c": float(n)} for n in range(3)])
    before = airflow.run_ids(dag_id)
    with unpaused(airflow, dag_id):
        wait_until_landed(airflow, system_org, lake, dag_id, topic, "stored")
    run_id = next(run_id for run_id in airflow.run_ids(dag_id) if run_id not in before)
    event = airflow.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}/upstreamAssetEvents")["asset_events"][-1]
    assert event["extra"]["payload"]["reason"] == "events"
    assert bytes.fromhex(event["extra"]["payload"]["first_replay_id"]) == new[0]


def test_two_dags_keep_up_with_a_steady_flow_through_faults(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path
) -> None:
    """Publish continuously while the triggerer is killed, streams are dropped and a DAG is paused."""
    topic = "/event/Flow__e"
    system_org.define("Flow__e", Number__c="double")
    stop = Event()
    published: Counter[str] = Counter()

    def publish() -> None:
        while not stop.wait(0.2):
            system_org.publish(topic, [{"Number__c": float(published["events"] + n)} for n in range(7)])
            published["events"] += 7

    def wait_for_run(dag_id: str) -> None:
        """Wait until a new run has started."""
        before = len(airflow.run_ids(dag_id))
        wait_for(lambda: len(airflow.run_ids(dag_id)) > before, 600, f"another run of {dag_id}")

    with unpaused(airflow, "on_event.first", "on_event.second"):
        wait_for(lambda: stream_count(system_org, topic) >= 1, 180, "the watch")
        settled(airflow, "on_event.first")
        settled(airflow, "on_event.second")
        wait_for(lambda: stream_count(system_org, topic) == 1, 180, "two DAGs on one topic to share one subscription")
        publisher = Thread(target=publish)
        publisher.start()
        try:
            wait_for_run("on_event.first")
            airflow.kill_component("triggerer")
            wait_for(lambda: stream_count(system_org, topic) == 0, 180, "the triggerer's stream to end")
            airflow.start_component("triggerer")
            wait_for_run("on_event.first")
            system_org.fault("drop_now", topic=topic, how="reset")
            airflow.pause("on_event.second")
            wait_for_run("on_event.first")
            system_org.revoke()
            airflow.unpause("on_event.second")
            wait_for_run("on_event.first")
            wait_for_run("on_event.second")
        finally:
            stop.set()
            publisher.join()
        for name in ("first", "second"):
            wait_until_landed(airflow, system_org, lake, f"on_event.{name}", topic, name)
            runs = len(airflow.run_ids(f"on_event.{name}"))
            print(f"\n{published['events']} events: {runs} runs of {name}")
            assert runs < 90
