"""Benchmark ``streaming``: the package's Streaming API client, compared with the stock library on the same events.

Three readers read retained platform events of about 430 bytes from a local org alternately, each in its own process:
``stock``, aiosfstream's own client (patched to run on this Python, as in the hazard tests) in an ``async for`` with its
defaults; ``bare``, a :class:`StreamingClient` whose batches are only counted; ``landed``, the whole drain and landing.
The server sends all events, 1,000 events or 100 events in one response.

It prints one JSON line for each response size; ``ratio`` is the events per second of ``landed`` divided by those of
``stock``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from drain import WORDS, LocalOrg, Token, in_a_process, median, memory

from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.streaming.client import StreamingClient
from airflow_provider_sfstream.salesforce.streaming.cometd.http import SessionAuthenticator
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream, window_id_for
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.source import StartFrom

sys.path.insert(0, str(Path(__file__).parents[1]))

TOPIC = "/event/Order__e"
SIDES = ("stock", "bare", "landed")


def fill(org: LocalOrg, count: int) -> float:
    """Publish ``count`` events that compress as business data does; return the bytes of one as JSON."""
    random = Random(1)
    org.define("Order__e", Number__c="double", Note__c="string")
    for start in range(0, count, 5_000):
        org.publish(TOPIC, [_event(random) for _ in range(min(5_000, count - start))])
    record = org.admin("GET", f"/events?topic={TOPIC}&api=streaming&limit=500")["events"]
    return sum(len(event["payload"]) / 2 for event in record) / len(record)


def _event(random: Random) -> dict[str, object]:
    words = " ".join(random.choices(WORDS, k=12))
    return {"Number__c": random.random(), "Note__c": f"{random.randbytes(32).hex()} {words}"}


def read_stock(token: AccessToken, count: int) -> int:
    """Receive with aiosfstream's own client, one message after the other, as its documentation shows."""
    from aiosfstream import ReplayOption

    from tests.support.stock_aiosfstream import StockClient, stock_asyncio

    # aiosfstream stores no cookies of an IP address, and logs an error for its own disconnect.
    by_name = replace(token, instance_url=token.instance_url.replace("127.0.0.1", "localhost"))
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    async def receive() -> int:
        received = 0
        authenticator = SessionAuthenticator(Token(by_name))
        client = StockClient(authenticator, replay=ReplayOption.ALL_EVENTS)
        try:
            await client.open()
            await client.subscribe(TOPIC)
            async for _ in client:
                received += 1
                if received == count:
                    break
        finally:
            await client.abandon()
        return received

    with stock_asyncio():
        return asyncio.run(receive())


def read_bare(token: AccessToken, count: int) -> int:
    """Count the events of the package's client."""
    with StreamingClient(Token(token)) as client:
        batches = client.subscribe(TOPIC, StartFrom.EARLIEST, limit=count, idle_timeout=60)
        return sum(len(batch) for batch in batches if batch is not None)


def read_landed(token: AccessToken, count: int, folder: str) -> int:
    """Drain and land, as a task does."""
    window_id = window_id_for(RunIdentity("benchmark", "streaming", "one", datetime.now(UTC)), "live", None)
    stream = Stream(token.org_id, "streaming", TOPIC)
    with (
        StreamingClient(Token(token)) as client,
        ParquetWindowWriter(
            Landing.from_url(folder),
            stream,
            window_id,
            attempt="1",
            schema=client.schema,
            payload_encoding=client.payload_encoding,
        ) as writer,
    ):
        Drain(client, writer, TOPIC, StartFrom.EARLIEST, DrainLimits(max_events=count)).run()
        return writer.finish().event_count


def run_side(side: str) -> None:
    """Run as one of the compared processes."""
    given = json.loads(os.environ["SFSTREAM_BENCHMARK"])
    token, count = AccessToken(given["token"], given["instance_url"], given["org_id"]), given["count"]
    if side == "stock":
        import tests.support.stock_aiosfstream  # noqa: F401 - imported before the measurement
    with tempfile.TemporaryDirectory() as folder:
        idle, cpu, started = memory("VmRSS"), time.process_time(), time.perf_counter()
        if side == "stock":
            events = read_stock(token, count)
        else:
            events = read_bare(token, count) if side == "bare" else read_landed(token, count, folder)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    print(
        json.dumps(
            {
                "events": events,
                "events_per_second": events / seconds,
                "cpu_microseconds": cpu_seconds / events * 1e6,
                "peak_mib_above_idle": memory("VmHWM") - idle,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        run_side(arguments.side)
        return
    with tempfile.TemporaryDirectory() as directory, LocalOrg.running(Path(directory) / "org") as org:
        size = fill(org, arguments.events)
        token = org.token()
        for in_one_answer in (None, 1_000, 100):
            org.knobs(cometd_batch_events=in_one_answer)
            runs: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
            for _ in range(arguments.rounds):
                for side, results in runs.items():
                    results.append(in_a_process(__file__, side, "", org, token, arguments.events))
            assert all(run["events"] == arguments.events for results in runs.values() for run in results)
            print(json.dumps(report(runs, arguments.events, size, in_one_answer)), flush=True)


def report(
    runs: dict[str, list[dict[str, float]]], events: int, size: float, in_one_answer: int | None
) -> dict[str, object]:
    """Return the medians of all rounds."""
    rate = {side: median(results, "events_per_second") for side, results in runs.items()}
    cpu = {side: median(results, "cpu_microseconds") for side, results in runs.items()}
    return {
        "benchmark": "streaming",
        "ratio": round(rate["landed"] / rate["stock"], 2),
        "ratio_bare": round(rate["bare"] / rate["stock"], 2),
        "cpu_ratio": round(cpu["landed"] / cpu["stock"], 3),
        "events": events,
        "payload_bytes_per_event": round(size),
        "events_in_one_answer": in_one_answer or "all",
        "rounds": len(runs["stock"]),
        **{f"{side}_events_per_second": round(rate[side]) for side in SIDES},
        **{f"{side}_cpu_microseconds_per_event": round(cpu[side], 1) for side in SIDES},
        **{
            f"{side}_peak_mib_above_idle": round(max(run["peak_mib_above_idle"] for run in results), 1)
            for side, results in runs.items()
        },
    }


if __name__ == "__main__":
    main()
