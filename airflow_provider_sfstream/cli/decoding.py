"""Events as rows of their own fields: of landed windows, and of a topic that is only looked at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any

from airflow_provider_sfstream.actions.arguments import start_from_text
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.hooks.event_api import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream
from airflow_provider_sfstream.salesforce.topics import Api, Topic
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.windows import read_windows


def decoded_rows(manifest_url: str, landing_conn_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the events of a landed window in its order, those that cannot be decoded too, each with its ``_table``.

    Memory is that of the window's events.

    :raises SalesforceStreamError: see :func:`~airflow_provider_sfstream.windows.read_windows`.
    """
    tables = read_windows(manifest_url, landing_conn_id=landing_conn_id)
    rows = [{"_table": name, **row} for name, table in tables.items() for row in table.to_pylist()]
    yield from sorted(rows, key=lambda row: int(row["_ordinal"] if "_ordinal" in row else row["ordinal"]))


def peeked_rows(
    topic: str,
    api: Api | None,
    salesforce_conn_id: str,
    start_from: str,
    max_events: int,
    max_seconds: float,
    idle_timeout: float,
) -> Iterator[dict[str, Any]]:
    """Yield events of a topic, drained into a folder of its own that is gone afterwards: no position is moved by it.

    :raises SalesforceStreamError: as a drain does.
    """
    wanted, start = Topic.parse(topic, api), start_from_text(start_from)
    hook, now = event_hook(wanted.api, salesforce_conn_id), datetime.now(UTC)
    limits = DrainLimits(max_events=max_events, max_seconds=max_seconds, idle_timeout=idle_timeout)
    request = WindowRequest(run=RunIdentity("sfstream", "peek", now.isoformat(), now), limits=limits, start_from=start)
    with TemporaryDirectory(prefix="sfstream-peek-") as folder, hook.get_conn() as client:
        catalog = open_landing(folder, None)
        stream = Stream(hook.org_id, wanted.api, wanted.name, "peek")
        landed = LandedStream(stream, catalog, open_replay_store("landing", "", catalog))
        outcome = drain_window(landed, request, source=client)
        for row in decoded_rows(outcome.manifest.window.manifest_url):
            row.pop("window_id", None)  # of the folder that is gone afterwards
            yield row
