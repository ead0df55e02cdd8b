"""Benchmark ``drain_50ms``: drain and landing with 50 ms of added round-trip time, compared with the protocol's limit.

At most 100 events may be pending on a subscription, so a client receives at most 100 events in one round trip. The
round-trip time is measured through the same network before each round, with an echo of one byte. The bare reader of the
benchmark ``drain`` runs too, for comparison.

It prints one JSON line; ``ratio`` is the package's events per second divided by the limit.
"""

from __future__ import annotations

import argparse
import json
import socket
import socketserver
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from drain import LocalOrg, fill, in_a_process, median

from tests.support.network import Network

HERE = Path(__file__).parent
DELAY = 0.025
"""Seconds, each way."""
OUTSTANDING = 100


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(1 << 10):
            self.request.sendall(data)


@contextmanager
def slow_network(port: int) -> Iterator[tuple[int, int]]:
    """Add a delay to the org without a bandwidth limit; yield the delayed ports of the org and of an echo server."""
    with socketserver.TCPServer(("127.0.0.1", 0), Echo) as echo:
        threading.Thread(target=echo.serve_forever, daemon=True).start()
        with Network(port) as to_org, Network(echo.server_address[1]) as to_echo:
            for network in (to_org, to_echo):
                network.delay(DELAY)
            yield to_org.port, to_echo.port
        echo.shutdown()


def round_trip(port: int, times: int = 21) -> float:
    """Return the median round-trip time of one byte in seconds."""
    taken = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(times):
            started = time.perf_counter()
            connection.sendall(b"-")
            connection.recv(1)
            taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {"drain": [], "bare": []}
    round_trips = []
    with tempfile.TemporaryDirectory() as directory, LocalOrg.running(Path(directory) / "org") as org:
        fill(org, arguments.events)
        token = org.token()
        with slow_network(org.grpc_port) as (org_port, echo_port):
            for _ in range(arguments.rounds):
                for side, results in runs.items():
                    round_trips.append(round_trip(echo_port))
                    target = f"127.0.0.1:{org_port}"
                    results.append(in_a_process(str(HERE / "drain.py"), side, target, org, token, arguments.events))
    assert all(run["events"] == arguments.events for side in runs.values() for run in side)
    rates = {
        side: statistics.median(run["events"] / run["seconds"] for run in results) for side, results in runs.items()
    }
    trip = statistics.median(round_trips)
    ceiling = OUTSTANDING / trip
    report = {
        "benchmark": "drain_50ms",
        "ratio": round(rates["drain"] / ceiling, 3),
        "events": arguments.events,
        "rounds": arguments.rounds,
        "round_trip_ms": round(trip * 1000, 2),
        "ceiling_events_per_second": round(ceiling),
        "drain_events_per_second": round(rates["drain"]),
        "bare_events_per_second": round(rates["bare"]),
        "drain_cpu_seconds": round(median(runs["drain"], "cpu_seconds"), 2),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
