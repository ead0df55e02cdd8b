"""Watch of a topic for asset watchers: saved positions and fired events. Without a server and without Airflow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("airflow.triggers.shared_stream", reason="this Airflow has no shared streams")

from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome

from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpReason
from airflow_provider_sfstream.triggers import topic_watch
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger
from airflow_provider_sfstream.triggers.topic_watch import STATE_KEY, TopicWatch, WakeUpNotStoredError, _WakeUpState

TOPIC = "/event/Order__e"
ORG = "00D000000000001EAA"
STREAM = Stream(ORG, "pubsub", TOPIC)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
STORED, FAILED = AdvanceOutcome(acked=1, failed=0), AdvanceOutcome(acked=0, failed=1)


class AssetState:
    """State of an asset, stored in a dict."""

    def __init__(self, error: Exception | None = None) -> None:
        self.values: dict[str, Any] = {}
        self.error = error

    async def aget(self, key: str, default: Any = None) -> Any:
        if self.error:
            raise self.error
        return self.values.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        if self.error:
            raise self.error
        self.values[key] = value


def watcher(state: Any = None, **arguments: Any) -> SalesforceEventTrigger:
    trigger = SalesforceEventTrigger(**{"topic": TOPIC, **arguments})
    trigger.asset_state_store = state
    return trigger


class RunningWatcher:
    """Running watcher that receives its shared stream from the test."""

    def __init__(self, trigger: SalesforceEventTrigger) -> None:
        self.raw: asyncio.Queue[Any] = asyncio.Queue()
        self.fired: list[dict[str, Any]] = []
        self.task = asyncio.create_task(self._run(trigger))

    async def _run(self, trigger: SalesforceEventTrigger) -> None:
        async for event in trigger.filter_shared_stream(self._stream()):
            self.fired.append(event.payload)

    async def _stream(self) -> AsyncIterator[Any]:
        while True:
            yield await self.raw.get()

    async def stop(self) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task


async def started(trigger: SalesforceEventTrigger) -> RunningWatcher:
    running = RunningWatcher(trigger)
    await asyncio.sleep(0)
    return running


def state_of(wake_up: WakeUp, fires: bool = True) -> _WakeUpState:
    return _WakeUpState(STREAM, wake_up, fires, NOON)


def item(replay_id: bytes | None, outcome: AdvanceOutcome = STORED) -> AdvanceItem:
    return AdvanceItem(state_of(WakeUp(WakeUpReason.EVENTS, b"\1", 1, replay_id)), outcome)


def saved(replay_id: bytes) -> dict[str, str]:
    return {"org_id": ORG, "replay_id": replay_id.hex(), "fired_at": NOON.isoformat()}


SAVED = saved(b"\1")


@pytest.fixture(autouse=True)
def assert_no_watch_remains() -> Any:
    yield
    assert topic_watch._groups == {}


async def test_the_position_advances_to_the_last_wake_up_that_was_stored() -> None:
    state = AssetState()
    running = await started(watcher(state))
    watch = TopicWatch(watcher())
    await watch.advance([item(None), item(b"\1"), item(b"\2"), item(None)])
    assert state.values == {STATE_KEY: saved(b"\2")}
    await running.stop()


async def test_position_stops_before_a_wake_up_that_was_not_stored() -> None:
    state = AssetState()
    running = await started(watcher(state))
    with pytest.raises(WakeUpNotStoredError, match="no event is lost"):
        await TopicWatch(watcher()).advance([item(b"\1"), item(b"\2", FAILED), item(b"\3")])
    assert state.values == {STATE_KEY: saved(b"\1")}
    assert await TopicWatch(watcher())._start(STREAM) == b"\1"
    await running.stop()


async def test_wake_up_without_any_watcher_does_not_advance_the_position() -> None:
    state = AssetState()
    running = await started(watcher(state))
    with pytest.raises(WakeUpNotStoredError):
        await TopicWatch(watcher()).advance([item(b"\1", AdvanceOutcome(acked=0, failed=0))])
    assert state.values == {}
    await running.stop()


async def test_position_is_saved_for_each_asset_even_if_one_fails(caplog: Any) -> None:
    states = [AssetState(), AssetState(ValueError("Task has 2 concrete inlets")), AssetState()]
    running_watchers = [await started(watcher(state, subscription=str(n))) for n, state in enumerate(states)]
    await TopicWatch(watcher()).advance([item(b"\1")])
    assert [state.values for state in states] == [{STATE_KEY: saved(b"\1")}, {}, {STATE_KEY: saved(b"\1")}]
    assert "the watch position was not saved (Task has 2 concrete inlets)" in caplog.text
    for running in running_watchers:
        await running.stop()


@pytest.mark.parametrize(
    "value",
    [
        None,
        {**SAVED, "org_id": "00DOTHER"},
        {**SAVED, "replay_id": "x"},
        {**SAVED, "fired_at": "noon"},
        {"org_id": ORG, "replay_id": "01"},
        7,
        {},
    ],
)
async def test_invalid_saved_position_or_one_of_another_org_is_not_used(value: Any) -> None:
    state = AssetState()
    if value is not None:
        state.values[STATE_KEY] = value
    running = await started(watcher(state))
    assert await TopicWatch(watcher(after="0a"))._start(STREAM) == b"\x0a"
    await running.stop()


async def test_watch_without_asynchronous_asset_states_has_no_saved_position() -> None:
    running = await started(watcher(object()))
    watch = TopicWatch(watcher(after="0a"))
    assert await watch._start(STREAM) == b"\x0a"
    await watch.advance([item(b"\1")])
    await running.stop()


async def test_a_watcher_fires_for_each_wake_up_but_not_for_a_quiet_topic() -> None:
    running = await started(watcher(subscription="mine"))
    for each in (
        state_of(WakeUp(WakeUpReason.EVENTS, b"\1", 3, b"\3")),
        state_of(WakeUp(WakeUpReason.QUIET, through=b"\3"), fires=False),
        state_of(WakeUp(WakeUpReason.REPLAY_LOST)),
    ):
        running.raw.put_nowait(each)
    while len(running.fired) < 2:
        await asyncio.sleep(0)
    await running.stop()
    stream = {"org_id": ORG, "api": "pubsub", "topic": TOPIC, "subscription": "mine"}
    assert running.fired == [
        {"reason": "events", "stream": stream, "first_replay_id": "01", "through": "03", "event_count": 3},
        {"reason": "replay_lost", "stream": stream, "first_replay_id": None, "through": None, "event_count": 0},
    ]


async def test_watcher_that_joins_a_running_watch_fires_once_with_reason_started() -> None:
    first = await started(watcher(subscription="first"))
    watch = TopicWatch(watcher())
    watch._group.org_id = ORG
    second = await started(watcher(subscription="second"))
    await asyncio.sleep(0)
    assert first.fired == []
    assert [event["reason"] for event in second.fired] == ["started"]
    assert second.fired[0]["stream"]["subscription"] == "second"
    await first.stop()
    await second.stop()


async def test_quiet_topic_fires_once_a_day() -> None:
    time = [NOON]
    watch = TopicWatch(watcher(), now=lambda: time[0])
    quiet = WakeUp(WakeUpReason.QUIET, through=b"\1")
    fired = []
    for hour in range(1, 61):
        time[0] = NOON + timedelta(hours=hour)
        event = WakeUp(WakeUpReason.EVENTS, b"\2", 1, b"\2") if hour == 10 else quiet
        if watch._state_after(STREAM, event).fires:
            fired.append((hour, event.reason))
    assert fired == [(10, "events"), (34, "quiet"), (58, "quiet")]


async def test_quiet_push_topic_fires_twice_within_its_retention() -> None:
    time = [NOON]
    watch = TopicWatch(watcher(topic="/topic/Orders"), now=lambda: time[0])
    fired = []
    for hour in range(1, 30):
        time[0] = NOON + timedelta(hours=hour)
        if watch._state_after(STREAM, WakeUp(WakeUpReason.QUIET)).fires:
            fired.append(hour)
    assert fired == [12, 24]


async def test_restart_does_not_reset_the_quiet_time() -> None:
    state = AssetState()
    state.values[STATE_KEY] = saved(b"\1")
    running = await started(watcher(state))
    watch = TopicWatch(watcher(), now=lambda: NOON + timedelta(hours=24))
    assert await watch._start(STREAM) == b"\1"
    assert watch._state_after(STREAM, WakeUp(WakeUpReason.QUIET, through=b"\1")).fires
    await running.stop()


async def test_repeated_starts_of_a_failing_watch_fire_once() -> None:
    watch = TopicWatch(watcher())
    attempt = WakeUp(WakeUpReason.STARTED)
    assert [watch._state_after(STREAM, attempt).fires for _ in range(3)] == [True, False, False]
    assert watch._state_after(STREAM, WakeUp(WakeUpReason.STARTED, through=b"\1")).fires, (
        "the topic can be watched again"
    )
    assert await watch._start(STREAM) == b"\1"


async def test_lost_position_fires_once_and_is_not_used_again() -> None:
    state = AssetState()
    state.values[STATE_KEY] = saved(b"\1")
    running = await started(watcher(state))
    watch = TopicWatch(watcher())
    assert await watch._start(STREAM) == b"\1"
    assert watch._state_after(STREAM, WakeUp(WakeUpReason.REPLAY_LOST, b"\2", 5)).fires
    assert await watch._start(STREAM) is StartFrom.LATEST
    assert not watch._state_after(STREAM, WakeUp(WakeUpReason.STARTED)).fires
    await running.stop()
