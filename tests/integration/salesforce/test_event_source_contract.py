"""Contract of event sources, against a real server: events, limits, silence and invalid arguments."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    InvalidReplayIdError,
    InvalidTopicError,
    ServiceUnavailableError,
)
from airflow_provider_sfstream.salesforce.events import StartFrom
from tests.support.event_source_adapter import Stream
from tests.support.event_sources import EventSourceAdapter, sources
from tests.support.localorg import LocalOrg
from tests.support.readers import (
    first_events,
    next_events,
    read,
    read_through_faults,
    replay_ids,
    wait_for,
    wait_until_unsubscribed,
)


class TestEvents:
    async def test_every_event_once_in_order(self, org: LocalOrg, source: EventSourceAdapter, topic: str) -> None:
        org.publish_many(topic, 2_500, {"Amount__c": "{n}", "Note__c": "note {n}"})
        batches = await read(source, topic, count=2_500)
        record = source.record(topic)
        assert replay_ids(batches) == [event["replay_id"] for event in record]
        assert [p for batch in batches for p in batch.payloads] == [event["payload"] for event in record]
        assert [i for batch in batches for i in batch.event_ids] == [event["event_id"] for event in record]
        assert [s for batch in batches for s in batch.schema_ids] == [event["schema_id"] for event in record]
        for batch in batches:
            assert len(batch) <= 1_000
            assert batch.latest_replay_id
            assert batch.received_at > 1_600_000_000 * 10**9
        await wait_until_unsubscribed(source, topic)

    async def test_resume_is_strictly_after_a_replay_id(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish_many(topic, 300, {"Amount__c": "{n}"})
        every = source.replay_ids(topic)
        assert replay_ids(await read(source, topic, count=300)) == every
        for index in (0, 99, 298):
            assert replay_ids(await read(source, topic, every[index], count=299 - index)) == every[index + 1 :]

    @sources(lambda kind: not kind.is_managed)
    async def test_subscription_can_start_at_a_replay_id_that_another_client_read(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish_many(topic, 3, {"Amount__c": "{n}"})
        every = source.replay_ids(topic)
        assert replay_ids(await read(source, topic, every[0], count=2)) == every[1:]

    async def test_subscription_from_latest_yields_only_new_events(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        async with aclosing(source.subscribe(topic, StartFrom.LATEST)) as stream:
            waiting = asyncio.create_task(next_events(stream))
            await wait_for(lambda: source.open_streams(topic) == 1, "the subscription")
            org.publish(topic, [{"Amount__c": 2.0}])
            assert (await waiting).replay_ids == source.replay_ids(topic)[1:]
            for number in (3.0, 4.0):
                org.publish(topic, [{"Amount__c": number}])
                assert (await next_events(stream)).replay_ids == source.replay_ids(topic)[-1:]

    async def test_no_more_events_than_the_limit_are_delivered(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish_many(topic, 1_300, {"Amount__c": "{n}"})
        every = source.replay_ids(topic)
        for limit in (1, 50, 99, 100, 101, 150, 250, 1_234):
            before = org.admin("GET", "/org")["delivered"]
            assert replay_ids(await read(source, topic, count=limit)) == every[:limit]
            await wait_until_unsubscribed(source, topic)
            if source.rpc is not None:
                delivered = org.admin("GET", "/org")["delivered"] - before
                assert delivered == limit, "each delivered event counts towards the allocation"

    async def test_all_events_are_read_from_small_responses(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        source.answer_in_parts(7)
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        batches = await read(source, topic, count=1_000)
        assert replay_ids(batches) == source.replay_ids(topic)
        if source.rpc is not None:
            assert max(map(len, batches)) == 7

    @sources(lambda kind: not kind.is_managed)
    async def test_several_subscriptions_of_one_client(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        results = await asyncio.gather(*(read(source, topic, count=1_000) for _ in range(3)))
        assert [replay_ids(batches) for batches in results] == [source.replay_ids(topic)] * 3


class TestSilence:
    @sources(lambda kind: kind.rpc is not None)
    async def test_a_keepalive_is_an_empty_batch_with_a_position(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        [last] = org.publish(topic, [{"Amount__c": 1.0}])
        await first_events(source, topic)
        org.knobs(keepalive_seconds=0.1)
        await source.wait_until_free()
        # A managed subscription receives that event again, or is compared with an ordinary subscription for one event.
        owed = (99, 1) if source.is_managed else (100,)
        async with aclosing(source.subscribe(topic, last)) as stream:
            for _ in range(3):
                batch = await anext(stream)
                while (
                    source.is_managed and batch is not None and not batch.pending
                ):  # the source left out an event received again
                    batch = await anext(stream)
                assert batch is not None
                assert len(batch) == 0
                assert batch.latest_replay_id
                assert batch.pending in owed, (
                    "a keepalive does not reduce the number of pending events, and no more are requested"
                )

    @sources(lambda kind: not kind.is_asyncio)
    async def test_blocking_source_yields_none_after_each_idle_timeout(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        [last] = (await first_events(source, topic)).replay_ids
        for start in (last, StartFrom.LATEST):
            got: list[Any] = []
            async with aclosing(source.subscribe(topic, start, seconds=0.05)) as stream:
                while got.count(None) < 4:
                    got.append(await anext(stream))
            assert [batch for batch in got if batch is not None and len(batch)] == []

    @sources(lambda kind: kind.is_asyncio)
    async def test_asyncio_source_treats_silence_as_a_lost_connection(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.fault("silence", topic=topic)
        org.publish(topic, [{"Amount__c": 1.0}])
        with pytest.raises(ServiceUnavailableError, match=r"no response for 0.2 seconds.*resume") as caught:
            await first_events(source, topic, seconds=0.2)
        assert name_of(topic) in str(caught.value)
        await wait_until_unsubscribed(source, topic)

    @sources(lambda kind: kind.is_asyncio)
    async def test_asyncio_source_treats_silence_after_events_as_a_lost_connection(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        stream = source.subscribe(topic, seconds=4.0)
        assert (await next_events(stream)).replay_ids == source.replay_ids(topic)
        org.fault("silence", topic=topic)
        with pytest.raises(ServiceUnavailableError, match="no response"):
            await next_events(stream)

    @sources(lambda kind: not kind.is_managed)
    async def test_prefetch_is_limited_while_the_consumer_is_busy(
        self,
        org: LocalOrg,
        source_kind: type[EventSourceAdapter],
        open_source: Any,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("airflow_provider_sfstream.salesforce.pubsub.subscription.MOST_EVENTS_WAITING", 100)
        source: EventSourceAdapter = open_source(**source_kind.low_prefetch_options)
        source.answer_in_parts(100)
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        async with aclosing(source.subscribe(topic)) as stream:
            got = (await next_events(stream)).replay_ids
            least, most = (len(got) + ahead for ahead in source.prefetch_range)
            await wait_for(lambda: source.delivered(topic)[0] >= least, "reading ahead")
            await read(
                source, topic, count=1_000
            )  # while another subscription reads everything, this one had time to read more
            assert min(source.delivered(topic)) <= most  # the other subscription may still be open
            while len(got) < 1_000:
                got += (await next_events(stream)).replay_ids
        assert got == source.replay_ids(topic)

    async def test_consumer_can_resume_after_the_server_ended_an_idle_stream(
        self,
        org: LocalOrg,
        source_kind: type[EventSourceAdapter],
        open_source: Any,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Salesforce ends a stream without pending events 60 seconds after its last request, here 0.3 seconds."""
        monkeypatch.setattr("airflow_provider_sfstream.salesforce.pubsub.subscription.MOST_EVENTS_WAITING", 100)
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        source: EventSourceAdapter = open_source(**source_kind.low_prefetch_options)
        for end in source.idle_ends:
            source.end_idle_streams(end)
            await source.wait_until_free()
            stream, got = await begun(source, topic)
            await wait_for(lambda: not source.open_streams(topic), "the server's closing")
            with pytest.raises(ServiceUnavailableError, match=source.idle_end_error):  # noqa: PT012 - events received earlier are yielded first
                while True:
                    got += (await next_events(stream)).replay_ids
            assert 0 < len(got) < 1_000
            org.reset_knobs()
            assert await read_through_faults(source, topic, got, count=1_000) == source.replay_ids(topic)


async def begun(source: EventSourceAdapter, topic: str) -> tuple[Stream, list[bytes]]:
    """Return a stream and its first events. Subscribe again while the server ends the stream before its first event."""
    for _ in range(100):
        stream = source.subscribe(topic)
        with suppress(ServiceUnavailableError):
            return stream, (await next_events(stream)).replay_ids
    raise AssertionError(f"100 streams of {topic} received no event")


class TestArguments:
    async def test_subscribe_sends_no_request_before_the_first_iteration(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        before = len(org.requests())
        async with aclosing(source.subscribe(topic)):
            assert len(org.requests()) == before

    async def test_invalid_arguments_are_refused_by_subscribe(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        cases: list[tuple[dict[str, Any], type[Exception]]] = [({"limit": 0}, ConfigurationError)]
        cases += [({"seconds": seconds}, ConfigurationError) for seconds in (0, -1.0, float("nan"))]
        names = ("/event/../x", "/event/", "Order__e", *source.unsupported_topics)
        cases += [({"topic": name}, InvalidTopicError) for name in names]
        if not source.is_managed:
            cases += [({"after": after}, InvalidReplayIdError) for after in (b"", source.invalid_replay_id)]
            cases += [({"after": StartFrom.COMMITTED}, ConfigurationError)]
        before = len(org.requests())
        for arguments, expected in cases:
            with pytest.raises(expected, match="Nothing was read") as caught:
                source.subscribe(**{"topic": topic, **arguments})
            assert ("seconds" in arguments) == ("_timeout=" in str(caught.value)), arguments
        assert len(org.requests()) == before


def name_of(topic: str) -> str:
    """Return the part of the topic name that the errors of every source contain."""
    return topic.removeprefix("/event/").removesuffix("__e")
