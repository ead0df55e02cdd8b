"""The watch behind asset watchers: what it saves when, and what a watcher is told. No server and no Airflow."""

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
from airflow_provider_sfstream.triggers.topic_watch import STATE_KEY, TopicWatch, WakeUpNotStoredError, _Told

TOPIC = "/event/Order__e"
ORG = "00D000000000001EAA"
STREAM = Stream(ORG, "pubsub", TOPIC)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
STORED, FAILED = AdvanceOutcome(acked=1, failed=0), AdvanceOutcome(acked=0, failed=1)


class AssetState:
    """An asset's state, kept in a dict."""

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


class Fed:
    """A watcher that was started, and is fed by hand."""

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


async def started(trigger: SalesforceEventTrigger) -> Fed:
    fed = Fed(trigger)
    await asyncio.sleep(0)
    return fed


def told(wake_up: WakeUp, fires: bool = True) -> _Told:
    return _Told(STREAM, wake_up, fires, NOON)


def item(replay_id: bytes | None, outcome: AdvanceOutcome = STORED) -> AdvanceItem:
    return AdvanceItem(told(WakeUp(WakeUpReason.EVENTS, b"\1", 1, replay_id)), outcome)


def saved(replay_id: bytes) -> dict[str, str]:
    return {"org_id": ORG, "replay_id": replay_id.hex(), "fired_at": NOON.isoformat()}


SAVED = saved(b"\1")


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Any:
    yield
    assert topic_watch._groups == {}


async def test_the_position_advances_to_the_last_wake_up_that_was_stored() -> None:
    state = AssetState()
    fed = await started(watcher(state))
    watch = TopicWatch(watcher())
    await watch.advance([item(None), item(b"\1"), item(b"\2"), item(None)])
    assert state.values == {STATE_KEY: saved(b"\2")}
    await fed.stop()


async def test_it_stops_before_a_wake_up_that_was_not_stored_and_begins_again_there() -> None:
    state = AssetState()
    fed = await started(watcher(state))
    with pytest.raises(WakeUpNotStoredError, match="nothing is lost"):
        await TopicWatch(watcher()).advance([item(b"\1"), item(b"\2", FAILED), item(b"\3")])
    assert state.values == {STATE_KEY: saved(b"\1")}
    assert await TopicWatch(watcher())._start(STREAM) == b"\1"
    await fed.stop()


async def test_a_wake_up_that_nobody_was_told_of_does_not_count() -> None:
    state = AssetState()
    fed = await started(watcher(state))
    with pytest.raises(WakeUpNotStoredError):
        await TopicWatch(watcher()).advance([item(b"\1", AdvanceOutcome(acked=0, failed=0))])
    assert state.values == {}
    await fed.stop()


async def test_every_watched_asset_gets_the_position_and_one_that_fails_keeps_none_from_it(caplog: Any) -> None:
    states = [AssetState(), AssetState(ValueError("Task has 2 concrete inlets")), AssetState()]
    feds = [await started(watcher(state, subscription=str(n))) for n, state in enumerate(states)]
    await TopicWatch(watcher()).advance([item(b"\1")])
    assert [state.values for state in states] == [{STATE_KEY: saved(b"\1")}, {}, {STATE_KEY: saved(b"\1")}]
    assert "the watch position was not saved (Task has 2 concrete inlets)" in caplog.text
    for fed in feds:
        await fed.stop()


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
async def test_a_position_of_another_org_or_a_broken_one_is_not_used(value: Any) -> None:
    state = AssetState()
    if value is not None:
        state.values[STATE_KEY] = value
    fed = await started(watcher(state))
    assert await TopicWatch(watcher(replay_id="0a"))._start(STREAM) == b"\x0a"
    await fed.stop()


async def test_an_older_airflow_without_states_for_event_loops_watches_without_a_position() -> None:
    fed = await started(watcher(object()))
    watch = TopicWatch(watcher(replay_id="0a"))
    assert await watch._start(STREAM) == b"\x0a"
    await watch.advance([item(b"\1")])
    await fed.stop()


async def test_a_watcher_fires_for_each_wake_up_but_not_for_a_quiet_topic() -> None:
    fed = await started(watcher(subscription="mine"))
    for each in (
        told(WakeUp(WakeUpReason.EVENTS, b"\1", 3, b"\3")),
        told(WakeUp(WakeUpReason.QUIET, through=b"\3"), fires=False),
        told(WakeUp(WakeUpReason.REPLAY_LOST)),
    ):
        fed.raw.put_nowait(each)
    while len(fed.fired) < 2:
        await asyncio.sleep(0)
    await fed.stop()
    stream = {"org_id": ORG, "api": "pubsub", "topic": TOPIC, "subscription": "mine"}
    assert fed.fired == [
        {"reason": "events", "stream": stream, "first_replay_id": "01", "through": "03", "event_count": 3},
        {"reason": "replay_lost", "stream": stream, "first_replay_id": None, "through": None, "event_count": 0},
    ]


async def test_a_watcher_that_joins_a_running_watch_is_told_once_that_there_may_be_something() -> None:
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


async def test_a_topic_that_is_quiet_for_a_day_wakes_its_dags_once() -> None:
    time = [NOON]
    watch = TopicWatch(watcher(), now=lambda: time[0])
    quiet = WakeUp(WakeUpReason.QUIET, through=b"\1")
    fired = []
    for hour in range(1, 61):
        time[0] = NOON + timedelta(hours=hour)
        event = WakeUp(WakeUpReason.EVENTS, b"\2", 1, b"\2") if hour == 10 else quiet
        if watch._tell(STREAM, event).fires:
            fired.append((hour, event.reason))
    assert fired == [(10, "events"), (34, "quiet"), (58, "quiet")]


async def test_a_push_topic_wakes_its_dags_before_they_can_lose_their_place() -> None:
    time = [NOON]
    watch = TopicWatch(watcher(topic="/topic/Orders"), now=lambda: time[0])
    fired = []
    for hour in range(1, 30):
        time[0] = NOON + timedelta(hours=hour)
        if watch._tell(STREAM, WakeUp(WakeUpReason.QUIET)).fires:
            fired.append(hour)
    assert fired == [12, 24]


async def test_a_restart_does_not_begin_the_quiet_day_anew() -> None:
    state = AssetState()
    state.values[STATE_KEY] = saved(b"\1")
    fed = await started(watcher(state))
    watch = TopicWatch(watcher(), now=lambda: NOON + timedelta(hours=24))
    assert await watch._start(STREAM) == b"\1"
    assert watch._tell(STREAM, WakeUp(WakeUpReason.QUIET, through=b"\1")).fires
    await fed.stop()


async def test_attempts_at_a_topic_that_cannot_be_watched_wake_nobody_again() -> None:
    watch = TopicWatch(watcher())
    attempt = WakeUp(WakeUpReason.STARTED)
    assert [watch._tell(STREAM, attempt).fires for _ in range(3)] == [True, False, False]
    assert watch._tell(STREAM, WakeUp(WakeUpReason.STARTED, through=b"\1")).fires, "the cause was mended"
    assert await watch._start(STREAM) == b"\1"


async def test_a_lost_position_is_told_once_and_not_tried_again() -> None:
    state = AssetState()
    state.values[STATE_KEY] = saved(b"\1")
    fed = await started(watcher(state))
    watch = TopicWatch(watcher())
    assert await watch._start(STREAM) == b"\1"
    assert watch._tell(STREAM, WakeUp(WakeUpReason.REPLAY_LOST, b"\2", 5)).fires
    assert await watch._start(STREAM) is StartFrom.LATEST
    assert not watch._tell(STREAM, WakeUp(WakeUpReason.STARTED)).fires
    await fed.stop()
