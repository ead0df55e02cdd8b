"""The network between real clients and a local org, on both APIs and over TLS."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx
import pytest

from airflow_provider_sfstream.exceptions import LoginUnavailableError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.auth import token_provider as auth
from airflow_provider_sfstream.salesforce.auth.credentials import credentials_from
from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings, Timers
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from tests.support.behind_network import OrgBehindNetwork, behind_network
from tests.support.clients import app_fields, async_pubsub_client, pubsub_client, streaming_client, token_provider
from tests.support.localorg import LocalOrg, reset_org, wait_until
from tests.support.network import (
    TO_CLIENT,
    TO_SERVER,
    ByteCount,
    Connection,
    GrpcResponse,
    Network,
    TextMatch,
    TlsHandshake,
)

__all__ = ["behind_network"]

_numbers = count()

Opened = Callable[[Any], Any]


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        yield org


@pytest.fixture
def org(running_org: LocalOrg) -> Iterator[LocalOrg]:
    running_org.admin("DELETE", "/requests")
    yield running_org
    reset_org(running_org)


@pytest.fixture
def topic(org: LocalOrg) -> str:
    return str(org.define(f"Networked{next(_numbers)}__e", Number__c="double")["name"])


@pytest.fixture
def hurried_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeout of logins, so that the tests take seconds."""
    monkeypatch.setattr(auth, "LOGIN_TIMEOUT", httpx.Timeout(0.3))


def over_tls(behind: OrgBehindNetwork, **options: Any) -> PubSubClient:
    fields = {**app_fields(behind), "login_url": behind.https_instance_url}  # type: ignore[arg-type]
    provider = OAuthTokenProvider(credentials_from(fields), network=NetworkSettings(behind.ca_file))
    network = NetworkSettings(behind.ca_file)
    return PubSubClient(provider, endpoint=f"localhost:{behind.grpc_tls_port}", network=network, **options)


EACH_API = pytest.mark.parametrize("opened", [pubsub_client, streaming_client], ids=["pubsub", "streaming"])


def wire(behind: OrgBehindNetwork, opened: Opened) -> Network:
    """Return the network through which the client receives events."""
    return behind.grpc if opened is pubsub_client else behind.http


def used(behind: OrgBehindNetwork) -> set[str]:
    """Return the names of the networks that have accepted connections."""
    return {name for name in ("http", "https", "grpc", "grpc_tls") if getattr(behind, name).accepted}


def events(stream: Iterator[EventBatch | None]) -> list[bytes]:
    """Return the replay IDs of the next batch with events."""
    batch = wait_until(lambda: next(stream), what="events")
    return list(batch.replay_ids)


@contextmanager
def asked(client: PubSubClient, topic: str) -> Iterator[list[Any]]:
    """Request the topic in a thread. The response has arrived at the end of the ``with`` block."""
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(client.get_topic(topic)))
    asking.start()
    yield answers
    asking.join(60)
    assert [answer.topic_name for answer in answers] == [topic]


class TestRoute:
    @EACH_API
    def test_all_requests_of_a_client_use_the_network(
        self, behind_network: OrgBehindNetwork, topic: str, opened: Opened
    ) -> None:
        behind_network.publish(topic, [{"Number__c": 1}])
        with opened(behind_network) as client:
            assert len(events(client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=60))) == 1
        assert wire(behind_network, opened).forwarded_bytes(TO_CLIENT) > 100
        assert used(behind_network) == ({"http", "grpc"} if opened is pubsub_client else {"http"})

    def test_tls_connections_use_the_network(self, behind_network: OrgBehindNetwork, topic: str) -> None:
        with over_tls(behind_network) as client:
            assert client.get_topic(topic).topic_name == topic
        assert used(behind_network) == {"https", "grpc_tls"}

    def test_instance_url_leads_through_the_network(self, behind_network: OrgBehindNetwork) -> None:
        assert token_provider(behind_network).token().instance_url == behind_network.instance_url


class TestSlow:
    def test_delayed_call_takes_a_round_trip(self, behind_network: OrgBehindNetwork, topic: str) -> None:
        with pubsub_client(behind_network) as client:
            client.get_topic(topic)
            behind_network.grpc.delay(1.0)
            began = time.monotonic()
            assert client.get_topic(topic).topic_name == topic
            assert time.monotonic() - began >= 2.0


class TestSilent:
    @pytest.mark.usefixtures("hurried_login")
    @pytest.mark.parametrize("fault", [Network.unreachable, Network.silence], ids=["before TCP", "after TCP"])
    def test_login_times_out_on_a_silent_network(
        self, behind_network: OrgBehindNetwork, fault: Callable[[Network], None]
    ) -> None:
        fault(behind_network.http)
        with pytest.raises(LoginUnavailableError, match=f"localhost:{behind_network.http.port}.*Timeout"):
            token_provider(behind_network).token()
        assert behind_network.requests("http") == []

    @pytest.mark.parametrize("fault", [Network.unreachable, Network.silence], ids=["before TCP", "after TCP"])
    def test_call_times_out_on_a_silent_network(
        self, behind_network: OrgBehindNetwork, topic: str, fault: Callable[[Network], None]
    ) -> None:
        fault(behind_network.grpc)
        with (
            pubsub_client(behind_network, timers=Timers(call_timeout_seconds=0.5)) as client,
            pytest.raises(ServiceUnavailableError),
        ):
            client.get_topic(topic)
        assert behind_network.requests("grpc") == []

    def test_silence_after_the_tls_handshake(self, behind_network: OrgBehindNetwork, topic: str) -> None:
        network = behind_network.grpc_tls
        rule = network.at(TlsHandshake(), lambda _: network.silence())
        with over_tls(behind_network) as client, asked(client, topic):
            wait_until(lambda: rule.done, what="the handshake")
            [connection] = network.connections
            # The handshake has ended for the client, which now sends HTTP/2 frames.
            wait_until(lambda: connection.to_server.waiting > 24, what="a frame of HTTP/2")
            assert behind_network.requests("grpc") == []
            network.heal()

    def test_silence_after_the_login(self, behind_network: OrgBehindNetwork, topic: str) -> None:
        """The network does not forward the first request of the Streaming API or anything after it."""
        network = behind_network.http
        rule = network.at(TextMatch(b"POST /cometd", TO_SERVER, before=True), lambda _: network.silence())
        with streaming_client(behind_network, connection_timeout=3.0) as client:
            stream = client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=60)
            with pytest.raises(ServiceUnavailableError):
                next(stream)
        assert rule.done == 1
        assert behind_network.requests("cometd") == []
        assert behind_network.admin("GET", "/oauth")["requests"] >= 1

    def test_silence_after_the_first_pubsub_response(self, behind_network: OrgBehindNetwork, topic: str) -> None:
        network = behind_network.grpc
        rule = network.at(GrpcResponse("Subscribe"), lambda _: network.silence())
        first = behind_network.publish(topic, [{"Number__c": 1}])
        with pubsub_client(behind_network) as client:
            client.get_topic(topic)
            assert not rule.done, "the rule must not count another call"
            stream = client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=0.3)
            assert events(stream) == first
            [connection] = network.connections
            carried = connection.to_client.forwarded_bytes
            second = behind_network.publish(topic, [{"Number__c": 2}])
            wait_until(lambda: connection.to_client.waiting > 0, what="a second response that waits")
            assert [next(stream) for _ in range(3)] == [None, None, None]
            assert (rule.done, connection.is_open, connection.to_client.forwarded_bytes) == (1, True, carried)
            network.heal()
            assert events(stream) == second

    def test_silence_after_the_first_poll(self, behind_network: OrgBehindNetwork, topic: str) -> None:
        """On the Streaming API, the network is silent from the second poll."""
        network = behind_network.http
        behind_network.publish(topic, [{"Number__c": 1}])
        rule = network.at(TextMatch(b'"/meta/connect"', TO_SERVER, before=True), lambda _: network.silence(), nth=2)
        with streaming_client(behind_network) as client:
            stream = client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=0.3)
            wait_until(lambda: next(stream) is None and rule.done, what="silence")
            assert network.connections
            network.heal()

    def test_silence_in_the_middle_of_a_response(self, behind_network: OrgBehindNetwork, topic: str) -> None:
        network = behind_network.grpc
        with pubsub_client(behind_network) as client:
            client.get_topic(topic)
            rule = network.at(ByteCount(3_000), Connection.hold)
            published = behind_network.publish(topic, [{"Number__c": n} for n in range(100)])
            stream = client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=0.3)
            wait_until(lambda: next(stream) is None and rule.done, what="the hold")
            assert rule.done == 1
            [connection] = network.connections
            wait_until(lambda: connection.to_client.waiting > 0, what="the rest")
            connection.release()
            assert events(stream) == published


class TestEnds:
    @EACH_API
    def test_idle_stream_is_cut_and_raises(self, behind_network: OrgBehindNetwork, topic: str, opened: Opened) -> None:
        network = wire(behind_network, opened)
        behind_network.publish(topic, [{"Number__c": 1}])
        with opened(behind_network) as client:
            stream = client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=60)
            events(stream)
            network.cut_idle(0.3)
            with pytest.raises(ServiceUnavailableError, match="resume"):
                next(stream)
            network.heal()

    async def test_forgotten_stream_stays_silent(self, behind_network: OrgBehindNetwork, topic: str) -> None:
        network = behind_network.grpc
        published = behind_network.publish(topic, [{"Number__c": 1}])
        async with async_pubsub_client(behind_network) as client:
            stream = client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=4.0)
            batch = await anext(stream)
            assert list(batch.replay_ids) == published
            assert network.forget() == 1
            behind_network.publish(topic, [{"Number__c": 2}])
            with pytest.raises(ServiceUnavailableError):
                assert [batch async for batch in stream] == []
        assert network.connections == []
        assert [stream["topic"] for stream in behind_network.streams()].count(topic) == 1, (
            "the org still has the stream"
        )

    def test_login_times_out_on_a_dripping_network(self, behind_network: OrgBehindNetwork, hurried_login: None) -> None:
        behind_network.http.drip(2)
        with pytest.raises(LoginUnavailableError, match="Timeout"):
            token_provider(behind_network).token()


def test_one_connection_overtakes_another(behind_network: OrgBehindNetwork, topic: str) -> None:
    """One client receives its response while the response to another client waits."""
    network = behind_network.grpc
    with pubsub_client(behind_network) as held, pubsub_client(behind_network) as other:
        held.get_topic(topic)
        [connection] = network.connections
        connection.hold(frozenset({TO_CLIENT}))
        with asked(held, topic) as answers:
            wait_until(lambda: connection.to_client.waiting > 0, what="its answer")
            assert other.get_topic(topic).topic_name == topic
            assert answers == []
            connection.release()
