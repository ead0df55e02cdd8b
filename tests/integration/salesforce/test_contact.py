"""Drains behind a network that stops forwarding: no event source treats the silence as the end of the stream.

Each point of silence is tested twice. A permanent silence raises an error that names the last point reached. After a
temporary silence, the drain has received every event once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.network import proxies
from airflow_provider_sfstream.salesforce.network.settings import Timers
from airflow_provider_sfstream.salesforce.rest import client as rest_client
from airflow_provider_sfstream.streams.drain import drain as module
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.drain.result import DrainResult
from tests.support.behind_network import OrgBehindNetwork, behind_network
from tests.support.event_source_adapter import EventSourceAdapter
from tests.support.event_sources import Managed, PubSub, Streaming
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
from tests.support.scripted_source import ListSink

__all__ = ["behind_network"]

EVENTS = 300
IDLE = 2.0
TIMERS = Timers(
    keepalive_seconds=1.0,
    keepalive_timeout_seconds=0.5,
    connect_timeout_seconds=1.0,
    reconnect_seconds=0.2,
    call_timeout_seconds=1.0,
)

Kind = type[EventSourceAdapter]


@dataclass(frozen=True)
class Silent:
    """Point at which the network stops forwarding, and the part of the error that names the last point reached."""

    begin: Callable[[Network, Kind], object]
    reached: str
    tls: bool = False
    quick: bool = False
    """``make test`` runs this point too; ``make test-all`` runs all of them."""


def first_answer(kind: Kind) -> Any:
    """Return the point after the first response of a subscription."""
    return TextMatch(b'"/meta/connect"', TO_SERVER, before=True) if kind.rpc is None else GrpcResponse(kind.rpc)


def silent_after_first_answer(network: Network, kind: Kind) -> None:
    network.at(first_answer(kind), lambda _: network.silence(), nth=2 if kind.rpc is None else 1)


def first_request(kind: Kind) -> TextMatch:
    return TextMatch(b"POST /cometd" if kind.rpc is None else b"PRI * HTTP/2.0", TO_SERVER, before=kind.rpc is None)


SILENT = {
    "before TCP": Silent(lambda network, _: network.unreachable(), "was not reached", quick=True),
    "after TCP": Silent(lambda network, _: network.silence(), "was reached"),
    "after TLS": Silent(
        lambda network, _: network.at(TlsHandshake(), lambda _: network.silence()), "was reached, but not TLS", tls=True
    ),
    "after the login": Silent(
        lambda network, kind: network.at(first_request(kind), lambda _: network.silence()), "was reached"
    ),
    "after the first response": Silent(silent_after_first_answer, "was reached", quick=True),
    "in the middle of a response": Silent(
        lambda network, _: network.at(ByteCount(6_000, TO_CLIENT), lambda _: network.silence()), "was reached"
    ),
    "dripping": Silent(lambda network, _: network.drip(20), "was reached"),
}

each_kind = pytest.mark.parametrize("kind", [PubSub, Streaming, Managed], ids=lambda kind: kind.name)
each_silence = pytest.mark.parametrize(
    "silent",
    [
        pytest.param(silent, id=name, marks=[] if silent.quick else [pytest.mark.extended])
        for name, silent in SILENT.items()
    ],
)


@pytest.fixture(autouse=True)
def hurried(behind_network: OrgBehindNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeouts of the package, so that tests of silence take seconds."""
    monkeypatch.setattr(module, "CONNECT_TIMEOUT", 3.0)
    monkeypatch.setattr(proxies, "STEP_TIMEOUT", 0.3)
    monkeypatch.setattr(rest_client, "TIME_TIMEOUT", 0.5)
    behind_network.knobs(cometd_connect_seconds=1.0)


@dataclass
class Reader:
    """Event source of a kind, and the network through which it receives events."""

    source: EventSourceAdapter
    network: Network

    def drain(self, topic: str, sink: ListSink, **arguments: Any) -> DrainResult:
        source, after = self.source.source(topic, StartFrom.EARLIEST)
        limits = DrainLimits(**{"idle_timeout": IDLE, **arguments.pop("limits", {})})
        options = {"max_failures": 2, "sleep": lambda _: None, "random": lambda: 0.0, **arguments}
        return Drain(source, sink, topic, after, limits, **options).run()


@pytest.fixture
def reader(behind_network: OrgBehindNetwork) -> Iterator[Callable[..., Reader]]:
    """Return a function that creates readers that are logged in."""
    opened: list[EventSourceAdapter] = []

    def make(kind: Kind, *, tls: bool = False, **options: Any) -> Reader:
        timers: dict[str, Any] = {"connection_timeout": 1.0} if kind.rpc is None else {"timers": TIMERS}
        over_tls = kind.over_tls(behind_network, behind_network.ca_file) if tls else {}
        source = kind(behind_network, **{**timers, **over_tls, **options})
        opened.append(source)
        source.tokens.token()
        plain, encrypted = ("http", "https") if kind.rpc is None else ("grpc", "grpc_tls")
        return Reader(source, getattr(behind_network, encrypted if tls else plain))

    yield make
    for network in (behind_network.http, behind_network.https, behind_network.grpc, behind_network.grpc_tls):
        network.heal()
    for source in opened:
        for managed in getattr(source, "sources", {}).values():
            managed.close()
        source.client.close()


@pytest.fixture
def published(behind_network: OrgBehindNetwork, topic: str) -> str:
    """Publish events on the topic, and return the topic."""
    behind_network.publish_many(topic, EVENTS, {"Amount__c": "{n}"})
    return topic


@each_silence
@each_kind
def test_permanent_silence_raises_an_error_with_the_last_reached_point(
    reader: Callable[..., Reader], published: str, kind: Kind, silent: Silent
) -> None:
    read, sink = reader(kind, tls=silent.tls), ListSink()
    silent.begin(read.network, kind)
    with pytest.raises(ServiceUnavailableError) as caught:
        read.drain(published, sink)
    message = str(caught.value)
    assert published.removeprefix("/event/").removesuffix("__e") in message
    assert str(read.network.port) in message
    assert silent.reached in message
    assert sink.replay_ids == read.source.replay_ids(published)[: len(sink.replay_ids)]


@each_silence
@each_kind
def test_temporary_silence_loses_no_event(
    reader: Callable[..., Reader], published: str, kind: Kind, silent: Silent
) -> None:
    read, sink = reader(kind, tls=silent.tls), ListSink()
    silent.begin(read.network, kind)

    def heal(pause: float) -> None:
        read.network.heal()
        time.sleep(pause)

    result = read.drain(published, sink, sleep=heal, max_failures=8)
    assert sink.replay_ids == read.source.replay_ids(published)
    assert (result.stop_reason, result.confirmed_at) == (StopReason.IDLE, None)


@pytest.mark.parametrize("kind", [PubSub, Streaming], ids=lambda kind: kind.name)
def test_half_open_connection_is_replaced(reader: Callable[..., Reader], published: str, kind: Kind) -> None:
    read, sink = reader(kind), ListSink()
    forgotten = read.network.at(first_answer(kind), Connection.forget, nth=2 if kind.rpc is None else 1)
    result = read.drain(published, sink, max_failures=8)
    assert sink.replay_ids == read.source.replay_ids(published)
    assert (forgotten.done, result.reconnects > 0) == (1, True)


@each_kind
def test_round_trips_longer_than_the_idle_timeout_do_not_end_a_drain(
    reader: Callable[..., Reader], published: str, kind: Kind
) -> None:
    """Every round trip takes longer than the idle timeout."""
    read, sink = (
        reader(kind, **({"connection_timeout": 10.0} if kind.rpc is None else {"timers": Timers()})),
        ListSink(),
    )
    read.network.delay(0.5)
    result = read.drain(published, sink, limits={"idle_timeout": 0.9})
    assert sink.replay_ids == read.source.replay_ids(published)
    assert (result.reconnects, result.stop_reason) == (0, StopReason.IDLE)


def test_polls_held_back_by_a_proxy_raise_instead_of_ending_the_drain(
    reader: Callable[..., Reader], published: str
) -> None:
    """The proxy holds back only responses to polls and forwards all other responses, as a buffering proxy does."""
    read, sink = reader(Streaming), ListSink()
    held = read.network.at(
        first_answer(Streaming), lambda connection: connection.hold(frozenset({TO_CLIENT})), nth=2, times=None
    )
    with pytest.raises(ServiceUnavailableError, match=f"localhost:{read.network.port} did not answer"):
        read.drain(published, sink)
    assert (sink.replay_ids, held.done > 0) == ([], True)
    read.network.heal()
    assert read.drain(published, sink, max_failures=8).stop_reason is StopReason.IDLE
    assert sink.replay_ids == read.source.replay_ids(published)


@pytest.mark.parametrize(
    ("kind", "keepalive", "named", "expected"),
    [
        pytest.param(PubSub, 0.3, 3.0, StopReason.CAUGHT_UP, id="pings, and the end is named"),
        pytest.param(PubSub, 0.3, 60.0, StopReason.IDLE, id="pings, and it is not", marks=pytest.mark.extended),
        pytest.param(PubSub, 60.0, 60.0, StopReason.IDLE, id="no pings"),
        # Without pings, Salesforce would treat the subscription as busy after a cut.
        pytest.param(Managed, 0.3, 2.0, StopReason.CAUGHT_UP, id="managed", marks=pytest.mark.extended),
    ],
)
def test_confirmation_wait_continues_when_idle_connections_are_cut(
    behind_network: OrgBehindNetwork,
    reader: Callable[..., Reader],
    topic: str,
    kind: Kind,
    keepalive: float,
    named: float,
    expected: StopReason,
) -> None:
    """The network cuts each connection after two idle seconds. A cut neither restarts nor ends the wait."""
    behind_network.knobs(keepalive_seconds=named)
    read = reader(kind, timers=Timers(keepalive_seconds=keepalive))
    confirm = 8.0 if expected is StopReason.IDLE else 40.0
    read.network.cut_idle(2.0)
    began = time.monotonic()
    result = read.drain(topic, ListSink(), limits={"idle_timeout": 0.3, "confirm_timeout": confirm})
    assert result.stop_reason is expected
    assert (result.reconnects >= 2) == (keepalive > 1)
    assert (time.monotonic() - began >= confirm) == (expected is StopReason.IDLE)
    assert (result.confirmed_at is not None) == (expected is StopReason.CAUGHT_UP)
