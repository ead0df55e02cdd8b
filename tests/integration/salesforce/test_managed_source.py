"""Drains and watches of managed subscriptions against a real server, with and without faults."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    SubscriptionBusyError,
    SubscriptionStoppedError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub import subscription
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.replay_ids import is_later
from airflow_provider_sfstream.streams.cursor import Cursor
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.drain.result import DrainResult
from airflow_provider_sfstream.streams.managed import committer
from airflow_provider_sfstream.streams.managed.source import AsyncManagedSource, ManagedSource
from airflow_provider_sfstream.streams.watch.arrivals import arrivals
from tests.support.clients import async_pubsub_client, pubsub_client, token_provider
from tests.support.localorg import LocalOrg, wait_until
from tests.support.network import Network

SECONDS = 60.0
COMMITTED = StartFrom.COMMITTED
ORDERS = ManagedSubscription("Orders")
EVENTS = 2_000


@pytest.fixture
def client(org: LocalOrg) -> Iterator[PubSubClient]:
    with pubsub_client(org) as client:
        yield client


@pytest.fixture
def orders(org: LocalOrg, topic: str) -> str:
    """Create the managed subscription ``Orders`` of a new topic with 2,000 events, without a commit."""
    org.knobs(keepalive_seconds=0.2)
    org.publish_many(topic, EVENTS, {"Amount__c": "{n}"})
    org.managed_subscription("Orders", topic)
    return topic


class Sink:
    """Sink that collects replay IDs. ``landed`` has those of recorded windows."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.landed: list[bytes] = []

    def append(self, batch: EventBatch) -> None:
        self.got += batch.replay_ids

    def land(self) -> None:
        self.landed += self.got
        self.got = []

    def is_landed(self, replay_id: bytes) -> bool:
        return replay_id in self.landed


def wait_for_place(org: LocalOrg) -> None:
    """Wait until the org has detected the end of the previous stream. Until then it refuses another stream as busy."""
    wait_until(lambda: org.managed_subscriptions()["Orders"]["slot"] == "free", what="the end of the previous stream")


def managed(org: LocalOrg, client: PubSubClient, **options: Any) -> ManagedSource:
    """Return a source whose pauses end when the org has detected the end of the previous stream."""
    return ManagedSource(client, ORDERS, **{"sleep": lambda _: wait_for_place(org), **options})


class Time:
    """Clock that advances only by ``sleep``."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def run(
    source: ManagedSource, sink: Sink, topic: str, after: bytes | StartFrom = COMMITTED, **limits: Any
) -> DrainResult:
    limits = {"idle_timeout": 1.0, **limits}
    return Drain(source, sink, topic, after, DrainLimits(**limits), sleep=lambda _: time.sleep(0.02)).run()


def committed(org: LocalOrg) -> bytes | None:
    position: bytes | None = org.managed_subscriptions()["Orders"]["committed"]
    return position


def recorded(org: LocalOrg, topic: str) -> list[bytes]:
    return [event["replay_id"] for event in org.record(topic)]


class TestDrain:
    @pytest.mark.parametrize(
        "fault",
        [
            {"how": "reset"},
            {"how": "end"},
            {"code": "service.unavailable", "status": "INTERNAL"},
            {"code": "service.auth.error", "status": "UNAUTHENTICATED"},
        ],
        ids=lambda fault: str(fault.get("how") or fault["code"]),
    )
    def test_drain_resumes_a_stream_that_breaks_repeatedly(
        self, org: LocalOrg, client: PubSubClient, orders: str, fault: dict[str, str]
    ) -> None:
        sink, drops = Sink(), iter((300, 700, 701, 1_500))
        org.fault("drop_every", every=next(drops), times=1, topic=orders, **fault)

        class Dropping(Sink):
            def append(self, batch: EventBatch) -> None:
                sink.append(batch)
                if not org.admin("GET", "/faults")["drops"] and (every := next(drops, None)):
                    org.fault("drop_every", every=every, times=1, topic=orders, **fault)

        with managed(org, client) as source:
            result = run(source, Dropping(), orders)
            assert sink.got == recorded(org, orders)
            assert (result.stop_reason, result.gap) == (StopReason.IDLE, None)
            assert result.reconnects >= 2
            assert committed(org) is None
            assert result.through is not None
            source.commit(result.through, SECONDS)
            assert committed(org) == result.through

    def test_consecutive_drains_receive_every_event_once(
        self, org: LocalOrg, client: PubSubClient, orders: str
    ) -> None:
        before = org.admin("GET", "/org")["delivered"]
        sink = Sink()
        for _ in range(4):
            with managed(org, client) as source:
                result = run(source, sink, orders, max_events=500)
                assert result.through is not None
                source.commit(result.through, SECONDS)
        assert sink.got == recorded(org, orders)
        assert org.admin("GET", "/org")["delivered"] == before + EVENTS

    @pytest.mark.parametrize("commit_fault", ["managed_lose_commit", "managed_lose_acknowledgement"])
    def test_commit_is_repeated_when_its_stream_breaks(
        self, org: LocalOrg, client: PubSubClient, orders: str, commit_fault: str
    ) -> None:
        sink = Sink()
        with managed(org, client) as source:
            result = run(source, sink, orders, max_events=150)
            org.fault(commit_fault, developer_name="Orders")
            source.commit(result.through or b"", SECONDS)
            assert committed(org) == result.through == recorded(org, orders)[149]
            run(source, sink, orders, result.through or b"")
        assert sink.got == recorded(org, orders)

    def test_commit_is_repeated_when_an_open_stream_does_not_acknowledge_it(
        self, org: LocalOrg, client: PubSubClient, orders: str
    ) -> None:
        # The source waits for half of the commit timeout, 0.6 seconds, on this stream. The clock does not advance, so
        # the second half is long enough.
        with managed(org, client, clock=lambda: 0.0, random=lambda: 0.0) as source:
            result = run(source, Sink(), orders, max_events=150)
            org.fault("managed_lose_acknowledgement", developer_name="Orders", how="none")
            source.commit(result.through or b"", 1.2)
        assert committed(org) == result.through

    def test_commit_works_after_landing_outlasted_the_idle_stream(
        self, org: LocalOrg, client: PubSubClient, orders: str
    ) -> None:
        """Salesforce's limit of 60 seconds for a stream without a request is 0.2 seconds here."""
        org.knobs(client_idle_seconds=0.2)
        sink = Sink()
        with managed(org, client) as source:
            result = run(source, sink, orders, max_events=150)
            wait_until(lambda: source.stream is None, what="the end of the stream")
            source.commit(result.through or b"", SECONDS)
        assert committed(org) == result.through == sink.got[-1]

    @pytest.mark.parametrize("is_carried_out", [True, False])
    def test_run_after_a_kill_around_the_commit_skips_landed_events(
        self, org: LocalOrg, client: PubSubClient, orders: str, is_carried_out: bool
    ) -> None:
        sink = Sink()
        with managed(org, client) as source:
            through = run(source, sink, orders, max_events=777).through or b""
            if is_carried_out:
                source.commit(through)
        sink.land()
        with managed(org, client, is_landed=sink.is_landed) as source:
            result = run(source, sink, orders, through)
            assert sink.landed + sink.got == recorded(org, orders)
            source.commit(result.through or b"", SECONDS)
        with managed(org, client, is_landed=sink.is_landed) as source:
            assert run(source, sink, orders, result.through or b"").event_count == 0

    def test_commit_can_be_repeated_without_a_drain(self, org: LocalOrg, client: PubSubClient, orders: str) -> None:
        sink = Sink()
        with managed(org, client) as source:
            through = run(source, sink, orders, max_events=777).through or b""
        sink.land()
        for is_landed in (sink.is_landed, None):
            with managed(org, client, is_landed=is_landed) as source:
                source.commit(through, SECONDS)
            assert committed(org) == through

    def test_commit_is_not_reported_while_salesforce_seeks_the_landed_events(
        self, org: LocalOrg, client: PubSubClient, orders: str
    ) -> None:
        sink = Sink()
        with managed(org, client) as source:
            through = run(source, sink, orders, max_events=777).through or b""
        sink.land()
        org.fault("seek", topic=orders, responses=3)
        with managed(org, client, is_landed=sink.is_landed) as source:
            assert not source.commit(through, SECONDS)
        assert committed(org) is None
        org.clear_faults()
        with managed(org, client, is_landed=sink.is_landed) as source:
            assert source.commit(through, SECONDS)
        assert committed(org) == through

    def test_idle_subscription_from_latest_misses_no_event(
        self, org: LocalOrg, client: PubSubClient, orders: str
    ) -> None:
        org.managed_subscription("Orders", orders, default_replay="LATEST")
        sink = Sink()
        with managed(org, client) as source:
            confirmed = run(source, sink, orders).through
            assert confirmed is not None
            assert committed(org) == confirmed
        org.publish_many(orders, 10, {"Amount__c": "{n}"})
        with managed(org, client) as source:
            run(source, sink, orders, confirmed)
        assert sink.got == recorded(org, orders)[EVENTS:]

    def test_commit_of_another_consumer_during_a_drain_loses_no_event(
        self, org: LocalOrg, client: PubSubClient, orders: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        events = recorded(org, orders)
        sink = Sink()
        with managed(org, client) as source, pubsub_client(org) as other:
            responses = source.subscribe(orders, COMMITTED, limit=None, idle_timeout=SECONDS)
            first = next(responses)
            assert first is not None
            source.close()
            with managed(org, other) as other_source:
                other_source.commit(events[999], SECONDS)
            result = run(source, sink, orders, first.replay_ids[-1])
            assert first.replay_ids + sink.got == events
            assert "another client commits on it" in caplog.text
            assert source.commit(result.through or b"", SECONDS)
        assert committed(org) == result.through

    @pytest.mark.parametrize(
        ("state", "expected"), [("STOP", SubscriptionStoppedError), (None, TopicNotFoundError)], ids=["stop", "delete"]
    )
    def test_subscription_stopped_or_deleted_during_a_drain_raises(
        self, org: LocalOrg, client: PubSubClient, orders: str, state: str | None, expected: type[Exception]
    ) -> None:
        class Stopping(Sink):
            def append(self, batch: EventBatch) -> None:
                if self.got:
                    return
                super().append(batch)
                if state:
                    org.managed_subscription("Orders", orders, state=state)
                else:
                    record_id = org.managed_subscriptions()["Orders"]["id"]
                    org.rest("DELETE", f"/tooling/sobjects/ManagedEventSubscription/{record_id}")

        with managed(org, client) as source, pytest.raises(expected, match="Orders"):
            run(source, Stopping(), orders, confirm_timeout=60, wait_for_confirmation=True)

    def test_revoked_token_is_renewed_during_the_drain_and_before_the_commit(
        self, org: LocalOrg, client: PubSubClient, orders: str
    ) -> None:
        class Revoking(Sink):
            def append(self, batch: EventBatch) -> None:
                if not self.got:
                    org.revoke()
                super().append(batch)

        sink = Revoking()
        with managed(org, client) as source:
            result = run(source, sink, orders)
            assert sink.got == recorded(org, orders)
            org.revoke()
            source.commit(result.through or b"", SECONDS)
        assert committed(org) is not None

    def test_events_received_before_a_stream_broke_are_committed(
        self, org: LocalOrg, client: PubSubClient, orders: str
    ) -> None:
        """The new stream finds no further event, so that it cannot compare its events with those of the topic."""

        class RevokingAtTheEnd(Sink):
            def append(self, batch: EventBatch) -> None:
                super().append(batch)
                if len(self.got) == EVENTS:
                    org.revoke()

        org.knobs(keepalive_seconds=60)
        sink = RevokingAtTheEnd()
        with managed(org, client) as source:
            result = run(source, sink, orders, idle_timeout=0.2)
            assert (result.reconnects, sink.got) == (1, recorded(org, orders))
            assert source.commit(result.through or b"", SECONDS)
        position = committed(org)
        assert position is not None
        assert not is_later(sink.got[-1], position)

    def test_drain_outlasts_the_time_limit_of_streams_without_commits(
        self, org: LocalOrg, client: PubSubClient, orders: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Salesforce's limit of 1,800 seconds is 0.6 seconds here, in which less than half of the events are read.

        On a busy machine the comparison before the commit takes longer too: its limit of 1,500 seconds is 0.5 here.
        """
        org.knobs(managed_commit_seconds=0.6, batch_events=50)
        monkeypatch.setattr(subscription, "MOST_EVENTS_WAITING", 100)
        monkeypatch.setattr(committer, "_COMPARISON_SECONDS", 0.5)

        class Slow(Sink):
            def append(self, batch: EventBatch) -> None:
                super().append(batch)
                time.sleep(0.03)

        sink = Slow()
        with managed(org, client) as source:
            result = run(source, sink, orders, idle_timeout=0.2)
            assert sink.got == recorded(org, orders)
            assert result.reconnects >= 1
            source.commit(result.through or b"", SECONDS)

    def test_drains_under_random_faults_land_every_event_once(
        self, org: LocalOrg, client: PubSubClient, orders: str
    ) -> None:
        """The runs have dropped streams, refused and lost commits, and kills. Events are landed once, in order."""
        rng = random.Random(6)
        sink, through = Sink(), None
        for _ in range(30):
            org.clear_faults()
            for _ in range(rng.randrange(3)):
                org.fault("drop_every", every=rng.randrange(1, 400), times=1, topic=orders, how="reset")
            fault = rng.choice(["managed_refuse_commit", "managed_lose_commit", "managed_lose_acknowledgement", None])
            if fault:
                org.fault(fault, developer_name="Orders", after=rng.randrange(2))
            with managed(org, client, is_landed=sink.is_landed) as source:
                result = run(source, sink, orders, through or COMMITTED, max_events=rng.randrange(1, 200))
                if rng.random() < 0.2:
                    sink.got = []  # killed before the manifest is written
                    continue
                sink.land()
                through = result.through or through
                if through is not None and rng.random() < 0.7:
                    source.commit(through, SECONDS)
        assert sink.landed == recorded(org, orders)[: len(sink.landed)]
        assert len(sink.landed) > 500


class TestExclusiveUse:
    def test_drain_waits_until_another_stream_ends(self, org: LocalOrg, client: PubSubClient, orders: str) -> None:
        org.knobs(managed_release_seconds=600)
        with pubsub_client(org) as other:
            holder = other.managed_subscribe(ORDERS, limit=1, idle_timeout=SECONDS)
            next(holder)
            seen: list[str] = []

            def sleep(_: float) -> None:
                seen.append(org.managed_subscriptions()["Orders"]["slot"])
                if seen[-1] == "active":
                    holder.close()
                    wait_until(lambda: org.managed_subscriptions()["Orders"]["slot"] == "held", what="the stream's end")
                else:
                    org.knobs(managed_release_seconds=0)

            with managed(org, client, sleep=sleep) as source:
                assert run(source, Sink(), orders, max_events=10).event_count == 10
            assert seen == ["active", "held"], "Salesforce treats the subscription as busy for a while after the end"

    def test_second_drain_of_a_subscription_is_refused(self, org: LocalOrg, client: PubSubClient, orders: str) -> None:
        with managed(org, client) as source, pubsub_client(org) as other:
            assert next(source.subscribe(orders, COMMITTED, limit=None, idle_timeout=SECONDS)) is not None
            fake = Time()
            with (
                managed(org, other, busy_timeout=5, sleep=fake.sleep, clock=fake.clock) as second,
                pytest.raises(SubscriptionBusyError, match="has held the slot for"),
            ):
                list(second.subscribe(orders, COMMITTED, limit=1, idle_timeout=SECONDS))

    def test_drain_waits_for_a_half_open_connection_and_names_it_on_timeout(self, org: LocalOrg, orders: str) -> None:
        """After a cut without a close, Salesforce treats the subscription as busy: for 0.5 seconds, then for 600."""
        org.knobs(managed_half_open_seconds=0.5)
        with Network(org.grpc_port) as network:
            lost = PubSubClient(token_provider(org), endpoint=f"http://{network.target}")
            stream = lost.managed_subscribe(ORDERS, limit=10, idle_timeout=SECONDS)
            assert next(stream) is not None
            cut(org, network)
            with pubsub_client(org) as client:
                with managed(org, client, busy_timeout=30) as source:
                    assert run(source, Sink(), orders, max_events=100).event_count == 100
                    org.knobs(managed_half_open_seconds=600)
                    org.fault("managed_half_open", developer_name="Orders")
                fake = Time()
                with (
                    managed(org, client, busy_timeout=60, sleep=fake.sleep, clock=fake.clock) as source,
                    pytest.raises(SubscriptionBusyError, match=r"15 minutes.*busy_timeout"),
                ):
                    run(source, Sink(), orders)
                assert 50 < fake.seconds <= 60
            lost.close()


def cut(org: LocalOrg, network: Network) -> None:
    """Cut the network, and make the org treat the connection of the client as half open."""
    assert network.forget() > 0
    org.fault("managed_half_open", developer_name="Orders")


class TestWatch:
    async def test_watch_yields_every_event_once_over_faults_and_commits_nothing(
        self, org: LocalOrg, orders: str
    ) -> None:
        drops = iter((100, 333, 1_200))
        org.fault("drop_every", every=next(drops), times=1, topic=orders, how="reset")
        got: list[bytes] = []

        async def sleep(_: float) -> None:
            await asyncio.to_thread(wait_for_place, org)
            if (every := next(drops, None)) is not None:
                await asyncio.to_thread(org.fault, "drop_every", every=every, times=1, topic=orders, how="reset")

        async with async_pubsub_client(org) as client:
            source = AsyncManagedSource(client, ORDERS)
            async with aclosing(watched(source, orders, EVENTS, sleep)) as stream:
                async for batch in stream:
                    got += batch.replay_ids
            assert source.subscription == ORDERS
        assert got == recorded(org, orders)
        assert committed(org) is None

    async def test_watch_skips_events_that_another_client_committed(
        self, org: LocalOrg, client: PubSubClient, orders: str
    ) -> None:
        events = recorded(org, orders)
        async with async_pubsub_client(org) as async_client:
            source = AsyncManagedSource(async_client, ORDERS)
            async with aclosing(source.subscribe(orders, COMMITTED, limit=100, silence_timeout=SECONDS)) as stream:
                assert [replay_id async for batch in stream for replay_id in batch.replay_ids] == events[:100]

            def commit() -> None:
                with managed(org, client) as drained:
                    drained.commit(events[499], SECONDS)

            await asyncio.to_thread(commit)
            await asyncio.to_thread(wait_for_place, org)
            async with aclosing(source.subscribe(orders, events[99], limit=100, silence_timeout=SECONDS)) as stream:
                assert [replay_id async for batch in stream for replay_id in batch.replay_ids] == events[500:600]

    async def test_limit_of_a_watch_counts_yielded_events(self, org: LocalOrg, orders: str) -> None:
        events = recorded(org, orders)
        async with async_pubsub_client(org) as client:
            source = AsyncManagedSource(client, ORDERS)
            for start, limit, expected in ((COMMITTED, 130, events[:130]), (events[129], 5, events[130:135])):
                before = org.admin("GET", "/org")["delivered"]
                got: list[bytes] = []
                await asyncio.to_thread(wait_for_place, org)
                async with aclosing(source.subscribe(orders, start, limit=limit, silence_timeout=SECONDS)) as stream:
                    async for batch in stream:
                        got += batch.replay_ids
                assert got == expected
                delivered = org.admin("GET", "/org")["delivered"] - before
                assert delivered == len(events[: events.index(expected[-1]) + 1]), (
                    "no event after the last one is requested"
                )

    async def test_idle_watch_resumes_after_a_fault_without_duplicates(self, org: LocalOrg, orders: str) -> None:
        got: list[bytes] = []

        async def sleep(_: float) -> None:
            await asyncio.to_thread(wait_for_place, org)

        async with async_pubsub_client(org) as client:
            source = AsyncManagedSource(client, ORDERS)
            async with aclosing(watched(source, orders, EVENTS + 10, sleep)) as stream:
                async for batch in stream:
                    got += batch.replay_ids
                    if len(got) == EVENTS and not len(batch):
                        break
                fault = org.fault
                await asyncio.to_thread(fault, "drop_now", topic=orders, how="reset")
                await asyncio.to_thread(org.publish_many, orders, 10, {"Amount__c": "{n}"})
                async for batch in stream:
                    got += batch.replay_ids
        assert got == recorded(org, orders)


def watched(source: AsyncManagedSource, topic: str, limit: int, sleep: Callable[[float], Any]) -> Any:
    return arrivals(
        source,
        topic,
        Cursor(COMMITTED, time.monotonic),
        limit=limit,
        silence_timeout=SECONDS,
        clock=time.monotonic,
        sleep=sleep,
        random=random.random,
    )


def test_source_detects_the_end_of_its_stream(org: LocalOrg, client: PubSubClient, orders: str) -> None:
    with managed(org, client) as source:
        run(source, Sink(), orders, max_events=10)
        assert source.stream is not None
        org.fault("drop_now", topic=orders, how="reset")
        wait_until(lambda: source.stream is None, what="the end of the stream")
