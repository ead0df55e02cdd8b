"""The network between client and server that other tests use, tested with plain sockets."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

import pytest

from tests.support.localorg import wait_until
from tests.support.network import BOTH, TO_CLIENT, TO_SERVER, ByteCount, Connection, Network, TextMatch
from tests.support.network_points import Direction

SECONDS = 60.0
EACH_WAY = pytest.mark.parametrize("direction", list(Direction), ids=lambda direction: direction.value)


@dataclass
class Line:
    """Client socket, server socket, and their connection in the network."""

    client: socket.socket
    server: socket.socket
    connection: Connection

    def ends(self, direction: Direction) -> tuple[socket.socket, socket.socket]:
        """Return the sending and the receiving socket."""
        return (self.server, self.client) if direction is TO_CLIENT else (self.client, self.server)

    def send(self, direction: Direction, data: bytes) -> None:
        self.ends(direction)[0].sendall(data)

    def receive(self, direction: Direction, size: int) -> bytes:
        """Return ``size`` bytes, or fewer at the end of the connection."""
        data = b""
        while len(data) < size and (more := self.ends(direction)[1].recv(size - len(data))):
            data += more
        return data

    def passes(self, direction: Direction, data: bytes = b"-") -> None:
        self.send(direction, data)
        assert self.receive(direction, len(data)) == data

    def waits(self, direction: Direction, size: int) -> None:
        """Wait until ``size`` bytes wait in the network, and check that none has arrived."""
        wait_until(lambda: self.connection.half(direction).waiting == size, what=f"{size} bytes that wait")
        receiver = self.ends(direction)[1]
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.recv(1)
        receiver.settimeout(SECONDS)

    def is_reset(self) -> None:
        for one in (self.client, self.server):
            with pytest.raises(ConnectionResetError):
                one.recv(1)


class Scene:
    """Network before a listening socket."""

    def __init__(self, network: Network, listener: socket.socket, opened: contextlib.ExitStack) -> None:
        self.network = network
        self._listener, self._opened = listener, opened

    def line(self) -> Line:
        """Open one more connection."""
        client = self._opened.enter_context(socket.create_connection(("127.0.0.1", self.network.port), SECONDS))
        server = self._opened.enter_context(self._listener.accept()[0])
        server.settimeout(SECONDS)
        return Line(client, server, wait_until(lambda: self.network.connections)[-1])


@pytest.fixture
def scene() -> Iterator[Scene]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Network(listener.getsockname()[1]) as network,
        contextlib.ExitStack() as opened,
    ):
        listener.settimeout(SECONDS)
        yield Scene(network, listener, opened)


@pytest.fixture
def network(scene: Scene) -> Network:
    return scene.network


class TestForwarding:
    def test_network_forwards_and_counts_bytes(self, scene: Scene, network: Network) -> None:
        assert (network.accepted, network.connections, network.last_forwarded_at(TO_SERVER)) == (0, [], None)
        line = scene.line()
        line.passes(TO_SERVER, b"question")
        before = time.monotonic()
        line.passes(TO_CLIENT, b"answer")
        wait_until(lambda: network.forwarded_bytes(TO_CLIENT) == 6, what="the count")
        assert (network.accepted, network.connections, network.forwarded_bytes(TO_SERVER)) == (1, [line.connection], 8)
        last = network.last_forwarded_at(TO_CLIENT)
        assert last == line.connection.to_client.last == line.connection.last
        assert last is not None
        assert before - 1 < last <= time.monotonic()

    def test_each_end_may_close_its_direction_first(self, scene: Scene, network: Network) -> None:
        line = scene.line()
        line.client.sendall(b"all of it")
        line.client.shutdown(socket.SHUT_WR)
        assert line.receive(TO_SERVER, 100) == b"all of it"
        line.passes(TO_CLIENT, b"thank you")
        line.server.close()
        assert line.client.recv(1) == b""
        wait_until(lambda: not network.connections, what="the end")
        assert (network.forwarded_bytes(TO_SERVER), network.forwarded_bytes(TO_CLIENT)) == (9, 9)

    def test_reset_is_forwarded(self, scene: Scene) -> None:
        line = scene.line()
        line.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        line.client.close()
        with pytest.raises(ConnectionResetError):
            line.server.recv(1)

    @EACH_WAY
    def test_receiver_that_does_not_read_blocks_the_sender(self, scene: Scene, direction: Direction) -> None:
        line = scene.line()
        sender = line.ends(direction)[0]
        sender.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 64 << 20:
                sent += sender.send(bytes(1 << 16))
                wait_until(lambda: _takes_more(sender) or line.connection.half(direction).blocked, what="room or none")
        assert sent < 64 << 20
        sender.settimeout(SECONDS)
        assert len(line.receive(direction, sent)) == sent

    def test_missing_server_resets_the_connection(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        with (
            Network(port) as network,
            pytest.raises(ConnectionResetError),
            socket.create_connection(("127.0.0.1", network.port), SECONDS) as client,
        ):
            client.recv(1)


def _takes_more(sender: socket.socket) -> bool:
    return bool(select.select([], [sender], [], 0)[1])


class TestSlow:
    @EACH_WAY
    def test_delayed_bytes_keep_their_order(self, scene: Scene, network: Network, direction: Direction) -> None:
        line = scene.line()
        network.delay(0.3)
        began = time.monotonic()
        line.send(direction, b"first")
        way = line.connection.half(direction)
        wait_until(lambda: 5 in (way.waiting, way.forwarded_bytes), what="the first bytes on their way")
        network.delay(0)
        line.send(direction, b"second")
        assert line.receive(direction, 11) == b"firstsecond"
        assert time.monotonic() - began >= 0.3

    def test_delays_of_several_portions_do_not_add_up(self, scene: Scene, network: Network) -> None:
        """A hundred portions arrive in succession, not each 0.2 s after the previous one."""
        network.delay(0.2)
        line = scene.line()
        began = time.monotonic()
        for _ in range(100):
            line.send(TO_CLIENT, bytes(10_000))
        assert len(line.receive(TO_CLIENT, 1_000_000)) == 1_000_000
        assert 0.2 <= time.monotonic() - began < 100 * 0.2

    def test_end_of_a_connection_is_delayed(self, scene: Scene, network: Network) -> None:
        network.delay(0.2)
        line = scene.line()
        began = time.monotonic()
        line.server.close()
        assert line.client.recv(1) == b""
        assert time.monotonic() - began >= 0.2

    @EACH_WAY
    def test_drip_limits_the_bytes_per_second(self, scene: Scene, network: Network, direction: Direction) -> None:
        line = scene.line()
        network.drip(100)
        began = time.monotonic()
        line.send(direction, bytes(200))
        assert line.receive(direction, 25) == bytes(25)
        assert time.monotonic() - began >= 0.15
        network.drip(None)
        assert line.receive(direction, 175) == bytes(175)


class TestSilent:
    @EACH_WAY
    def test_silence_in_one_direction(self, scene: Scene, network: Network, direction: Direction) -> None:
        line = scene.line()
        network.silence(frozenset({direction}))
        line.send(direction, b"lost?")
        line.waits(direction, 5)
        [other] = BOTH - {direction}
        line.passes(other)
        network.heal()
        assert line.receive(direction, 5) == b"lost?"

    def test_unreachable_network_times_out_new_connections(self, scene: Scene, network: Network) -> None:
        line = scene.line()
        network.unreachable()
        network.unreachable()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                socket.create_connection(("127.0.0.1", network.port), 0.05)
        line.passes(TO_SERVER)
        network.heal()
        scene.line().passes(TO_CLIENT)
        assert network.accepted == 2

    def test_pending_connection_is_accepted_after_healing(self, scene: Scene, network: Network) -> None:
        network.unreachable()
        with socket.socket() as waiting:
            waiting.setblocking(False)
            assert waiting.connect_ex(("127.0.0.1", network.port)) != 0
            network.heal()
            wait_until(lambda: network.accepted == 1, what="TCP, which repeats its SYN")

    def test_silence_after_the_connection_is_established(self, scene: Scene, network: Network) -> None:
        network.silence()
        line = scene.line()
        for direction in Direction:
            line.send(direction, b"hello")
            line.waits(direction, 5)

    def test_end_of_a_connection_is_not_forwarded_during_silence(self, scene: Scene, network: Network) -> None:
        line = scene.line()
        network.silence()
        line.client.close()
        line.server.sendall(b"still there?")
        line.server.setblocking(False)
        wait_until(lambda: line.connection.to_client.waiting == 12, what="bytes that wait")
        with pytest.raises(BlockingIOError):
            line.server.recv(1)
        assert network.connections == [line.connection]

    def test_silence_after_a_number_of_bytes(self, scene: Scene, network: Network) -> None:
        line = scene.line()
        line.passes(TO_CLIENT, b"before")
        rule = network.at(ByteCount(10), lambda _: network.silence())
        line.send(TO_CLIENT, b"0123456")
        assert line.receive(TO_CLIENT, 7) == b"0123456"
        assert not rule.done
        line.send(TO_CLIENT, b"789abc")
        assert line.receive(TO_CLIENT, 3) == b"789"
        line.waits(TO_CLIENT, 3)
        assert (rule.done, network.forwarded_bytes(TO_CLIENT)) == (1, 16)
        line.send(TO_SERVER, b"on")
        line.waits(TO_SERVER, 2)

    @EACH_WAY
    @pytest.mark.parametrize(("before", "passes"), [(True, b"a request, "), (False, b"a request, then POST")])
    def test_connection_is_held_at_a_text(
        self, scene: Scene, network: Network, direction: Direction, before: bool, passes: bytes
    ) -> None:
        line = scene.line()
        rule = network.at(TextMatch(b"then POST", direction, before=before), Connection.hold)
        [other] = BOTH - {direction}
        line.passes(other, b"then POST")
        line.send(direction, b"a request, then POST, then more")
        assert line.receive(direction, len(passes)) == passes
        line.waits(direction, 31 - len(passes))
        assert rule.done == 1
        scene.line().passes(direction, b"then POST")
        line.connection.release()
        assert line.receive(direction, 31 - len(passes)) == b"a request, then POST, then more"[len(passes) :]

    def test_text_in_several_segments_is_found(self, scene: Scene, network: Network) -> None:
        line = scene.line()
        network.at(TextMatch(b"the end"), Connection.hold)
        for part in (b"not the en", b"t but the", b" en"):
            line.passes(TO_CLIENT, part)
        line.send(TO_CLIENT, b"d. After it")
        assert line.receive(TO_CLIENT, 1) == b"d"
        line.waits(TO_CLIENT, 10)

    def test_rule_acts_from_the_third_match_and_twice(self, scene: Scene, network: Network) -> None:
        lines = [scene.line() for _ in range(2)]
        rule = network.at(TextMatch(b"x", before=True), Connection.reset, nth=3, times=2)
        lines[0].passes(TO_CLIENT, b"x")
        lines[1].passes(TO_CLIENT, b"axb")
        lines[0].send(TO_CLIENT, b"x")
        lines[0].is_reset()
        lines[1].send(TO_CLIENT, b"x")
        lines[1].is_reset()
        scene.line().passes(TO_CLIENT, b"x")
        wait_until(lambda: (rule.reached, rule.done) == (5, 2), what="the count")


class TestEnds:
    def test_cut_resets_all_open_connections(self, scene: Scene, network: Network) -> None:
        lines = [scene.line() for _ in range(2)]
        assert network.cut() == 2
        for line in lines:
            line.is_reset()
        scene.line().passes(TO_CLIENT)
        assert network.accepted == 3

    def test_forgotten_connections_stay_open_and_carry_nothing(self, scene: Scene, network: Network) -> None:
        old = scene.line()
        old.passes(TO_SERVER)
        assert network.forget() == 1
        new = scene.line()
        old.client.sendall(b"hello?")
        old.client.close()
        network.heal()
        new.passes(TO_SERVER)
        old.server.setblocking(False)
        with pytest.raises(BlockingIOError):
            old.server.recv(1)
        assert network.connections == [new.connection]
        assert network.forwarded_bytes(TO_SERVER) == 2

    def test_an_idle_connection_is_cut(self, scene: Scene, network: Network) -> None:
        idle, busy = scene.line(), scene.line()
        network.cut_idle(3.0)
        while idle.connection.is_open:
            busy.passes(TO_CLIENT)
        idle.is_reset()
        assert time.monotonic() - idle.connection.last >= 3.0
        busy.passes(TO_SERVER)
        busy.is_reset()

    def test_an_idle_connection_is_closed(self, scene: Scene, network: Network) -> None:
        line = scene.line()
        network.cut_idle(0.05, Connection.close)
        assert (line.client.recv(1), line.server.recv(1)) == (b"", b"")

    def test_an_idle_connection_is_forgotten(self, scene: Scene, network: Network) -> None:
        line = scene.line()
        network.cut_idle(0.05, Connection.forget)
        wait_until(lambda: line.connection.is_forgotten, what="a forgotten connection")
        line.client.sendall(b"hello?")
        network.cut_idle(600)
        scene.line().passes(TO_SERVER)
        line.server.setblocking(False)
        with pytest.raises(BlockingIOError):
            line.server.recv(1)


def test_one_connection_overtakes_another(scene: Scene, network: Network) -> None:
    first, second = scene.line(), scene.line()
    first.connection.hold(frozenset({TO_SERVER}))
    network.at(TextMatch(b"second", TO_SERVER), lambda _: first.connection.release())
    first.send(TO_SERVER, b"first")
    first.waits(TO_SERVER, 5)
    first.passes(TO_CLIENT)
    second.passes(TO_SERVER, b"second")
    assert first.receive(TO_SERVER, 5) == b"first"


def test_random_temporary_faults_lose_and_reorder_no_byte(scene: Scene, network: Network) -> None:
    random = Random(1)
    lines = [scene.line() for _ in range(8)]
    sent = [random.randbytes(500_000) for _ in lines]
    for part in (b"a", b"bc", b"def"):
        network.at(TextMatch(part), lambda _: network.delay(random.random() / 100), times=None)
    with ThreadPoolExecutor(2 * len(lines)) as pool:
        sending = [pool.submit(line.send, TO_CLIENT, data) for line, data in zip(lines, sent, strict=True)]
        receiving = [pool.submit(line.receive, TO_CLIENT, 500_000) for line in lines]
        while not all(one.done() for one in receiving):
            network.silence(random.choice([BOTH, frozenset(), frozenset(), frozenset({TO_CLIENT})]))
            network.drip(random.choice([None, None, 1e6]))
            connection = random.choice(lines).connection
            random.choice([connection.hold, connection.release, connection.release])()
        received = [one.result() for one in receiving]
    assert all(one.result() is None for one in sending)
    assert received == sent
    assert network.forwarded_bytes(TO_CLIENT) == 4_000_000
