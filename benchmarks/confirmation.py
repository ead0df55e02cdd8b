"""Benchmark ``confirmation``: a drain that waits for the confirmed end of the stream, beside a plain drain.

Both drain the same topics of one local org alternately for several rounds; the results are medians. The idle topic has
no event after the position, the second topic has a backlog, the busy topic receives an event every 10 milliseconds. A
plain drain never becomes idle on the busy topic, so it has a time limit.

It prints one JSON line for each topic. ``ratio`` is the seconds of the confirming drain divided by those of the plain
drain. ``calls`` are all requests to Salesforce except logins, ``delivered`` the events that count against the org's
allocation. At the end of a topic without new events the confirming drain waits for an empty response, the plain drain
for ``idle_timeout``. Here the response is sent after ``keepalive_seconds``, at Salesforce after 270 seconds at most:
where that is longer than ``idle_timeout``, the confirmation costs the difference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.events import EventBatch
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.source import StartFrom
from sfstream_localorg.process import LocalOrg

QUIET, BACKLOG, BUSY = "Quiet__e", "Backlog__e", "Busy__e"
BUSY_SECONDS, EVERY_SECONDS = 15.0, 0.01
SIDES = {
    "plain": {},
    "confirming": {"confirm_timeout": 300.0, "wait_for_confirmation": True},
}


class Token:
    """A fixed access token, so that the benchmark does not measure logins."""

    def __init__(self, token: AccessToken) -> None:
        self._token = token

    def token(self) -> AccessToken:
        return self._token

    async def atoken(self) -> AccessToken:
        return self._token

    def invalidate(self, token: AccessToken) -> None:
        pass


class Discarding:
    """A sink that stores nothing."""

    def append(self, batch: EventBatch) -> None:
        pass


@contextmanager
def publishing(org: LocalOrg) -> Iterator[None]:
    """Publish an event to the busy topic every 10 milliseconds."""
    ended = threading.Event()

    def publish() -> None:
        due = time.monotonic()
        while not ended.is_set():
            org.publish(f"/event/{BUSY}", [{"Number__c": 1.0}])
            due += EVERY_SECONDS
            ended.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measure(org: LocalOrg, token: AccessToken, name: str, side: str) -> dict[str, Any]:
    """Drain one topic and return the measured figures."""
    topic, limits = f"/event/{name}", DrainLimits(**SIDES[side], max_seconds=BUSY_SECONDS if name == BUSY else None)
    after = StartFrom.EARLIEST if name == BACKLOG else org.publish(topic, [{"Number__c": 0.0}])[0]
    org.admin("DELETE", "/requests")
    delivered = org.admin("GET", "/org")["delivered"]
    with (
        PubSubClient(Token(token), endpoint=f"http://{org.grpc_target}") as client,
        publishing(org) if name == BUSY else nullcontext(),
    ):
        began = time.perf_counter()
        result = Drain(client, Discarding(), topic, after, limits).run()
        seconds = time.perf_counter() - began
    if side == "confirming":
        assert result.stop_reason is StopReason.CAUGHT_UP, result
        assert isinstance(result.confirmed_at, datetime), result
    methods = [request["method"] for request in org.requests()]
    return {
        "seconds": seconds,
        "calls": len(methods),
        "methods": dict(sorted(Counter(methods).items())),
        "delivered": org.admin("GET", "/org")["delivered"] - delivered,
        "events": result.event_count,
        "stop_reason": result.stop_reason.value,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=20_000, help="of the backlog")
    parser.add_argument("--keepalive", type=float, default=3.0, help="seconds until the org sends an empty response")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, LocalOrg.running(Path(directory) / "org") as org:
        for name in (QUIET, BACKLOG, BUSY):
            org.define(name, Number__c="double")
        org.publish_many(f"/event/{BACKLOG}", arguments.events, {"Number__c": 1.0})
        org.knobs(keepalive_seconds=arguments.keepalive)
        token = AccessToken(org.token(), org.instance_url, org.org_id)
        for name in (QUIET, BACKLOG, BUSY):
            runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
            for _ in range(arguments.rounds):
                for side, results in runs.items():
                    results.append(measure(org, token, name, side))
            print(json.dumps(report(name, runs, arguments.keepalive)), flush=True)


def report(name: str, runs: dict[str, list[dict[str, Any]]], keepalive: float) -> dict[str, Any]:
    """Return the JSON line of one topic."""

    def median(side: str, figure: str) -> float:
        return statistics.median(run[figure] for run in runs[side])

    line: dict[str, Any] = {
        "benchmark": "confirmation",
        "topic": name.removesuffix("__e").lower(),
        "ratio": round(median("confirming", "seconds") / median("plain", "seconds"), 3),
        "rounds": len(runs["plain"]),
        "keepalive_seconds": keepalive,
        "idle_timeout": DrainLimits().idle_timeout,
    }
    for side, results in runs.items():
        line |= {
            f"{side}_seconds": round(median(side, "seconds"), 2),
            f"{side}_calls": median(side, "calls"),
            f"{side}_methods": results[-1]["methods"],
            f"{side}_delivered": median(side, "delivered"),
            f"{side}_events": median(side, "events"),
            f"{side}_stop_reasons": sorted({run["stop_reason"] for run in results}),
        }
    return line


if __name__ == "__main__":
    main()
