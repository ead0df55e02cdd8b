"""Benchmark ``drain``: the package's drain and landing, compared with a bare gRPC reader that stores nothing.

Both read the same retained events from a local org, alternately, each in its own process, for several rounds; the
results are medians. The bare reader is a Subscribe call with 100 requested events, refilled at each response; it only
counts events. The package reads the events, lands Parquet with checksums and event times, and writes the manifest.

It prints one JSON line; ``ratio`` is our events per second divided by the bare reader's.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import grpc

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter
from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as messages
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.pubsub.channel import multi_callable
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream, window_id_for
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.source import StartFrom
from sfstream_localorg.process import LocalOrg

TOPIC = "/event/Order__e"
FIELDS = {"Number__c": "double", "Status__c": "string", "Note__c": "string"}
WORDS = ("order", "customer", "shipped", "address", "street", "city", "country", "phone", "invoice", "payment", "total")


class Token:
    """A fixed access token of the benchmark's only user."""

    def __init__(self, token: AccessToken) -> None:
        self._token = token

    def token(self) -> AccessToken:
        return self._token

    async def atoken(self) -> AccessToken:
        return self._token

    def invalidate(self, token: AccessToken) -> None:
        pass


def fill(org: LocalOrg, count: int) -> None:
    """Publish ``count`` events of about 400 bytes that compress as business data does, to about half."""
    random = Random(1)
    org.define("Order__e", **FIELDS)
    for start in range(0, count, 5_000):
        org.publish(TOPIC, [_event(random) for _ in range(min(5_000, count - start))])


def _event(random: Random) -> dict[str, object]:
    words = " ".join(random.choices(WORDS, k=28))
    return {
        "Number__c": random.random(),
        "Status__c": random.randbytes(9).hex(),
        "Note__c": f"{random.randbytes(64).hex()} {words}",
    }


def read_bare(target: str, token: AccessToken, count: int) -> int:
    """Count ``count`` events of :func:`responses`."""
    return sum(len(response.events) for response in responses(target, token, count))


def responses(target: str, token: AccessToken, count: int, topic: str = TOPIC) -> Iterator[messages.FetchResponse]:
    """Yield ``count`` events over a bare channel, with 100 requested events that each response refills."""
    requests: queue.SimpleQueue[messages.FetchRequest | None] = queue.SimpleQueue()
    metadata = (("accesstoken", token.value), ("instanceurl", token.instance_url), ("tenantid", token.org_id))
    received = 0
    with grpc.insecure_channel(target) as channel:
        requests.put(messages.FetchRequest(topic_name=topic, replay_preset=messages.EARLIEST, num_requested=100))
        call = multi_callable(channel, "Subscribe")(iter(requests.get, None), metadata=metadata)
        for response in call:
            events = len(response.events)
            received += events
            if received < count:
                requests.put(messages.FetchRequest(topic_name=topic, num_requested=events))
            yield response
            if received >= count:
                break
        call.cancel()
        requests.put(None)


def drain_and_land(target: str, token: AccessToken, count: int, folder: str, topic: str = TOPIC) -> Manifest:
    """Drain ``count`` events into a window at ``folder`` and write its manifest, as a task does."""
    stream = Stream(token.org_id, "pubsub", topic)
    run = RunIdentity("benchmark", "drain", "one", datetime.now(UTC))
    window_id = window_id_for(run, "live", None)
    catalog = LandingCatalog(Landing.from_url(folder))
    started_at = datetime.now(UTC)
    with (
        PubSubClient(Token(token), endpoint=f"http://{target}") as client,
        ParquetWindowWriter(catalog.landing, stream, window_id, attempt="1", schema=client.schema) as writer,
    ):
        result = Drain(client, writer, topic, StartFrom.EARLIEST, DrainLimits(max_events=count)).run()
        landed = writer.finish()
    window = ReplayWindow(
        window_id=window_id,
        kind="live",
        after=None,
        through=result.through,
        event_count=result.event_count,
        first_event_time=landed.first_event_time,
        last_event_time=landed.last_event_time,
        manifest_url=catalog.landing.manifest_url(stream, window_id),
        run=run,
    )
    return catalog.write_manifest(
        Manifest(
            stream=stream,
            window=window,
            fence=0,
            files=landed.files,
            schemas=landed.schemas,
            payload_bytes=landed.payload_bytes,
            stop_reason=result.stop_reason.value,
            started_at=started_at,
            finished_at=datetime.now(UTC),
            provider_version=__version__,
        )
    )


def memory(name: str) -> float:
    """Return ``VmRSS`` or ``VmHWM`` of this process in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


def measure(side: str, target: str, token: AccessToken, count: int) -> dict[str, float]:
    """Run one side in this process and return its figures."""
    with tempfile.TemporaryDirectory() as folder:
        idle, cpu, started = memory("VmRSS"), time.process_time(), time.perf_counter()
        if side == "bare":
            events = read_bare(target, token, count)
            payload_bytes = 0
        else:
            manifest = drain_and_land(target, token, count, folder)
            events, payload_bytes = manifest.window.event_count, manifest.payload_bytes
        seconds = time.perf_counter() - started
        return {
            "events": events,
            "payload_bytes": payload_bytes,
            "seconds": seconds,
            "cpu_seconds": time.process_time() - cpu,
            "peak_mib_above_idle": memory("VmHWM") - idle,
        }


def in_a_process(
    script: str, side: str, target: str, org: LocalOrg, token: str, count: int, **more: str
) -> dict[str, float]:
    """Run one side of ``script`` in a new process, with the settings ``more``."""
    address = {"target": target, "token": token, "instance_url": org.instance_url, "org_id": org.org_id}
    given = {**address, "count": count, **more}
    done = subprocess.run(
        [sys.executable, script, "--side", side],
        env={**os.environ, "SFSTREAM_BENCHMARK": json.dumps(given)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=600,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))  # after the lines that Airflow logs


def run_side(side: str) -> None:
    """Run as one of the two compared processes."""
    given = json.loads(os.environ["SFSTREAM_BENCHMARK"])
    token = AccessToken(given["token"], given["instance_url"], given["org_id"])
    print(json.dumps(measure(side, given["target"], token, given["count"])))


def median(runs: list[dict[str, float]], figure: str) -> float:
    return statistics.median(run[figure] for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", choices=("bare", "drain"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        run_side(arguments.side)
        return
    runs: dict[str, list[dict[str, float]]] = {"bare": [], "drain": []}
    with tempfile.TemporaryDirectory() as directory, LocalOrg.running(Path(directory) / "org") as org:
        fill(org, arguments.events)
        token = org.token()
        for _ in range(arguments.rounds):
            for side, results in runs.items():
                results.append(in_a_process(__file__, side, org.grpc_target, org, token, arguments.events))
    assert all(run["events"] == arguments.events for side in runs.values() for run in side)
    rates = {side: [run["events"] / run["seconds"] for run in results] for side, results in runs.items()}
    ours, bare = statistics.median(rates["drain"]), statistics.median(rates["bare"])
    report = {
        "benchmark": "drain",
        "ratio": round(ours / bare, 3),
        "events": arguments.events,
        "payload_bytes_per_event": round(median(runs["drain"], "payload_bytes") / arguments.events, 1),
        "rounds": arguments.rounds,
        "drain_events_per_second": round(ours),
        "bare_events_per_second": round(bare),
        "drain_cpu_seconds": round(median(runs["drain"], "cpu_seconds"), 2),
        "bare_cpu_seconds": round(median(runs["bare"], "cpu_seconds"), 2),
        "drain_peak_mib_above_idle": round(max(run["peak_mib_above_idle"] for run in runs["drain"]), 1),
        "all_drain_events_per_second": [round(rate) for rate in rates["drain"]],
        "all_bare_events_per_second": [round(rate) for rate in rates["bare"]],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
