"""Blocking Streaming API client against a real server: silence, threads and interruptions."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, TopicNotFoundError
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.streaming.client import StreamingClient
from tests.support.clients import streaming_client
from tests.support.cometd_log import count, sessions
from tests.support.left_behind import client_connections
from tests.support.localorg import LocalOrg, wait_until

IDLE = 0.2


@pytest.fixture
def client(org: LocalOrg) -> Iterator[StreamingClient]:
    with streaming_client(org) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_left_behind(org: LocalOrg, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check after each test that no socket is open and that nothing was logged as a warning."""
    gc.collect()  # collect objects of earlier tests, so that this test does not report their sockets
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        before = client_connections(org)
        yield
        wait_until(lambda: client_connections(org) <= before, what="the end of the connections")
        gc.collect()
    assert [str(warning.message) for warning in warned if "nclosed" in str(warning.message)] == []
    records = caplog.get_records("call") + caplog.get_records("teardown")
    assert [record for record in records if record.levelno >= logging.WARNING] == []


def recorded(org: LocalOrg, topic: str) -> list[bytes]:
    return [event["replay_id"][:8] for event in org.record(topic)]


def read(client: StreamingClient, topic: str, count: int) -> list[bytes]:
    """Return the replay IDs of the first ``count`` events."""
    got: list[bytes] = []
    for batch in client.subscribe(topic, StartFrom.EARLIEST, limit=count, idle_timeout=60):
        assert batch is not None, "the client received no stored event"
        got += batch.replay_ids
    return got


def close(responses: Iterator[EventBatch | None]) -> None:
    responses.close()  # type: ignore[attr-defined]


class TestEvents:
    def test_response_without_events_is_an_empty_batch(
        self, org: LocalOrg, client: StreamingClient, topic: str
    ) -> None:
        """The response has no position and no pending request, so it only proves contact, also after a long poll."""
        org.knobs(cometd_connect_seconds=0.05)
        for answer_within in (None, 0.02):
            responses = client.subscribe(topic, StartFrom.LATEST, idle_timeout=60, answer_within=answer_within)
            answers = [next(responses) for _ in range(3)]
            assert [(len(answer), answer.pending) for answer in answers if answer is not None] == [(0, 0)] * 3
            close(responses)

    def test_idle_timeout_starts_after_the_subscription(
        self, org: LocalOrg, client: StreamingClient, topic: str
    ) -> None:
        """Otherwise a drain would treat a slow login as the end of the stream."""
        responses = client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=1e-9)
        assert next(responses) is None
        assert len(sessions(org, topic)) == 1
        close(responses)


class TestFaults:
    def test_check_refuses_unknown_and_invalid_topics(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        client.check()
        client.check(topic)
        with pytest.raises(TopicNotFoundError, match="/topic/Nowhere"):
            client.check("/topic/Nowhere")
        with pytest.raises(ConfigurationError):
            client.check("nowhere")
        assert sessions(org) == []


class TestLife:
    def test_several_subscriptions_in_one_thread(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        org.knobs(cometd_batch_events=300)
        org.publish_many(topic, 1_200, {"Amount__c": "{n}"})
        several = [client.subscribe(topic, StartFrom.EARLIEST, limit=1_200, idle_timeout=IDLE) for _ in range(3)]
        got: list[list[bytes]] = [[], [], []]
        open_ones = list(zip(several, got, strict=True))
        while open_ones:
            responses, mine = open_ones.pop(0)
            batch = next(responses, "the end")
            if batch != "the end":
                mine += batch.replay_ids if isinstance(batch, EventBatch) else []
                open_ones.append((responses, mine))
        assert got == [recorded(org, topic)] * 3

    def test_clients_in_several_threads(self, org: LocalOrg, topic: str) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        got: list[list[bytes]] = []

        def work() -> None:
            with streaming_client(org) as client:
                got.append(read(client, topic, 1))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert got == [recorded(org, topic)] * 3

    def test_use_inside_an_event_loop_raises_an_error_with_the_alternative(
        self, org: LocalOrg, client: StreamingClient, topic: str
    ) -> None:
        async def misuse() -> None:
            next(client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=IDLE))

        with pytest.raises(RuntimeError, match="async_client"):
            asyncio.run(misuse())

    def test_event_loop_of_the_thread_is_not_replaced(self, org: LocalOrg, topic: str) -> None:
        mine = asyncio.new_event_loop()
        asyncio.set_event_loop(mine)
        try:
            with streaming_client(org) as client:
                client.check(topic)
            assert asyncio.get_event_loop() is mine
        finally:
            asyncio.set_event_loop(None)
            mine.close()


class TimeIsUp(BaseException):
    """Exception like Airflow's AirflowTaskTimeout."""


def read_for(seconds: float, responses: Any, got: list[bytes]) -> None:
    """Read until the end; raise :class:`TimeIsUp` if that takes longer."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        for batch in responses:
            got += batch.replay_ids
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class TestInterruptions:
    @pytest.fixture(autouse=True)
    def alarm(self) -> Iterator[None]:
        def ring(number: int, frame: FrameType | None) -> None:
            raise TimeIsUp

        # Python does not handle SIGINT in a process that a shell started in the background.
        former = [(number, signal.getsignal(number)) for number in (signal.SIGALRM, signal.SIGINT)]
        signal.signal(signal.SIGALRM, ring)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in former:
            signal.signal(number, handler)

    @pytest.mark.parametrize(
        ("number", "error"),
        [(signal.SIGALRM, TimeIsUp), (signal.SIGINT, KeyboardInterrupt)],
        ids=["time limit", "ctrl-c"],
    )
    def test_interrupted_wait_ends_the_session(
        self, org: LocalOrg, client: StreamingClient, topic: str, number: int, error: type[BaseException]
    ) -> None:
        def interrupt() -> None:
            wait_until(lambda: count(org, "/meta/connect") > 1, what="a poll of the client")
            signal.pthread_kill(threading.main_thread().ident, number)

        responses = client.subscribe(topic, StartFrom.LATEST, idle_timeout=60)
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(error):
            next(responses)
        interrupting.join()
        close(responses)
        assert sessions(org, topic) == []
        org.publish(topic, [{"Amount__c": 1.0}])
        assert read(client, topic, 1) == recorded(org, topic)

    def test_time_limit_at_any_moment_raises_in_the_caller(
        self, org: LocalOrg, client: StreamingClient, topic: str
    ) -> None:
        """Not in the event loop, where a library could treat the exception as a network fault."""
        org.knobs(cometd_batch_events=50)
        org.publish_many(topic, 3_000, {"Amount__c": "{n}"})
        record = recorded(org, topic)
        struck = 0
        for milliseconds in range(1, 90, 3):
            got: list[bytes] = []
            responses: Any = client.subscribe(topic, StartFrom.EARLIEST, limit=3_000, idle_timeout=10)
            try:
                read_for(milliseconds / 1000, responses, got)
                assert got == record
            except TimeIsUp:
                struck += 1
            close(responses)
            assert got == record[: len(got)]
        assert struck > 10
        assert read(client, topic, 3_000) == record
