"""Timers of the connection to the Pub/Sub API, on a network that cuts idle connections or sends no response."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.network.settings import Timers
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from tests.support.clients import token_provider
from tests.support.event_sources import AsyncPubSub, EventSourceAdapter, PubSub, sources
from tests.support.localorg import LocalOrg
from tests.support.readers import next_events, wait_for

PING = 17
"""Size of an HTTP/2 ping that is sent alone, in bytes."""


@dataclass
class IdleCutter:
    """Forwarder to ``127.0.0.1:port`` that closes connections after ``idle`` seconds without data."""

    port: int
    idle: float
    pings: list[int] = field(default_factory=list)
    """Number of pings from the client on each connection, in the order of the connections."""
    cuts: int = 0

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Listen, and yield the URL to connect to."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            listener.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.pings.append(0)
            threading.Thread(target=self._carry, args=(client, len(self.pings) - 1), daemon=True).start()

    def _carry(self, client: socket.socket, number: int) -> None:
        with client, socket.create_connection(("127.0.0.1", self.port)) as server:
            while True:
                ready, _, _ = select.select([client, server], [], [], self.idle)
                if not ready:
                    self.cuts += 1
                    return
                for one in ready:
                    try:
                        data = one.recv(65536)
                        (server if one is client else client).sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
                    self.pings[number] += one is client and len(data) == PING


only_pubsub = sources(lambda kind: kind in (PubSub, AsyncPubSub))


@only_pubsub
async def test_pings_keep_a_connection_open_on_a_network_that_cuts_idle_ones(
    org: LocalOrg, topic: str, source_kind: type[EventSourceAdapter]
) -> None:
    cutter = IdleCutter(org.grpc_port, idle=8.0)
    with cutter.listening() as endpoint:
        source = source_kind(org, endpoint=endpoint, timers=Timers(keepalive_seconds=0.5))
        async with aclosing(source.subscribe(topic)) as batches:
            reading = asyncio.create_task(next_events(batches))
            # Six pings take three seconds; with default settings, gRPC sends fewer.
            await wait_for(lambda: sum(cutter.pings) >= 6, "pings")
            org.publish(topic, [{"Amount__c": 1}])
            events = await reading
        await source.aclose()
    assert events.replay_ids == source.replay_ids(topic)
    assert (len(cutter.pings), cutter.cuts) == (1, 0)


@only_pubsub
async def test_idle_connection_without_pings_is_cut_and_raises(
    org: LocalOrg, topic: str, source_kind: type[EventSourceAdapter]
) -> None:
    cutter = IdleCutter(org.grpc_port, idle=2.0)
    with cutter.listening() as endpoint:
        source = source_kind(org, endpoint=endpoint)
        with pytest.raises(ServiceUnavailableError):
            await next_events(source.subscribe(topic))
        await source.aclose()
    assert cutter.cuts == 1


@only_pubsub
async def test_connecting_to_a_silent_server_times_out(
    org: LocalOrg, topic: str, source_kind: type[EventSourceAdapter]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        timers = Timers(connect_timeout_seconds=0.5)
        source = source_kind(org, endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}", timers=timers)
        began = time.monotonic()
        with pytest.raises(ServiceUnavailableError):
            await anext(source.subscribe(topic))
        await source.aclose()
    assert time.monotonic() - began < 15, "gRPC's own limit is 20 seconds"


def test_ping_rate_is_reduced_for_a_server_that_refuses_frequent_pings(org: LocalOrg) -> None:
    """The server ends the connection, as gRPC servers do, and the client halves its ping rate for the next connection.

    At some rate, the server keeps the connection open. The number of attempts depends on the delay of pings: on a busy
    machine, the server read pings less than 150 ms apart that were sent 400 ms apart.
    """
    few_pings = [("grpc.http2.min_recv_ping_interval_without_data_ms", 150), ("grpc.http2.max_ping_strikes", 1)]
    closing = threading.Event()

    def say_nothing(requests: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        closing.wait()
        yield from ()

    server = grpc.server(ThreadPoolExecutor(), options=few_pings)
    methods = {"Subscribe": grpc.stream_stream_rpc_method_handler(say_nothing)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("eventbus.v1.PubSub", methods),))
    cutter = IdleCutter(server.add_insecure_port("127.0.0.1:0"), idle=60.0)
    server.start()
    faults: list[str] = []
    with cutter.listening() as endpoint:
        timers = Timers(keepalive_seconds=0.1)
        with PubSubClient(token_provider(org), endpoint=endpoint, timers=timers) as client:
            while len(cutter.pings) < 2 or cutter.pings[-1] < 5:
                try:
                    for _ in client.subscribe("/event/Order__e", StartFrom.EARLIEST, idle_timeout=0.1):
                        if len(cutter.pings) > 1 and cutter.pings[-1] >= 5:
                            break
                except ServiceUnavailableError as error:
                    faults.append(str(error))
        closing.set()
        server.stop(None).wait()
    assert any("oo many pings" in fault for fault in faults)
