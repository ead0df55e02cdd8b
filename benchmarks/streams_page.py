"""Benchmark ``streams_page``: the streams page for 200 streams of 175 windows each, on a real API server.

The status is stored once in Airflow's Variables, encrypted by Airflow, and once in a table. The benchmark measures the
seconds until the server has responded, including Airflow's own work (login, permissions, compression). If Chromium is
installed, it also measures the seconds from the click to the last row on the screen.

It prints one JSON line for each store; ``ratio`` is 100 ms divided by the median response time of the slower view.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from airflow_provider_sfstream.monitoring.status import Status, event_log_document  # noqa: E402
from airflow_provider_sfstream.monitoring.status_store import status_to_text, variable_key  # noqa: E402
from tests.support.browser import browser_page  # noqa: E402
from tests.support.packages import BROWSER  # noqa: E402
from tests.support.page_server import PageServer, running_page  # noqa: E402
from tests.support.stream_statuses import drain_statuses, failure_status, task_fields  # noqa: E402

STREAMS, WINDOWS, REQUESTS = 200, 175, 40
LIMIT = 0.1
"""Seconds."""


def statuses(now: datetime) -> Iterator[Status]:
    """Yield the status documents of the streams: five of each, as written by a waiting drain and an event log."""
    for number in range(STREAMS):
        dag_id = f"orders_{number % 40}"
        found = drain_statuses(
            now,
            f"/event/Order{number}__e",
            dag_id=dag_id,
            windows=WINDOWS,
            every=timedelta(minutes=15),
            ended=timedelta(minutes=number % 60),
        )
        subject = found[0].subject
        yield from found
        yield Status(subject, "wait", {"reason": "events", **task_fields(now, dag_id, "wait")})
        facts: dict[str, Any] = {
            "output_url": f"s3://lake/tables/{number}",
            "rows_written": 10,
            "windows": ["w00001"],
            "quarantined": number % 9 // 8,
        }
        done = event_log_document(None, {**facts, **task_fields(now, dag_id, "event_log")})
        yield Status(subject, "event_log.0123456789abcdef", done)
        earlier = failure_status(
            now - timedelta(hours=number % 30), subject, {"Error": "ContactError: x" * 10, "Action": "y" * 200}
        )
        yield Status(subject, "failed", earlier.document | {"task": task_fields(now, dag_id)["task"]})


def answers(client: httpx.Client, path: str, **parameters: str) -> list[float]:
    """Return the seconds of each request, except for the first few requests, which fill caches."""
    seconds = []
    for _ in range(REQUESTS + 3):
        began = time.perf_counter()
        client.get(path, params=parameters).raise_for_status()
        seconds.append(time.perf_counter() - began)
    return seconds[3:]


def on_screen(server: PageServer, token: str) -> float | None:
    """Return the median seconds from the request until all rows are shown, or ``None`` without a browser."""
    if BROWSER.find() is None:
        return None
    seconds = []
    with browser_page() as page:
        page.context.add_cookies([{"name": "_token", "value": token, "url": server.url}])
        for _ in range(5):
            began = time.perf_counter()
            page.goto(f"{server.url}/sfstream/")
            page.locator("tbody tr").nth(STREAMS - 1).wait_for()
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def measured(place: str, folder: Path, found: list[Status]) -> dict[str, Any]:
    """Return the figures for one status store."""
    table = place == "table"
    settings = {} if table else {"AIRFLOW__SFSTREAM__STATUS_CONN_ID": ""}
    server = PageServer(folder / place, users={"ada": "admin:red"}, **settings)
    rows: dict[str, Any] = {"teams": ["red"], "connections": {"salesforce_default": "red"}}
    rows["dags"] = {f"orders_{number}": "red" for number in range(40)}
    if table:
        server.store_statuses(found)
    else:
        rows["variables"] = {variable_key(each.subject, each.section): status_to_text(each) for each in found}
    with running_page(server, **rows):
        token = server.token("ada")
        with httpx.Client(base_url=f"{server.url}/sfstream/", cookies={"_token": token}, timeout=60) as client:
            everything = client.get("api/streams")
            assert len(everything.json()["streams"]) == STREAMS
            one = client.get("api/stream", params={"uri": found[0].subject})
            assert len(one.json()["timeline"]["windows"]) == WINDOWS
            views = {"all": answers(client, "api/streams"), "one": answers(client, "api/stream", uri=found[0].subject)}
        shown = on_screen(server, token)
    medians = {view: statistics.median(seconds) for view, seconds in views.items()}
    return {
        "benchmark": "streams_page",
        "place": place,
        "ratio": round(LIMIT / max(medians.values()), 2),
        "documents": len(found),
        "windows": STREAMS * WINDOWS,
        **{f"{view}_ms": round(median * 1000, 1) for view, median in medians.items()},
        **{
            f"{view}_p95_ms": round(statistics.quantiles(seconds, n=20)[-1] * 1000, 1)
            for view, seconds in views.items()
        },
        "all_kib": round(len(everything.content) / 1024),
        "on_screen_ms": None if shown is None else round(shown * 1000),
    }


def main() -> None:
    found = list(statuses(datetime.now(UTC)))
    with tempfile.TemporaryDirectory() as folder:
        for place in ("variables", "table"):
            print(json.dumps(measured(place, Path(folder), found)), flush=True)


if __name__ == "__main__":
    main()
