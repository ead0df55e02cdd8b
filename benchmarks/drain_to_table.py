"""Benchmark ``drain_to_table``: events from the topic to a table, compared with a loop in Python that stores the same.

The package's side is a drain, then :class:`EventLogOperator` on its window. The loop's side is the bare reader of
``drain.py``, and fastavro and Parquet files by day, as in ``embedded.py``. Both read the same retained events from a
local org, platform events of about 100 bytes and change events of about 440, alternately, each in its own process,
after a warm-up with few events; the results are medians. The outputs are compared row by row.

It prints one JSON line for each kind of events. ``ratio`` is the package's events per second divided by the loop's,
``cpu_ratio`` the loop's CPU seconds divided by the package's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa
from deltalake import DeltaTable

from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from benchmarks import embedded
from benchmarks.drain import WORDS, Token, drain_and_land, in_a_process, median, responses
from sfstream_localorg.process import LocalOrg

TABLES = {"/event/Order__e": "Order__e", "/data/AccountChangeEvent": "AccountChangeEvent"}
SIDES = ("package", "loop")
WARM_UP = 1_000
DIFFERENT = ("_received_at", "_org_id", "window_id")
"""Columns that the sides fill differently, because each receives the events itself."""


def fill(org: LocalOrg, count: int) -> None:
    """Publish ``count`` platform events, and create ``count`` records."""
    random = Random(1)
    org.define("Order__e", Number__c="double", Status__c="string", Note__c="string")
    for start in range(0, count, 5_000):
        events = range(start, min(start + 5_000, count))
        org.publish("/event/Order__e", [_order(random) for _ in events])
    for start in range(0, count, 200):
        records = [_account(random) for _ in range(start, min(start + 200, count))]
        org.rest("POST", "/composite/sobjects", {"allOrNone": True, "records": records})


def _order(random: Random) -> dict[str, Any]:
    words = " ".join(random.choices(WORDS, k=6))
    return {"Number__c": random.random(), "Status__c": random.randbytes(9).hex(), "Note__c": words}


def _account(random: Random) -> dict[str, Any]:
    return {
        "attributes": {"type": "Account"},
        "Name": " ".join(random.choices(WORDS, k=3)),
        "Phone": f"+49 {random.randrange(10**9)}",
        "AnnualRevenue": random.random() * 1e6,
        "Description": " ".join(random.choices(WORDS, k=14)),
    }


def work(side: str, given: dict[str, Any]) -> dict[str, float]:
    """Run one side in this process, after a warm-up, and return its figures."""
    token = AccessToken(given["token"], given["instance_url"], given["org_id"])
    target, topic, output = given["target"], given["topic"], Path(given["output"])
    if side == "package":
        _package(target, token, topic, WARM_UP, output / "warm-up")
    else:
        layout = pa.schema(DeltaTable(output.with_name("package") / "tables" / TABLES[topic]).schema().to_arrow())
        with PubSubClient(Token(token), endpoint=f"http://{target}") as client:
            avro = json.loads(client.schema(client.get_topic(topic).schema_id))
        _loop(target, token, topic, WARM_UP, output / "warm-up", layout, avro)
    cpu, started = time.process_time(), time.perf_counter()
    if side == "package":
        _package(target, token, topic, given["count"], output)
    else:
        _loop(target, token, topic, given["count"], output / "tables" / TABLES[topic], layout, avro)
    return {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}


def _package(target: str, token: AccessToken, topic: str, count: int, output: Path) -> None:
    from airflow_provider_sfstream.operators.event_log import EventLogOperator
    from tests.support.tasks import context_for

    manifest = drain_and_land(target, token, count, str(output / "landing"), topic)
    url = manifest.window.manifest_url
    EventLogOperator(task_id="job", windows=url, output_url=str(output / "tables")).execute(context_for("job"))


def _loop(
    target: str, token: AccessToken, topic: str, count: int, output: Path, layout: pa.Schema, avro: dict[str, Any]
) -> None:
    with embedded.LoopWriter(output, layout, avro, topic, "loop") as writer:
        rows: list[dict[str, Any]] = []
        for ordinal, event in enumerate(
            event for page in responses(target, token, count, topic) for event in page.events
        ):
            rows.append(
                {
                    "ordinal": ordinal,
                    "replay_id": event.replay_id,
                    "event_id": event.event.id or None,
                    "schema_id": event.event.schema_id,
                    "payload": event.event.payload,
                    "received_at": None,
                }
            )
            if len(rows) == embedded.LOOP_ROWS:
                writer.write(rows)
                rows = []
        writer.write(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        print(json.dumps(work(given.side, json.loads(os.environ["SFSTREAM_BENCHMARK"]))))
        return
    with tempfile.TemporaryDirectory() as name, LocalOrg.running(Path(name) / "org") as org:
        fill(org, given.events)
        for topic in TABLES:
            print(json.dumps(_measured(org, topic, Path(name), given)), flush=True)


def _measured(org: LocalOrg, topic: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for number in range(given.rounds):
        for side, results in runs.items():
            output = folder / TABLES[topic] / str(number) / side
            extra = {"topic": topic, "output": str(output)}
            results.append(in_a_process(__file__, side, org.grpc_target, org, org.token(), given.events, **extra))
        ours, theirs = (folder / TABLES[topic] / str(number) / side / "tables" / TABLES[topic] for side in SIDES)
        embedded.compare(ours, theirs, "_ordinal", DIFFERENT)
    rates = {side: given.events / median(results, "seconds") for side, results in runs.items()}
    cpu = {side: median(results, "cpu_seconds") * 100_000 / given.events for side, results in runs.items()}
    payloads = [
        bytes.fromhex(event["payload"]) for event in org.admin("GET", f"/events?topic={topic}&limit=500")["events"]
    ]
    return {
        "benchmark": "drain_to_table",
        "topic": topic,
        "ratio": round(rates["package"] / rates["loop"], 2),
        "cpu_ratio": round(cpu["loop"] / cpu["package"], 2),
        "events": given.events,
        "payload_bytes_per_event": round(sum(map(len, payloads)) / len(payloads), 1),
        "events_per_second": {side: round(rate) for side, rate in rates.items()},
        "cpu_seconds_per_100_000": {side: round(seconds, 2) for side, seconds in cpu.items()},
    }


if __name__ == "__main__":
    main()
