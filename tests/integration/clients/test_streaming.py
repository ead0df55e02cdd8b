"""The blocking Streaming API client against a real server: idle timeouts, interruptions, threads, and no leaks."""

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

import psutil
import pytest

from airflow_provider_sfstream.clients.streaming import StreamingClient
from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    ReplayIdLostError,
    ServiceUnavailableError,
    SessionExpiredError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.protocol.events import EventBatch, StartFrom
from tests.support.clients import streaming_client
from tests.support.cometd_log import count, sessions
from tests.support.localorg import LocalOrg, wait_until

IDLE = 0.2


@pytest.fixture
def client(org: LocalOrg) -> Iterator[StreamingClient]:
    with streaming_client(org) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_left_behind(org: LocalOrg, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No socket is left when a test is over, and nobody has complained on the way."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
        wait_until(lambda: not connections(org), what="the end of the connections")
        gc.collect()
    assert [str(warning.message) for warning in warned if "nclosed" in str(warning.message)] == []
    records = caplog.get_records("call") + caplog.get_records("teardown")
    assert [record for record in records if record.levelno >= logging.WARNING] == []


def connections(org: LocalOrg) -> int:
    """Return how many TCP connections this process has to the org's CometD port."""
    established = [c for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]
    return sum(bool(c.raddr) and c.raddr.port == org.http_port for c in established)


def recorded(org: LocalOrg, topic: str) -> list[bytes]:
    return [event["replay_id"][:8] for event in org.record(topic)]


def read(client: StreamingClient, topic: str, start: bytes | StartFrom, limit: int | None = None) -> list[bytes]:
    """Return the replay IDs that come until all is quiet."""
    got: list[bytes] = []
    responses = client.subscribe(topic, start, limit=limit, idle_timeout=IDLE)
    for batch in responses:
        if batch is None:
            break
        got += batch.replay_ids
    close(responses)
    return got


def close(responses: Iterator[EventBatch | None]) -> None:
    responses.close()  # type: ignore[attr-defined]


class TestEvents:
    def test_from_every_start_until_all_is_quiet(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        org.publish_many(topic, 2_500, {"Amount__c": "{n}"})
        record = recorded(org, topic)
        assert read(client, topic, StartFrom.EARLIEST) == record
        assert read(client, topic, record[999]) == record[1_000:]
        assert read(client, topic, record[-1]) == []
        assert read(client, topic, StartFrom.LATEST) == []
        assert sessions(org, topic) == []

    def test_no_more_than_asked_for(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        org.publish_many(topic, 1_500, {"Amount__c": "{n}"})
        responses = client.subscribe(topic, StartFrom.EARLIEST, limit=1_234, idle_timeout=IDLE)
        got = [replay_id for batch in responses if batch is not None for replay_id in batch.replay_ids]
        assert got == recorded(org, topic)[:1_234]
        assert sessions(org, topic) == []

    def test_new_events_while_it_waits(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        responses = client.subscribe(topic, StartFrom.LATEST, idle_timeout=IDLE)
        assert next(responses) is None
        for _ in range(3):
            org.publish(topic, [{"Amount__c": 1.0}])
            batch = next(batch for batch in responses if batch is not None)
            assert batch.replay_ids == recorded(org, topic)[-1:]
        close(responses)

    def test_answers_without_events_are_not_yielded(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        org.knobs(cometd_connect_seconds=0.05)
        responses = client.subscribe(topic, StartFrom.LATEST, idle_timeout=0.5)
        assert [next(responses) for _ in range(2)] == [None, None]
        close(responses)
        assert count(org, "/meta/connect") > 5

    def test_idle_time_does_not_run_before_the_subscription_stands(
        self, org: LocalOrg, client: StreamingClient, topic: str
    ) -> None:
        """Else a slow login would look like a stream that is caught up."""
        responses = client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=1e-9)
        assert next(responses) is None
        assert len(sessions(org, topic)) == 1
        close(responses)


class TestFaults:
    def test_come_with_the_first_next(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        before = len(org.requests())
        responses = client.subscribe(topic, b"\x7f" + bytes(7), idle_timeout=IDLE)
        assert len(org.requests()) == before
        with pytest.raises(ReplayIdLostError):
            next(responses)
        assert sessions(org, topic) == []

    def test_unusable_arguments_at_once(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        before = len(org.requests())
        for arguments in ((topic, bytes(10)), ("/nowhere/x", StartFrom.EARLIEST)):
            with pytest.raises(ConfigurationError):
                client.subscribe(*arguments, idle_timeout=IDLE)
        with pytest.raises(ConfigurationError, match="idle_timeout"):
            client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=0)
        assert len(org.requests()) == before

    def test_a_server_that_restarts(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        responses = client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=IDLE)
        batch = next(responses)
        assert batch is not None
        org.kill()
        org.start()
        org.publish(topic, [{"Amount__c": 2.0}])
        with pytest.raises(ServiceUnavailableError, match="resume from the last replay ID"):
            next(responses)
        assert read(client, topic, batch.replay_ids[-1]) == recorded(org, topic)[1:]

    def test_a_refused_token_is_forgotten_when_told(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        client.org_id()
        before = int(org.admin("GET", "/oauth")["requests"])
        org.revoke()
        try:
            read(client, topic, StartFrom.EARLIEST)
        except SessionExpiredError:
            client.renew_session()
        assert read(client, topic, StartFrom.EARLIEST) == recorded(org, topic)
        assert int(org.admin("GET", "/oauth")["requests"]) == before + 1

    def test_check_names_what_does_not_work(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        client.check()
        client.check(topic)
        with pytest.raises(TopicNotFoundError, match="/topic/Nowhere"):
            client.check("/topic/Nowhere")
        with pytest.raises(ConfigurationError):
            client.check("nowhere")
        assert sessions(org) == []


class TestLife:
    def test_a_closed_iterator_ends_its_session_at_once(
        self, org: LocalOrg, client: StreamingClient, topic: str
    ) -> None:
        responses = client.subscribe(topic, StartFrom.LATEST, idle_timeout=IDLE)
        assert next(responses) is None
        assert len(sessions(org, topic)) == 1
        close(responses)
        assert sessions(org, topic) == []

    def test_closing_the_client_ends_what_is_open(self, org: LocalOrg, topic: str) -> None:
        client = streaming_client(org)
        responses = client.subscribe(topic, StartFrom.LATEST, idle_timeout=IDLE)
        assert next(responses) is None
        client.close()
        assert sessions(org, topic) == []
        with pytest.raises(RuntimeError, match="closed"):
            next(responses)
        with pytest.raises(RuntimeError, match="closed"):
            client.schema("x")
        client.close()

    def test_several_at_once_in_one_thread(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        org.publish_many(topic, 3_000, {"Amount__c": "{n}"})
        several = [client.subscribe(topic, StartFrom.EARLIEST, limit=3_000, idle_timeout=IDLE) for _ in range(3)]
        got: list[list[bytes]] = [[], [], []]
        open_ones = list(zip(several, got, strict=True))
        while open_ones:
            responses, mine = open_ones.pop(0)
            batch = next(responses, "the end")
            if batch != "the end":
                mine += batch.replay_ids if isinstance(batch, EventBatch) else []
                open_ones.append((responses, mine))
        assert got == [recorded(org, topic)] * 3

    def test_in_a_thread_that_is_not_the_main_one(self, org: LocalOrg, topic: str) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        got: list[list[bytes]] = []

        def work() -> None:
            with streaming_client(org) as client:
                got.append(read(client, topic, StartFrom.EARLIEST))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert got == [recorded(org, topic)] * 3

    def test_inside_an_event_loop_it_says_what_to_use(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        async def misuse() -> None:
            next(client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=IDLE))

        with pytest.raises(RuntimeError, match="async_client"):
            asyncio.run(misuse())

    def test_the_threads_own_event_loop_is_left_alone(self, org: LocalOrg, topic: str) -> None:
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
    """As Airflow's AirflowTaskTimeout is."""


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

        # Python leaves Ctrl-C alone in a process that a shell started in the background.
        former = [(number, signal.getsignal(number)) for number in (signal.SIGALRM, signal.SIGINT)]
        signal.signal(signal.SIGALRM, ring)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in former:
            signal.signal(number, handler)

    def test_a_time_limit_while_it_waits(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        responses = client.subscribe(topic, StartFrom.LATEST, idle_timeout=60)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(TimeIsUp):
            next(responses)
        close(responses)
        assert sessions(org, topic) == []
        org.publish(topic, [{"Amount__c": 1.0}])
        assert read(client, topic, StartFrom.EARLIEST) == recorded(org, topic)

    def test_ctrl_c_while_it_waits(self, org: LocalOrg, client: StreamingClient, topic: str) -> None:
        responses = client.subscribe(topic, StartFrom.LATEST, idle_timeout=60)
        timer = threading.Timer(0.5, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(responses)
        timer.join()
        close(responses)
        org.publish(topic, [{"Amount__c": 1.0}])
        assert read(client, topic, StartFrom.EARLIEST) == recorded(org, topic)

    def test_a_time_limit_at_any_moment_reaches_the_caller(
        self, org: LocalOrg, client: StreamingClient, topic: str
    ) -> None:
        """Never the event loop, where a library could take it for a fault of the network."""
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
        assert read(client, topic, StartFrom.EARLIEST) == record
