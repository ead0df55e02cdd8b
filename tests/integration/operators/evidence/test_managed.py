"""Managed subscriptions whose position Salesforce drops or moves: the drain lands every published event once.

The position changes when an administrator deletes and recreates the subscription, stops and starts it, or when another
client commits on it. The tests compare the landed events with the org's record, for two replay stores, and kill the
drain at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.replay_windows.managed_windows import CommittedWindows
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.streams.managed.source import ManagedSource
from tests.support.killed import Killed, killed_at
from tests.support.landed import landed_replay_ids, replay_ids_of
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, error_text, set_connection

_numbers = count(1)
STORES = ["landing", "table"]


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.knobs(keepalive_seconds=0.1)
        yield local_org


class Orders:
    """A topic with a managed subscription, and the task that drains it."""

    def __init__(self, org: LocalOrg, folder: Path, store: str) -> None:
        number = next(_numbers)
        self.org, self.landing, self.store = org, folder / "landing", store
        self.topic, self.name = f"/event/Moved{number}__e", f"Moved_{number}"
        org.define(f"Moved{number}__e", Number__c="double")
        org.managed_subscription(self.name, self.topic, error_recovery_replay="EARLIEST")
        self.runs = 0

    def publish(self, number: int) -> list[bytes]:
        return self.org.publish(self.topic, [{"Number__c": float(n)} for n in range(number)])

    def operator(self, **arguments: Any) -> DrainReplayWindowOperator:
        usual = {"landing_url": str(self.landing), "replay_store": self.store, "idle_timeout": 0.5}
        return DrainReplayWindowOperator(
            task_id="drain", **{"topic": self.topic, "managed_subscription": self.name, **usual, **arguments}
        )

    def drain(self, *, again: bool = False, **arguments: Any) -> dict[str, Any]:
        """Drain in a new DAG run; with ``again``, repeat the last run."""
        self.runs += not again
        context = context_for("drain", run_id=f"run-{self.runs}", hour=self.runs)
        return dict(self.operator(**arguments).execute(context))

    def backfill(self, begin: datetime, end: datetime) -> list[bytes]:
        """Run a backfill of a time span; return the replay IDs of its windows."""
        context = context_for(
            "drain", run_id="backfill", run_type="backfill", data_interval_start=begin, data_interval_end=end
        )
        result = self.operator().execute(context)
        return [replay_id for window in result["windows"] for replay_id in replay_ids_of(window["manifest_url"])]

    def record(self) -> list[bytes]:
        return [event["replay_id"] for event in self.org.record(self.topic)]

    def landed(self) -> list[bytes]:
        """Return the replay IDs of all landed windows, in order."""
        return landed_replay_ids(self.landing, Stream(self.org.org_id, "pubsub", self.topic, self.name))

    def committed(self) -> bytes | None:
        committed: bytes | None = self.org.managed_subscriptions()[self.name]["committed"]
        return committed


@pytest.fixture(params=STORES)
def orders(request: Any, org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Orders:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    return Orders(org, tmp_path, request.param)


def recreated_latest(orders: Orders) -> None:
    orders.org.recreate_managed_subscription(orders.name, defaultReplay="LATEST")


def recreated_earliest(orders: Orders) -> None:
    orders.org.recreate_managed_subscription(orders.name, defaultReplay="EARLIEST")


def restarted_latest(orders: Orders) -> None:
    orders.org.change_managed_subscription(orders.name, state="STOP", defaultReplay="LATEST")
    orders.org.change_managed_subscription(orders.name, state="RUN")


def restarted_earliest(orders: Orders) -> None:
    orders.org.change_managed_subscription(orders.name, state="STOP")
    orders.org.change_managed_subscription(orders.name, state="RUN")


def committed_at_the_end(orders: Orders) -> None:
    orders.org.commit_managed_subscription(orders.name)


def committed_in_the_middle(orders: Orders) -> None:
    orders.org.commit_managed_subscription(orders.name, orders.record()[-2])


Change = Callable[[Orders], None]
CHANGES = [
    recreated_latest,
    recreated_earliest,
    restarted_latest,
    restarted_earliest,
    committed_at_the_end,
    committed_in_the_middle,
]


@pytest.mark.parametrize("change", CHANGES)
def test_no_event_is_lost_or_landed_twice_after_the_position_changed(orders: Orders, change: Change) -> None:
    orders.publish(5)
    assert orders.drain()["event_count"] == 5
    orders.publish(4)
    change(orders)
    result = orders.drain()
    assert (result["event_count"], result["gap"]) == (4, None)
    assert orders.landed() == orders.record()
    assert orders.committed() is not None
    assert orders.drain()["event_count"] == 0
    orders.publish(3)
    assert orders.drain()["event_count"] == 3
    assert orders.landed() == orders.record()
    assert orders.committed() == orders.record()[-1]


@pytest.mark.parametrize("orders", ["table"], indirect=True)
@pytest.mark.parametrize("change", [recreated_latest, recreated_earliest])
def test_the_second_drain_after_a_recreation_receives_only_new_events(orders: Orders, change: Change) -> None:
    """Salesforce delivers events twice only in the first drain after the change."""
    orders.publish(150)
    orders.drain()
    orders.publish(150)
    change(orders)
    orders.drain()
    delivered = orders.org.admin("GET", "/org")["delivered"]
    orders.publish(100)
    orders.drain()
    assert orders.landed() == orders.record()
    assert orders.org.admin("GET", "/org")["delivered"] <= delivered + 101, (
        "at most one event more, which the drain compares with its position"
    )


@pytest.mark.parametrize("orders", ["landing"], indirect=True)
@pytest.mark.parametrize("change", CHANGES)
def test_a_drain_limited_by_max_events_continues_in_the_next_run(orders: Orders, change: Change) -> None:
    orders.publish(5)
    orders.drain()
    orders.publish(9)
    change(orders)
    sizes = [orders.drain(max_events=4)["event_count"] for _ in range(4)]
    assert sizes == [4, 4, 1, 0]
    assert orders.landed() == orders.record()


@pytest.mark.parametrize("orders", ["landing"], indirect=True)
@pytest.mark.parametrize("change", [recreated_latest, committed_at_the_end])
def test_a_changed_position_on_a_topic_without_new_events_logs_no_warning(
    orders: Orders, change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    orders.publish(5)
    orders.drain()
    change(orders)
    assert orders.drain()["event_count"] == 0
    assert "does not continue" not in caplog.text
    orders.publish(3)
    assert orders.drain()["event_count"] == 3
    assert orders.landed() == orders.record()


STEPS: list[tuple[Any, str]] = [
    (LandingCatalog, "write_manifest"),
    (DocumentReplayStore, "advance"),
    (TableReplayStore, "advance"),
    (ManagedSource, "commit"),
    (CommittedWindows, "record"),
]


@pytest.mark.parametrize("orders", ["landing"], indirect=True)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(1, len(STEPS)))
@pytest.mark.parametrize("change", CHANGES[:2] + CHANGES[-1:])
def test_a_drain_killed_at_any_step_is_completed_by_its_retry(
    orders: Orders, change: Change, nth: int, after: bool
) -> None:
    orders.publish(5)
    orders.drain()
    orders.publish(4)
    change(orders)
    with killed_at(STEPS, nth, after=after), pytest.raises(Killed):
        orders.drain()
    assert orders.drain(again=True)["event_count"] == 4
    orders.publish(2)
    orders.drain()
    assert orders.landed() == orders.record()


@pytest.mark.parametrize("is_confirmed", [False, True], ids=["idle", "caught up"])
@pytest.mark.parametrize("change", [recreated_latest, committed_at_the_end])
def test_a_backfill_of_events_around_the_change_returns_them(
    orders: Orders, change: Change, is_confirmed: bool
) -> None:
    orders.publish(5)
    orders.drain(wait_for_confirmation=is_confirmed)
    events = orders.publish(4)
    change(orders)
    result = orders.drain(wait_for_confirmation=is_confirmed)
    assert (result["event_count"], result["stop_reason"]) == (4, "caught_up" if is_confirmed else "idle")
    times = {e["replay_id"]: e["fields"]["CreatedDate"] for e in orders.org.record(orders.topic)}
    begin = datetime.fromtimestamp(times[events[0]] / 1000, UTC)
    end = datetime.fromtimestamp(times[events[-1]] / 1000, UTC) + timedelta(milliseconds=1)
    assert set(events) <= set(orders.backfill(begin, end))


@pytest.mark.parametrize("is_readable", [True, False], ids=["its record can be read", "its record is hidden"])
def test_a_subscription_recreated_on_another_topic_is_refused(
    orders: Orders, is_readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.publish(5)
    orders.drain()
    orders.org.define("Foreign__e", Number__c="double")
    orders.org.recreate_managed_subscription(orders.name, topicName="/event/Foreign__e")
    orders.org.publish("/event/Foreign__e", [{"Number__c": 1.0}] * 4)
    if not is_readable:
        hide_records(monkeypatch)
    with pytest.raises(AirflowFailException) as caught:
        orders.drain()
    assert "Foreign__e" in error_text(caught.value)
    assert orders.topic in error_text(caught.value)
    assert orders.landed() == orders.record()
    orders.publish(3)
    orders.org.recreate_managed_subscription(orders.name, topicName=orders.topic)
    assert orders.drain(again=True)["event_count"] == 3
    assert orders.landed() == orders.record()


def test_the_first_drain_of_a_subscription_on_another_topic_lands_nothing(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.org.define("Foreign__e", Number__c="double")
    orders.org.recreate_managed_subscription(orders.name, topicName="/event/Foreign__e")
    orders.org.publish("/event/Foreign__e", [{"Number__c": 1.0}] * 4)
    hide_records(monkeypatch)
    with pytest.raises(AirflowFailException, match=r"delivers events of Foreign__e"):
        orders.drain()
    assert orders.landed() == []


def hide_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every read of a subscription's record fail, as for a user without the permission."""
    from airflow_provider_sfstream.exceptions import AccessDeniedError
    from airflow_provider_sfstream.hooks.managed_event_subscription import ManagedEventSubscriptionHook

    def get(*_: Any) -> None:
        raise AccessDeniedError("the user may not read it")

    monkeypatch.setattr(ManagedEventSubscriptionHook, "get", get)


@pytest.mark.parametrize("orders", ["landing"], indirect=True)
def test_a_recreated_subscription_is_logged_with_both_record_ids(
    orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    before = orders.org.managed_subscriptions()[orders.name]["id"]
    orders.publish(2)
    orders.drain()
    recreated_latest(orders)
    orders.publish(2)
    caplog.clear()
    orders.drain()
    after = orders.org.managed_subscriptions()[orders.name]["id"]
    assert f"its record is {after}, and was {before}" in caplog.text
    orders.publish(1)
    caplog.clear()
    orders.drain()
    assert "its record is" not in caplog.text
    assert orders.landed() == orders.record()
