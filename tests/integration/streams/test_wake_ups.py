"""Wake-ups of a watch on a local org with faults: the reported events are compared with the org's record."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import AuthenticationError, TopicNotFoundError
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.network.settings import Timers
from airflow_provider_sfstream.salesforce.pubsub.async_client import AsyncPubSubClient
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.streams.watch.wake_ups import Watch
from tests.support.behind_network import OrgBehindNetwork
from tests.support.clients import async_pubsub_client, async_streaming_client
from tests.support.localorg import LocalOrg, reset_org, wait_until
from tests.support.network import Network

SECONDS = 60.0
"""Timeout of each wait in these tests."""
EARLIEST, LATEST = StartFrom.EARLIEST, StartFrom.LATEST
EVENTS, STARTED, REPLAY_LOST, QUIET = WakeUpReason
_numbers = itertools.count()


async def shorter(seconds: float) -> None:
    await asyncio.sleep(seconds / 10)


SHORT_PAUSES = {"sleep": shorter}
HURRIED = Timers(keepalive_seconds=1.0, keepalive_timeout_seconds=0.5, connect_timeout_seconds=2.0)


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        yield org


@pytest.fixture
def org(running_org: LocalOrg) -> Iterator[LocalOrg]:
    running_org.knobs(keepalive_seconds=0.2)
    yield running_org
    reset_org(running_org)


@pytest.fixture
def topic(org: LocalOrg) -> str:
    """Create a new, empty topic."""
    return str(org.define(f"Order{next(_numbers)}__e", Amount__c="double", Note__c="string")["name"])


@pytest.fixture
async def client(org: LocalOrg) -> AsyncIterator[AsyncPubSubClient]:
    async with async_pubsub_client(org) as client:
        yield client


class ReportedWakeUps:
    """Wake-ups that a watch has reported, with methods that wait for more."""

    def __init__(self) -> None:
        self.wake_ups: list[WakeUp] = []
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def event_count(self) -> int:
        return sum(wake_up.event_count for wake_up in self.wake_ups)

    def with_reason(self, reason: WakeUpReason) -> list[WakeUp]:
        return [wake_up for wake_up in self.wake_ups if wake_up.reason is reason]

    async def wait_for(self, condition: Callable[[], Any]) -> None:
        """Wait for ``condition``; raise the error that ended the watch, if any."""
        async with asyncio.timeout(SECONDS):
            while not condition():
                assert self.task is not None
                if self.task.done():
                    self.task.result()
                self.changed.clear()
                await self.changed.wait()

    async def wait_until_pinned(self) -> None:
        await self.wait_for(lambda: [wake_up for wake_up in self.with_reason(STARTED) if wake_up.through])


@asynccontextmanager
async def watching(
    client: AsyncPubSubClient, topic: str, after: bytes | StartFrom, conditions: WakeUpConditions, **options: Any
) -> AsyncIterator[ReportedWakeUps]:
    """Watch a topic in a task that runs until the end of the ``async with`` block."""
    watched = ReportedWakeUps()

    async def watch() -> None:
        try:
            async with aclosing(
                Watch(client, topic, after, conditions, **SHORT_PAUSES, **options).wake_ups()
            ) as all_of_them:
                async for wake_up in all_of_them:
                    watched.wake_ups.append(wake_up)
                    watched.changed.set()
        finally:
            watched.changed.set()

    watched.task = asyncio.create_task(watch())
    try:
        yield watched
    finally:
        watched.task.cancel()
        await asyncio.wait({watched.task})


def assert_reported_once(watched: ReportedWakeUps, record: list[bytes]) -> None:
    """Assert that each event of ``record`` was reported once, in order, and no position covers an unreported event."""
    place = 0
    for wake_up in watched.with_reason(EVENTS):
        assert wake_up.event_count > 0
        assert wake_up.first_replay_id == record[place]
        place += wake_up.event_count
        # An empty response may have moved the position past the last event, to a replay ID of no event.
        assert wake_up.through == record[place - 1] or wake_up.through not in record
    assert place == len(record)


def record_of(org: LocalOrg, topic: str) -> list[bytes]:
    return [event["replay_id"] for event in org.record(topic)]


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"Amount__c": float(number)} for number in range(count)]


async def wait_for(condition: Callable[[], Any], what: str) -> None:
    """Wait for a condition of the org without blocking the event loop."""
    await asyncio.to_thread(wait_until, condition, what=what)


def open_streams(org: LocalOrg, topic: str) -> int:
    return sum(stream["topic"] == topic for stream in org.streams())


def ended_streams(org: LocalOrg, topic: str) -> int:
    return sum(call["detail"].get("topic") == topic for call in org.requests("grpc", "Subscribe"))


# -- faults --------------------------------------------------------------------------------------------------------

FAULTS: dict[str, dict[str, Any]] = {
    "with a status": {"how": "error"},
    "with the network's status": {"how": "error", "code": "", "status": "UNAVAILABLE"},
    "without a status": {"how": "reset"},
    "with status OK": {"how": "end"},
}


@pytest.mark.parametrize("ending", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("min_interval", [0, 0.3])
async def test_events_of_dropped_streams_are_reported_once(org, client, topic, ending, min_interval):
    org.publish_many(topic, 600, {"Amount__c": 1.5})
    org.fault("drop_every", every=60, topic=topic, **ending)
    async with watching(client, topic, EARLIEST, WakeUpConditions(min_interval=min_interval)) as watched:
        await watched.wait_for(lambda: watched.event_count >= 600)
    assert_reported_once(watched, record_of(org, topic))
    assert ended_streams(org, topic) >= 10


async def test_a_repeatedly_failing_call_is_retried_and_logged_as_a_warning(org, client, topic, caplog):
    published = org.publish(topic, numbered(3))
    org.fault("fail_calls", rpc="Subscribe", times=6, code="service.unavailable")
    async with watching(client, topic, published[0], WakeUpConditions()) as watched:
        await watched.wait_for(lambda: watched.event_count >= 2)
    assert_reported_once(watched, published[1:])
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [topic in line for line in warnings] == [True, True, True]
    assert "unreachable for" in warnings[0]


async def test_revoked_tokens_are_renewed(org, client, topic):
    async with watching(client, topic, LATEST, WakeUpConditions()) as watched:
        await watched.wait_until_pinned()
        for expected in (2, 4, 6):
            org.revoke()
            org.publish(topic, numbered(2))
            await watched.wait_for(lambda expected=expected: watched.event_count >= expected)
    assert_reported_once(watched, record_of(org, topic))


async def test_a_login_refused_by_a_busy_host_is_retried(org, client, topic):
    published = org.publish(topic, numbered(2))
    org.admin("POST", "/oauth", {"fail_next": 3})
    async with asyncio.timeout(SECONDS):
        wake_up = await Watch(client, topic, EARLIEST, WakeUpConditions(min_events=2), **SHORT_PAUSES).first_wake_up()
    assert wake_up == WakeUp(EVENTS, published[0], 2, published[1])


async def test_a_silent_stream_is_detected_and_the_topic_is_subscribed_again(org, client, topic):
    published = org.publish(topic, numbered(1))
    org.fault("silence", topic=topic)
    async with watching(client, topic, EARLIEST, WakeUpConditions(), silence_timeout=0.6) as watched:
        await wait_for(lambda: ended_streams(org, topic) >= 2, "a third subscription")
        assert watched.wake_ups == []
        org.clear_faults()
        await watched.wait_for(lambda: watched.event_count >= 1)
    assert_reported_once(watched, published)


@pytest.mark.parametrize("opened", [async_pubsub_client, async_streaming_client], ids=["pubsub", "streaming"])
@pytest.mark.parametrize("fault", [Network.silence, Network.forget, Network.cut], ids=["silent", "half-open", "cut"])
async def test_a_network_outage_loses_no_wake_up(org, topic, opened, fault):
    org.knobs(cometd_connect_seconds=0.3)
    is_grpc = opened is async_pubsub_client
    options = {"timers": HURRIED} if is_grpc else {"connection_timeout": 1.0}
    with OrgBehindNetwork.of(org) as behind:
        network = behind.grpc if is_grpc else behind.http
        async with (
            opened(behind, **options) as client,
            watching(client, topic, EARLIEST, WakeUpConditions(), silence_timeout=1.0) as watched,
        ):
            org.publish(topic, numbered(1))
            await watched.wait_for(lambda: watched.event_count >= 1)
            network.unreachable()
            fault(network)
            org.publish(topic, numbered(3))
            if fault is Network.silence:  # the network holds back a response or, between two polls, a request
                ways = [way for each in network.connections for way in each.halves]
                await wait_for(lambda: any(way.waiting for way in ways), "something that waits")
            assert watched.event_count == 1
            network.heal()
            await watched.wait_for(lambda: watched.event_count >= 4)
    assert_reported_once(
        watched, [event["replay_id"] for event in org.record(topic, **({} if is_grpc else {"api": "streaming"}))]
    )


@pytest.mark.parametrize("ending", ["restart", "kill"])
async def test_a_restarted_org_is_watched_again_without_a_loss(tmp_path, ending):
    with LocalOrg.running(tmp_path / "org") as org:
        org.knobs(keepalive_seconds=0.2)
        topic = str(org.define("Order__e", Amount__c="double")["name"])
        async with (
            async_pubsub_client(org) as client,
            watching(client, topic, LATEST, WakeUpConditions()) as watched,
        ):
            await watched.wait_until_pinned()
            org.publish(topic, numbered(5))
            await watched.wait_for(lambda: watched.event_count >= 5)
            if ending == "kill":
                org.kill()
            else:
                await asyncio.to_thread(org.stop)
            await asyncio.to_thread(org.start)
            org.publish(topic, numbered(7))
            await watched.wait_for(lambda: watched.event_count >= 12)
        assert_reported_once(watched, record_of(org, topic))


# -- positions -----------------------------------------------------------------------------------------------------


async def test_an_expired_replay_id_is_reported_and_the_watch_continues(org, client, topic):
    published = org.publish(topic, numbered(10))
    org.fault("expire", topic=topic, replay_id=published[4].hex())
    async with asyncio.timeout(SECONDS):
        assert await Watch(client, topic, published[4], WakeUpConditions()).first_wake_up() == WakeUp(REPLAY_LOST)
    async with watching(client, topic, published[4], WakeUpConditions()) as watched:
        await watched.wait_until_pinned()
        later = org.publish(topic, numbered(3))
        await watched.wait_for(lambda: watched.event_count >= 3)
    assert_reported_once(watched, later)
    assert [wake_up.reason for wake_up in watched.wake_ups if wake_up.reason is not QUIET][:2] == [REPLAY_LOST, STARTED]


async def test_a_stream_reset_during_a_watch_is_reported_as_a_loss(org, client, topic):
    async with watching(client, topic, LATEST, WakeUpConditions()) as watched:
        await watched.wait_until_pinned()
        org.publish(topic, numbered(3))
        await watched.wait_for(lambda: watched.event_count >= 3)
        org.fault("reset_stream", topic=topic)
        await watched.wait_for(lambda: watched.with_reason(REPLAY_LOST) and watched.wake_ups[-1].reason is QUIET)
        org.publish(topic, numbered(2))
        await watched.wait_for(lambda: watched.event_count >= 5)
    assert_reported_once(watched, record_of(org, topic))
    assert [wake_up.reason for wake_up in watched.wake_ups if wake_up.reason not in (QUIET, EVENTS)] == [
        *[STARTED, STARTED],
        *[REPLAY_LOST, STARTED],
    ]


async def test_a_watch_renews_the_position_of_a_quiet_topic(org, client, topic):
    published = org.publish(topic, numbered(3))
    async with watching(client, topic, EARLIEST, WakeUpConditions()) as watched:
        await watched.wait_for(lambda: watched.with_reason(QUIET))
    assert_reported_once(watched, published)
    position = watched.with_reason(QUIET)[-1].through
    org.knobs(clock_offset_seconds=3 * 24 * 3600 - 600)
    org.fault("expire_before", topic=topic, replay_id=position.hex())
    later = org.publish(topic, numbered(2))
    async with watching(client, topic, position, WakeUpConditions()) as again:
        await again.wait_for(lambda: again.event_count >= 2)
    assert_reported_once(again, later)


async def test_a_watch_restarted_at_through_misses_no_event(org, client, topic):
    org.publish_many(topic, 500, {"Amount__c": 1.5})
    record = record_of(org, topic)
    after: bytes | StartFrom = EARLIEST
    all_reported = ReportedWakeUps()
    while all_reported.event_count < len(record):
        async with (
            asyncio.timeout(SECONDS),
            aclosing(Watch(client, topic, after, WakeUpConditions()).wake_ups()) as watched,
        ):
            wake_up = await anext(watched)
        all_reported.wake_ups.append(wake_up)
        after = wake_up.through or after
    assert_reported_once(all_reported, record)


# -- few wake-ups, few events --------------------------------------------------------------------------------------


async def test_a_burst_of_ten_thousand_events_causes_few_wake_ups(org, client, topic):
    async with watching(client, topic, LATEST, WakeUpConditions(min_interval=1)) as watched:
        await watched.wait_until_pinned()
        await asyncio.to_thread(org.publish_many, topic, 10_000, {"Amount__c": 1.5, "Note__c": "order {n}"})
        await watched.wait_for(lambda: watched.event_count >= 10_000)
    assert_reported_once(watched, record_of(org, topic))
    assert len(watched.with_reason(EVENTS)) < 100


async def test_no_more_events_are_delivered_than_min_events(org, client, topic):
    published = org.publish(topic, numbered(50))
    before = org.admin("GET", "/org")["delivered"]
    org.fault("drop_every", every=3, topic=topic)
    async with asyncio.timeout(SECONDS):
        wake_up = await Watch(
            client, topic, published[0], WakeUpConditions(min_events=7), **SHORT_PAUSES
        ).first_wake_up()
    assert wake_up == WakeUp(EVENTS, published[1], 7, published[7])
    assert org.admin("GET", "/org")["delivered"] - before == 7


async def test_max_wait_is_measured_from_the_event_time(org, client, topic):
    published = org.publish(topic, [{"CreatedDate": "2020-01-01T00:00:00Z", "Amount__c": 1.0}, {"Amount__c": 2.0}])
    async with asyncio.timeout(SECONDS):
        wake_up = await Watch(
            client, topic, EARLIEST, WakeUpConditions(min_events=1_000, max_wait=24 * 3600)
        ).first_wake_up()
    assert (wake_up.reason, wake_up.first_replay_id) == (EVENTS, published[0])
    assert 1 <= wake_up.event_count <= 2


async def test_max_wait_is_measured_from_the_arrival_without_a_schema(org, client, topic):
    published = org.publish(topic, [{"CreatedDate": "2020-01-01T00:00:00Z", "Amount__c": 1.0}])
    org.fault("fail_calls", rpc="GetSchema", times=10, code="service.unavailable")
    async with asyncio.timeout(SECONDS):
        wake_up = await Watch(client, topic, EARLIEST, WakeUpConditions(min_events=1_000, max_wait=0.2)).first_wake_up()
    assert wake_up == WakeUp(EVENTS, published[0], 1, wake_up.through)


# -- endings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["once", "for ever"])
async def test_a_permanently_revoked_login_raises_an_error(org, client, topic, how):
    async def wait() -> None:
        if how == "once":
            await Watch(client, topic, LATEST, WakeUpConditions(), **SHORT_PAUSES).first_wake_up()
        async for _ in Watch(client, topic, LATEST, WakeUpConditions(), **SHORT_PAUSES).wake_ups():
            pass

    waiting = asyncio.create_task(wait())
    await wait_for(lambda: open_streams(org, topic), "a subscription")
    org.admin("POST", "/oauth", {"fail_next": 1_000_000, "fail_error": "invalid_client"})
    org.revoke()
    async with asyncio.timeout(SECONDS):
        with pytest.raises(AuthenticationError, match="invalid_client") as raised:
            await waiting
    assert not raised.value.retriable
    assert org.client_secret not in str(raised.value)


async def test_a_watch_of_a_missing_topic_raises_an_error(org, client):
    async with asyncio.timeout(SECONDS):
        with pytest.raises(TopicNotFoundError, match="/event/Missing__e"):
            await Watch(client, "/event/Missing__e", EARLIEST, WakeUpConditions()).first_wake_up()


async def test_fifty_cancelled_watches_leave_no_task_and_no_stream(org, client, topic, caplog):
    before = asyncio.all_tasks()
    waiting = [asyncio.create_task(Watch(client, topic, LATEST, WakeUpConditions()).first_wake_up()) for _ in range(50)]
    await wait_for(lambda: open_streams(org, topic) == 50, "fifty subscriptions")
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await wait_for(lambda: open_streams(org, topic) == 0, "the end of the subscriptions")
    assert all(task.cancelled() for task in waiting)
    async with asyncio.timeout(SECONDS):  # gRPC ends its own tasks a moment later
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0.02)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
