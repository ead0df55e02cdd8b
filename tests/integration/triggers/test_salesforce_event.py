"""Event trigger against a local org: deferred tasks, and watches on Airflow's real shared streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger
from tests.support.airflow_names import SHARED_STREAMS
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.tasks import set_connection

__all__ = ["org", "shared_org"]


@pytest.fixture(autouse=True)
def connection(org: SharedOrg, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())


def publish(org: SharedOrg, number: int) -> list[bytes]:
    return org.publish(org.topic, [{"Number__c": float(n)} for n in range(number)])


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a condition is true, and return its value. The condition may block: it runs in a thread."""
    async with asyncio.timeout(60):
        while not (value := await asyncio.to_thread(condition)):
            await asyncio.sleep(0.02)
        return value
    raise AssertionError(what)


async def fired_once(trigger: SalesforceEventTrigger) -> dict[str, Any]:
    """Return the event that a deferred trigger fires; fail if it fires twice."""
    async with asyncio.timeout(60):
        events = [event.payload async for event in trigger.run()]
    assert len(events) == 1
    return dict(events[0])


def subscribe_calls(org: SharedOrg) -> int:
    return len(org.requests("grpc", "Subscribe"))


async def test_deferred_trigger_starts_after_a_replay_id(org: SharedOrg) -> None:
    ids = publish(org, 3)
    event = await fired_once(SalesforceEventTrigger(topic=org.topic, after=ids[0].hex(), min_events=2))
    assert event == {
        "reason": "events",
        "stream": {"org_id": org.org_id, "api": "pubsub", "topic": org.topic, "subscription": "airflow"},
        "first_replay_id": ids[1].hex(),
        "through": ids[2].hex(),
        "event_count": 2,
    }
    await until(lambda: not org.open_streams(), "the end of the stream")


async def test_deferred_trigger_waits_for_new_events(org: SharedOrg) -> None:
    publish(org, 3)
    waiting = asyncio.create_task(fired_once(SalesforceEventTrigger(topic=org.topic)))
    await until(org.open_streams, "the stream")
    assert not waiting.done()
    new = await asyncio.to_thread(publish, org, 1)
    assert (await waiting)["first_replay_id"] == new[0].hex()


async def test_deferred_trigger_starts_after_the_stored_position(
    org: SharedOrg, tmp_path: Path, monkeypatch: Any
) -> None:
    ids = publish(org, 3)
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    store = TableReplayStore(f"sqlite:///{tmp_path / 'replay.db'}")
    stream = Stream(org.org_id, "pubsub", org.topic, "orders")
    store.reset(stream, ids[1], reason="test", updated_by="test")
    store.close()
    event = await fired_once(SalesforceEventTrigger(topic=org.topic, subscription="orders", replay_store="table"))
    assert event["first_replay_id"] == ids[2].hex()
    nothing_stored = SalesforceEventTrigger(topic=org.topic, replay_store="table", start_from="earliest")
    assert (await fired_once(nothing_stored))["first_replay_id"] == ids[0].hex()


async def test_expired_replay_id_fires_replay_lost(org: SharedOrg) -> None:
    ids = publish(org, 3)
    org.fault("expire", topic=org.topic, replay_id=ids[0].hex())
    event = await fired_once(SalesforceEventTrigger(topic=org.topic, after=ids[0].hex()))
    assert event["reason"] == "replay_lost"


async def test_cancelled_trigger_leaves_no_stream(org: SharedOrg) -> None:
    trigger = SalesforceEventTrigger(topic=org.topic)
    waiting = asyncio.create_task(fired_once(trigger))
    await until(org.open_streams, "the stream")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await trigger.cleanup()
    await until(lambda: not org.open_streams(), "the stream to end")


async def test_unknown_topic_and_refused_credentials_fire_an_error(org: SharedOrg, monkeypatch: Any) -> None:
    event = await fired_once(SalesforceEventTrigger(topic="/event/Missing__e"))
    assert (event["reason"], event["error"]) == ("error", "TopicNotFoundError")
    assert "/event/Missing__e" in event["message"]
    set_connection(monkeypatch, "refused", **org.airflow_connection(consumer_secret="wrong-secret"))
    event = await fired_once(SalesforceEventTrigger(topic=org.topic, salesforce_conn_id="refused"))
    assert (event["reason"], event["error"]) == ("error", "AuthenticationError")
    assert "wrong-secret" not in str(event)


async def test_many_triggers_share_one_connection_and_one_login(org: SharedOrg) -> None:
    waiting = [asyncio.create_task(fired_once(SalesforceEventTrigger(topic=org.topic))) for _ in range(50)]
    await until(lambda: org.open_streams() == 50, "the streams")
    await asyncio.to_thread(publish, org, 1)
    assert {event["event_count"] for event in await asyncio.gather(*waiting)} == {1}
    assert org.logins == 1


if SHARED_STREAMS:
    from airflow.triggers.shared_stream import SharedStreamManager

    from airflow_provider_sfstream.triggers import topic_watch

watches = pytest.mark.skipif(not SHARED_STREAMS, reason="this Airflow has no shared streams")


class AssetState:
    """State of one asset, stored in a dict."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def aget(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = value

    def keep(self, org: SharedOrg, replay_id: bytes, fired_at: datetime | None = None) -> None:
        fired_at = fired_at or datetime.now(UTC)
        self.values[topic_watch.STATE_KEY] = {
            "org_id": org.org_id,
            "replay_id": replay_id.hex(),
            "fired_at": fired_at.isoformat(),
        }

    @property
    def position(self) -> str | None:
        saved = self.values.get(topic_watch.STATE_KEY)
        return None if saved is None else str(saved["replay_id"])


class Triggerer:
    """Runner of watchers on Airflow's shared stream manager, like the triggerer. It stores events if ``stores``."""

    def __init__(self, topic: str, ack_timeout: float = 300.0) -> None:
        self.topic = topic
        self.manager = SharedStreamManager(ack_timeout=ack_timeout)
        self.stores = True
        self.fired: dict[int, list[dict[str, Any]]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ids = count(1)

    def start(self, state: AssetState, **arguments: Any) -> int:
        trigger = SalesforceEventTrigger(**{"topic": self.topic, "min_interval": 0.2, **arguments})
        trigger.asset_state_store = state
        trigger_id = next(self._ids)
        self.fired[trigger_id] = []
        self._tasks[trigger_id] = asyncio.create_task(self._run(trigger_id, trigger))
        return trigger_id

    async def _run(self, trigger_id: int, trigger: SalesforceEventTrigger) -> None:
        key = trigger.shared_stream_key()
        raw = self.manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
        try:
            async for event in trigger.filter_shared_stream(raw):
                seq = self.manager.bind_pending_event(trigger_id=trigger_id, key=key)
                self.fired[trigger_id].append(event.payload)
                if self.stores and seq is not None:
                    asyncio.get_running_loop().call_later(0.05, self.manager.confirm_persisted, [seq])
        finally:
            await self.manager.unsubscribe(trigger_id, key)

    async def ended(self, trigger_id: int) -> BaseException | None:
        """Wait until a watcher ends without being cancelled, and return its exception."""
        async with asyncio.timeout(60):
            await asyncio.wait([self._tasks[trigger_id]])
        return self._tasks[trigger_id].exception()

    async def stop(self) -> None:
        """Cancel all watchers, as the triggerer does when it stops."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.manager.stop_all()

    def event_count(self, trigger_id: int) -> int:
        return sum(event["event_count"] for event in self.fired[trigger_id])


@pytest.fixture
async def triggerer(org: SharedOrg) -> AsyncIterator[Triggerer]:
    made = Triggerer(org.topic)
    yield made
    await made.stop()
    assert topic_watch._groups == {}


@watches
async def test_watch_fires_started_then_events_and_stores_its_position(org: SharedOrg, triggerer: Triggerer) -> None:
    state = AssetState()
    watcher = triggerer.start(state)
    await until(lambda: org.open_streams() and triggerer.fired[watcher], "the start")
    assert [event["reason"] for event in triggerer.fired[watcher]] == ["started"]
    assert state.position is None
    ids = await asyncio.to_thread(publish, org, 5)
    await until(lambda: state.position == ids[-1].hex(), "the position")
    assert triggerer.event_count(watcher) == 5


@watches
async def test_watch_resumes_after_its_position_without_duplicates(org: SharedOrg) -> None:
    state, ids = AssetState(), publish(org, 5)
    state.keep(org, ids[1])
    first = Triggerer(org.topic)
    watcher = first.start(state)
    await until(lambda: state.position == ids[-1].hex(), "the position")
    assert first.event_count(watcher) == 3
    await first.stop()
    await until(lambda: not org.open_streams(), "the end of the watch")

    more = await asyncio.to_thread(publish, org, 2)
    second = Triggerer(org.topic)
    watcher = second.start(state)
    await until(lambda: state.position == more[-1].hex(), "the position")
    assert [(event["reason"], event["event_count"]) for event in second.fired[watcher]] == [("events", 2)]
    await second.stop()


@watches
async def test_event_that_airflow_did_not_store_is_fired_again(org: SharedOrg) -> None:
    state, ids = AssetState(), publish(org, 3)
    state.keep(org, ids[0])
    triggerer = Triggerer(org.topic, ack_timeout=0.5)
    triggerer.stores = False
    watcher = triggerer.start(state)
    assert await triggerer.ended(watcher) is not None
    assert triggerer.event_count(watcher) == 2
    assert state.position == ids[0].hex()
    await triggerer.stop()
    patient = Triggerer(org.topic)
    again = patient.start(state)  # Airflow also restarts a watcher that ended
    await until(lambda: state.position == ids[-1].hex(), "the position")
    assert patient.event_count(again) == 2
    await patient.stop()


@watches
async def test_watchers_share_one_subscription_and_a_late_watcher_fires_started(
    org: SharedOrg, triggerer: Triggerer
) -> None:
    states = [AssetState(), AssetState(), AssetState()]
    org.knobs(keepalive_seconds=0.2)
    one = triggerer.start(states[0], subscription="one")
    two = triggerer.start(states[1], subscription="two")
    # Every later event is counted once. An earlier event would be part of the start.
    await until(lambda: states[0].position and states[1].position, "the start, confirmed")
    await asyncio.to_thread(publish, org, 1)
    late = triggerer.start(states[2], subscription="late")
    await until(lambda: triggerer.fired[late], "the late watcher")
    assert triggerer.fired[late][0]["reason"] == "started"
    ids = await asyncio.to_thread(publish, org, 4)
    await until(lambda: all(state.position == ids[-1].hex() for state in states), "the positions")
    assert triggerer.event_count(one) == triggerer.event_count(two) == 5
    assert org.open_streams() == 1
    assert subscribe_calls(org) == 1


@watches
async def test_burst_of_events_fires_a_few_times(org: SharedOrg, triggerer: Triggerer) -> None:
    state = AssetState()
    watcher = triggerer.start(state, min_interval=2)
    await until(lambda: org.open_streams() and triggerer.fired[watcher], "the start")
    began = time.monotonic()
    _, last = await asyncio.to_thread(org.publish_many, org.topic, 10_000, {"Number__c": "{n}"})
    await until(lambda: state.position == last.hex(), "the position")
    assert triggerer.event_count(watcher) == 10_000
    assert len(triggerer.fired[watcher]) <= 4 + (time.monotonic() - began) / 2


@watches
async def test_watch_continues_after_refused_credentials(
    org: SharedOrg, triggerer: Triggerer, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(topic_watch, "FIRST_PAUSE", 0.1)
    org.admin("POST", "/oauth", {"fail_next": 1_000_000, "fail_error": "invalid_client"})
    state = AssetState()
    watcher = triggerer.start(state)
    await until(lambda: caplog.text.count("invalid_client") >= 2, "two refused logins")
    assert triggerer.fired[watcher] == []
    org.admin("POST", "/oauth", {"fail_next": 0})
    await until(lambda: org.open_streams(), "the stream")
    ids = await asyncio.to_thread(publish, org, 2)
    await until(lambda: state.position == ids[-1].hex(), "the position")
    assert org.client_secret not in caplog.text


@watches
async def test_watch_uses_changed_credentials_of_the_connection(
    org: SharedOrg, triggerer: Triggerer, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(topic_watch, "FIRST_PAUSE", 0.1)
    state = AssetState()
    triggerer.start(state)
    await until(lambda: org.open_streams(), "the stream")
    secret = org.rotate_consumer_secret()
    await asyncio.to_thread(org.revoke)
    await until(lambda: caplog.text.count("invalid_client") >= 2, "two refused logins")

    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(consumer_secret=secret))
    await until(lambda: org.open_streams(), "the stream again")
    ids = await asyncio.to_thread(publish, org, 2)
    await until(lambda: state.position == ids[-1].hex(), "the position")
    assert secret not in caplog.text


@watches
async def test_expired_watch_position_fires_replay_lost_and_the_watch_continues(
    org: SharedOrg, triggerer: Triggerer
) -> None:
    state, ids = AssetState(), publish(org, 2)
    org.knobs(keepalive_seconds=0.2)
    org.fault("expire", topic=org.topic, replay_id=ids[0].hex())
    state.keep(org, ids[0])
    watcher = triggerer.start(state)
    await until(lambda: len(triggerer.fired[watcher]) >= 2, "two wake-ups")
    assert [event["reason"] for event in triggerer.fired[watcher]][:2] == ["replay_lost", "started"]
    more = await asyncio.to_thread(publish, org, 1)
    await until(lambda: state.position == more[-1].hex(), "the position")


@watches
async def test_position_of_an_idle_topic_advances_and_does_not_expire(org: SharedOrg, triggerer: Triggerer) -> None:
    state, ids = AssetState(), publish(org, 2)
    org.knobs(keepalive_seconds=0.2)
    org.define("Other__e", Number__c="double")
    state.keep(org, ids[1])
    watcher = triggerer.start(state)
    await until(org.open_streams, "the stream")
    await asyncio.to_thread(org.publish, "/event/Other__e", [{"Number__c": 1.0}])
    await until(lambda: state.position not in (None, ids[1].hex()), "a confirmed position")
    assert triggerer.fired[watcher] == []


@watches
async def test_topic_that_is_idle_for_a_day_fires_once(org: SharedOrg, triggerer: Triggerer) -> None:
    state, ids = AssetState(), publish(org, 2)
    org.knobs(keepalive_seconds=0.2)
    state.keep(org, ids[1], datetime.now(UTC) - timedelta(hours=25))
    watcher = triggerer.start(state)
    await until(lambda: triggerer.fired[watcher], "the wake-up")
    assert [event["reason"] for event in triggerer.fired[watcher]] == ["quiet"]


@watches
async def test_topic_that_cannot_be_watched_fires_once_until_it_exists(
    org: SharedOrg, triggerer: Triggerer, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(topic_watch, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(topic_watch, "LONGEST_PAUSE", 0.1)
    state = AssetState()
    watcher = triggerer.start(state, topic="/event/Later__e")
    await until(lambda: caplog.text.count("retrying the watch") >= 4, "attempts")
    assert [event["reason"] for event in triggerer.fired[watcher]] == ["started"]
    await asyncio.to_thread(org.define, "Later__e", Number__c="double")
    await until(lambda: [each for each in org.streams() if each["topic"] == "/event/Later__e"], "the watch")
    ids = await asyncio.to_thread(org.publish, "/event/Later__e", [{"Number__c": 1.0}])
    await until(lambda: state.position == ids[-1].hex(), "the position")
    assert triggerer.event_count(watcher) == 1
