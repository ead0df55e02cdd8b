"""Event-driven scheduling: Airflow's real DAG processor and scheduler with watched topics, on a separate database."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset, salesforce_topic_asset
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger
from tests.support import scheduling
from tests.support.airflow_database import airflow_database
from tests.support.airflow_names import DagSerialization
from tests.support.scheduling import end_runs, fire, parse, pause, queued, runs, schedule, watches

EXAMPLE = Path(__file__).parents[3] / "dags" / "sfstream_on_event.py"
ORDERS = "sfstream://salesforce_default/event/Order__e"
PAYLOAD = {"reason": "events", "event_count": 3}


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an Airflow database that each test copies, because its creation takes seconds."""
    path = tmp_path_factory.mktemp("airflow") / "airflow.db"
    with airflow_database(path):
        return path


@pytest.fixture(autouse=True)
def database(empty_database: Path, tmp_path: Path) -> Iterator[None]:
    path = tmp_path / "airflow.db"
    shutil.copy(empty_database, path)
    with airflow_database(path):
        yield


def dag_file(folder: Path, dag_id: str, schedule: str, task: str = "EmptyOperator(task_id='drain')") -> Path:
    """Write a DAG file with one task and the given schedule."""
    file = folder / f"{dag_id}.py"
    file.write_text(
        "from datetime import datetime, timedelta\n"
        "from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, AssetWatcher, CronTriggerTimetable\n"
        "from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger\n"
        "from airflow.providers.standard.operators.empty import EmptyOperator\n"
        "from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset, salesforce_topic_asset\n"
        "from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator\n"
        "shared = dict(start_date=datetime(2026, 1, 1), catchup=False, is_paused_upon_creation=False)\n"
        f"with DAG({dag_id!r}, schedule={schedule}, max_active_runs=1, **shared):\n"
        f"    {task}\n"
    )
    return file


def on_topic(folder: Path, dag_id: str, arguments: str = "") -> Path:
    return dag_file(folder, dag_id, f"[salesforce_topic_asset('/event/Order__e', {arguments})]")


def watch_of(uri: str) -> int:
    """Return the ID of the only trigger that watches the asset."""
    [(trigger_id, _)] = watches()[uri]
    return trigger_id


def test_the_example_dag_has_one_watcher_with_the_arguments_of_its_topic() -> None:
    parse(EXAMPLE)
    pause("sfstream_on_event", paused=False)
    parse(EXAMPLE)
    [(_, arguments)] = watches()[ORDERS]
    expected = SalesforceEventTrigger(topic="/event/Order__e").serialize()[1]
    assert SalesforceEventTrigger(**arguments).serialize()[1] == expected
    landed = f"{ORDERS}?subscription=on_event"
    assert set(scheduling.asset_ids()) == {ORDERS, landed}
    assert landed not in watches()


def test_the_example_dag_survives_serialization() -> None:
    dag = parse(EXAMPLE).dags["sfstream_on_event"]
    encoded = DagSerialization.to_dict(dag)
    read = DagSerialization.from_dict(encoded)
    [(_, asset)] = list(read.timetable.asset_condition.iter_assets())
    assert (asset.name, asset.uri) == (ORDERS, ORDERS)
    [watcher] = asset.watchers
    assert watcher.trigger["classpath"] == salesforce_topic_asset("/event/Order__e").watchers[0].trigger.serialize()[0]
    assert read.max_active_runs == 1
    assert DagSerialization.to_dict(parse(EXAMPLE).dags["sfstream_on_event"]) == encoded


def test_the_example_dag_drains_no_more_events_in_a_run_than_its_table_job_accepts() -> None:
    """A larger first backlog is landed in several windows: a job cannot read a part of one."""
    drain = parse(EXAMPLE).dags["sfstream_on_event"].get_task("drain")
    job = EventLogOperator(task_id="event_log", windows=[], **drain.event_log)
    assert (drain.max_events or float("inf")) <= job.max_events


def test_two_dag_files_on_one_topic_share_one_watch_at_every_parse(tmp_path: Path) -> None:
    files = [on_topic(tmp_path, "one"), on_topic(tmp_path, "two", "min_interval=timedelta(seconds=5)")]
    for file in files:
        parse(file)
    first = watch_of(ORDERS)
    for file in files * 2:
        parse(file)
        assert watch_of(ORDERS) == first
    fire(first, PAYLOAD)
    assert queued() == ["one", "two"]


def test_a_message_queue_trigger_on_the_same_asset_is_the_same_watch(tmp_path: Path) -> None:
    trigger = "MessageQueueTrigger(scheme='sfstream', topic='/event/Order__e')"
    assets = f"[Asset({ORDERS!r}, watchers=[AssetWatcher(name='orders', trigger={trigger})])]"
    files = [on_topic(tmp_path, "one"), dag_file(tmp_path, "two", assets)]
    for file in files:
        parse(file)
    first = watch_of(ORDERS)
    for file in files:
        parse(file)
        assert watch_of(ORDERS) == first
    fire(first, PAYLOAD)
    assert queued() == ["one", "two"]


def test_other_conditions_create_a_second_watch_that_every_parse_retains(tmp_path: Path) -> None:
    files = [on_topic(tmp_path, "one"), on_topic(tmp_path, "two", "min_events=100, max_wait=60")]
    for file in files:
        parse(file)
    first = watches()
    assert set(first) == {ORDERS, f"{ORDERS}?max_wait=60&min_events=100"}
    for file in files * 2:
        parse(file)
        assert watches() == first
    fire(watch_of(ORDERS), PAYLOAD)
    assert queued() == ["one"]


def test_drain_triggers_dags_of_its_landed_asset_but_not_its_own_dag(tmp_path: Path) -> None:
    drain = "DrainReplayWindowOperator(task_id='drain', topic='/event/Order__e', landing_url='file:///tmp/l')"
    parse(dag_file(tmp_path, "one", "[salesforce_topic_asset('/event/Order__e')]", drain))
    parse(dag_file(tmp_path, "after", "[landed_stream_asset('salesforce_default', '/event/Order__e')]"))
    landed = landed_stream_asset("salesforce_default", "/event/Order__e")
    assert landed.uri in scheduling.asset_ids()
    assert set(watches()) == {ORDERS}
    scheduling.emit(landed)
    assert queued() == ["after"]


def test_watch_ends_when_all_dags_are_paused_and_returns_after_unpausing(tmp_path: Path) -> None:
    files = [on_topic(tmp_path, "one"), on_topic(tmp_path, "two")]
    for file in files:
        parse(file)
    first, asset = watch_of(ORDERS), scheduling.asset_ids()[ORDERS]
    pause("one")
    parse(files[0])
    assert watch_of(ORDERS) == first
    pause("two")
    parse(files[1])
    assert watches() == {}
    pause("one", paused=False)
    parse(files[0])
    assert len(watches()[ORDERS]) == 1
    assert scheduling.asset_ids()[ORDERS] == asset


def test_unpaused_dag_is_triggered_only_by_the_next_event(tmp_path: Path) -> None:
    for dag_id in ("active", "paused"):
        parse(on_topic(tmp_path, dag_id))
    pause("paused")
    fire(watch_of(ORDERS), PAYLOAD)
    pause("paused", paused=False)
    schedule()
    assert (len(runs("active")), len(runs("paused"))) == (1, 0)
    fire(watch_of(ORDERS), PAYLOAD)
    schedule()
    assert len(runs("paused")) == 1


def test_events_during_a_run_cause_one_run_after_it(tmp_path: Path) -> None:
    parse(on_topic(tmp_path, "one"))
    watch = watch_of(ORDERS)
    fire(watch, PAYLOAD)
    schedule()
    [first] = runs("one")
    for _ in range(3):
        fire(watch, PAYLOAD)
        schedule()
    assert (len(runs("one")), queued()) == (1, ["one"])
    end_runs("one")
    schedule()
    [_, second] = runs("one")
    assert second.run_type == "asset_triggered"
    assert second.queued_at > scheduling.last_event_at()
    assert first.queued_at < second.queued_at
    end_runs("one")
    schedule()
    assert (len(runs("one")), queued()) == (2, [])


def test_run_queued_before_a_pause_starts_after_unpausing(tmp_path: Path) -> None:
    parse(on_topic(tmp_path, "one"))
    fire(watch_of(ORDERS), PAYLOAD)
    pause("one")
    schedule()
    assert (runs("one"), queued()) == ([], ["one"])
    pause("one", paused=False)
    schedule()
    assert len(runs("one")) == 1


SAFETY_NET: dict[str, Any] = {
    "one asset": "salesforce_topic_asset('/event/Order__e')",
    "a list": "[salesforce_topic_asset('/event/Order__e')]",
}


@pytest.mark.parametrize("assets", SAFETY_NET.values(), ids=SAFETY_NET)
def test_cron_timetable_can_be_combined_with_the_watch(tmp_path: Path, assets: str) -> None:
    timetable = "CronTriggerTimetable('0 * * * *', timezone='UTC')"
    bag = parse(dag_file(tmp_path, "one", f"AssetOrTimeSchedule(timetable={timetable}, assets={assets})"))
    encoded = DagSerialization.to_dict(bag.dags["one"])
    read = DagSerialization.from_dict(encoded)
    [(_, asset)] = list(read.timetable.asset_condition.iter_assets())
    assert asset.uri == ORDERS
    assert read.timetable.timetable.serialize()["expression"] == "0 * * * *"
    end_runs("one")
    fire(watch_of(ORDERS), PAYLOAD)
    schedule()
    assert "asset_triggered" in {run.run_type for run in runs("one")}
