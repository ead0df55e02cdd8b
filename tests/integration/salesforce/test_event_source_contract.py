"""What every event source promises, against a real server: events, limits, silence, and arguments that are refused."""

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
from tests.support.readers import ended, first, next_events, read, replay_ids, resumed, until


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
        await ended(source, topic)

    async def test_resume_is_strictly_after_a_replay_id(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish_many(topic, 300, {"Amount__c": "{n}"})
        every = source.replay_ids(topic)
        assert replay_ids(await read(source, topic, count=300)) == every
        for index in (0, 99, 298):
            assert replay_ids(await read(source, topic, every[index], count=299 - index)) == every[index + 1 :]

    @sources(lambda kind: not kind.is_managed)
    async def test_a_replay_id_that_another_client_read(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish_many(topic, 3, {"Amount__c": "{n}"})
        every = source.replay_ids(topic)
        assert replay_ids(await read(source, topic, every[0], count=2)) == every[1:]

    async def test_latest_begins_with_what_comes_next(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        async with aclosing(source.subscribe(topic, StartFrom.LATEST)) as stream:
            waiting = asyncio.create_task(next_events(stream))
            await until(lambda: source.open_streams(topic) == 1, "the subscription")
            org.publish(topic, [{"Amount__c": 2.0}])
            assert (await waiting).replay_ids == source.replay_ids(topic)[1:]
            for number in (3.0, 4.0):
                org.publish(topic, [{"Amount__c": number}])
                assert (await next_events(stream)).replay_ids == source.replay_ids(topic)[-1:]

    async def test_never_more_than_the_limit(self, org: LocalOrg, source: EventSourceAdapter, topic: str) -> None:
        org.publish_many(topic, 1_300, {"Amount__c": "{n}"})
        every = source.replay_ids(topic)
        for limit in (1, 50, 99, 100, 101, 150, 250, 1_234):
            before = org.admin("GET", "/org")["delivered"]
            assert replay_ids(await read(source, topic, count=limit)) == every[:limit]
            await ended(source, topic)
            if source.rpc is not None:
                delivered = org.admin("GET", "/org")["delivered"] - before
                assert delivered == limit, "an event that nobody asked for costs allocation"

    async def test_small_answers_fill_the_pipe_too(self, org: LocalOrg, source: EventSourceAdapter, topic: str) -> None:
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
        await first(source, topic)
        org.knobs(keepalive_seconds=0.1)
        await source.ready()
        # A managed subscription begins with that event once more, or is compared with an ordinary one for one event.
        owed = (99, 1) if source.is_managed else (100,)
        async with aclosing(source.subscribe(topic, last)) as stream:
            for _ in range(3):
                batch = await anext(stream)
                while source.is_managed and batch is not None and not batch.pending:  # what came again was left out
                    batch = await anext(stream)
                assert batch is not None
                assert len(batch) == 0
                assert batch.latest_replay_id
                assert batch.pending in owed, "a keepalive pays nothing off, and nothing more is asked for"

    @sources(lambda kind: not kind.is_asyncio)
    async def test_a_blocking_source_yields_none_each_time_anew(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        [last] = (await first(source, topic)).replay_ids
        for start in (last, StartFrom.LATEST):
            got: list[Any] = []
            async with aclosing(source.subscribe(topic, start, seconds=0.05)) as stream:
                while got.count(None) < 4:
                    got.append(await anext(stream))
            assert [batch for batch in got if batch is not None and len(batch)] == []

    @sources(lambda kind: kind.is_asyncio)
    async def test_an_asyncio_source_takes_silence_for_a_lost_connection(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.fault("silence", topic=topic)
        org.publish(topic, [{"Amount__c": 1.0}])
        with pytest.raises(ServiceUnavailableError, match=r"nothing came for 0.2 seconds.*resume") as caught:
            await first(source, topic, seconds=0.2)
        assert name_of(topic) in str(caught.value)
        await ended(source, topic)

    @sources(lambda kind: kind.is_asyncio)
    async def test_an_asyncio_source_takes_silence_after_events_so_too(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        stream = source.subscribe(topic, seconds=4.0)
        assert (await next_events(stream)).replay_ids == source.replay_ids(topic)
        org.fault("silence", topic=topic)
        with pytest.raises(ServiceUnavailableError, match="nothing came"):
            await next_events(stream)

    @sources(lambda kind: not kind.is_managed)
    async def test_little_is_read_while_the_consumer_is_busy_and_nothing_is_lost(
        self,
        org: LocalOrg,
        source_kind: type[EventSourceAdapter],
        open_source: Any,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("airflow_provider_sfstream.salesforce.pubsub.subscription.MOST_EVENTS_WAITING", 100)
        source: EventSourceAdapter = open_source(**source_kind.reading_little)
        source.answer_in_parts(100)
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        async with aclosing(source.subscribe(topic)) as stream:
            got = (await next_events(stream)).replay_ids
            least, most = (len(got) + ahead for ahead in source.read_ahead)
            await until(lambda: source.delivered(topic)[0] >= least, "reading ahead")
            await read(source, topic, count=1_000)  # another reads everything: there was time to read more
            assert min(source.delivered(topic)) <= most  # the other one may still be there
            while len(got) < 1_000:
                got += (await next_events(stream)).replay_ids
        assert got == source.replay_ids(topic)

    async def test_a_consumer_that_is_busy_for_too_long_can_resume(
        self,
        org: LocalOrg,
        source_kind: type[EventSourceAdapter],
        open_source: Any,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Salesforce ends a stream that is owed nothing and asks for nothing for 60 seconds, here 0.3."""
        monkeypatch.setattr("airflow_provider_sfstream.salesforce.pubsub.subscription.MOST_EVENTS_WAITING", 100)
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        source: EventSourceAdapter = open_source(**source_kind.reading_little)
        for end in source.idle_ends:
            source.end_idle_streams(end)
            await source.ready()
            stream, got = await begun(source, topic)
            await until(lambda: not source.open_streams(topic), "the server's closing")
            with pytest.raises(ServiceUnavailableError, match=source.forgotten):  # noqa: PT012 - what had arrived comes first
                while True:
                    got += (await next_events(stream)).replay_ids
            assert 0 < len(got) < 1_000
            org.reset_knobs()
            assert await resumed(source, topic, got, count=1_000) == source.replay_ids(topic)


async def begun(source: EventSourceAdapter, topic: str) -> tuple[Stream, list[bytes]]:
    """Return a stream and its first events, however often the server ends it before they are here."""
    for _ in range(100):
        stream = source.subscribe(topic)
        with suppress(ServiceUnavailableError):
            return stream, (await next_events(stream)).replay_ids
    raise AssertionError(f"no events of {topic} came in 100 streams")


class TestArguments:
    async def test_nothing_is_contacted_before_the_first_step(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        before = len(org.requests())
        async with aclosing(source.subscribe(topic)):
            assert len(org.requests()) == before

    async def test_what_cannot_be_used_is_refused_at_once(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        cases: list[tuple[dict[str, Any], type[Exception]]] = [({"limit": 0}, ConfigurationError)]
        cases += [({"seconds": seconds}, ConfigurationError) for seconds in (0, -1.0, float("nan"))]
        names = ("/event/../x", "/event/", "Order__e", *source.topics_of_others)
        cases += [({"topic": name}, InvalidTopicError) for name in names]
        if not source.is_managed:
            cases += [({"start": start}, InvalidReplayIdError) for start in (b"", source.no_replay_id)]
            cases += [({"start": StartFrom.COMMITTED}, ConfigurationError)]
        before = len(org.requests())
        for arguments, expected in cases:
            with pytest.raises(expected, match="Nothing was read") as caught:
                source.subscribe(**{"topic": topic, **arguments})
            assert ("seconds" in arguments) == ("_timeout=" in str(caught.value)), arguments
        assert len(org.requests()) == before


def name_of(topic: str) -> str:
    """Return the part of a topic's name that every source's errors have."""
    return topic.removeprefix("/event/").removesuffix("__e")
