"""Rows in the output of commands: positions, windows, streams and decoded events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any

from airflow_provider_sfstream.actions.arguments import start_from_text
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.actions.stream_maintenance import hex_of
from airflow_provider_sfstream.cli.options import LandedStreamsOptions
from airflow_provider_sfstream.hooks.event_topics import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.monitoring.status import Certainty, window_line
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream
from airflow_provider_sfstream.salesforce.topics import Api, Topic
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.windows import read_windows


def position_rows(names: LandedStreamsOptions) -> list[dict[str, Any]]:
    """Return the positions of the named topics, or of all streams of the landing."""
    catalog = open_landing(names.landing_url, names.landing_conn_id)
    store = open_replay_store(names.replay_store, names.replay_store_conn_id, catalog)
    topics = [Topic.parse(topic, names.api) for topic in names.topics or ()]
    streams = [
        Stream(event_hook(topic.api, names.salesforce_conn_id).known_org_id, topic.api, topic.name, names.subscription)
        for topic in topics
    ]
    return [_position_row(stream, store.read(stream)) for stream in (streams or catalog.streams())]


def _position_row(stream: Stream, position: Position) -> dict[str, Any]:
    """Return the row of a position. ``certainty`` is that of the time up to which events are stored."""
    is_proven = position.confirmed_at is not None and stream.api == "pubsub"
    certainty: Certainty = "proven" if is_proven else "estimated" if position.contact_at is not None else "unknown"
    return {**vars(stream), **asdict(position), "certainty": certainty}


def window_row(manifest: Manifest) -> dict[str, Any]:
    """Return the row of a window: the data of the streams page, with its first and last replay ID."""
    window = manifest.window
    return {**window_line(manifest), "after": hex_of(window.after), "through": hex_of(window.through)}


STATUS_COLUMNS = {
    "level": "State",
    "topic": "Topic",
    "connection": "Connection",
    "subscription": "Subscription",
    "left": "Left",
    "drained_at": "Drained",
    "events": "Events in 72 h",
    "concerns": "Findings",
}


def status_row(stream: dict[str, Any]) -> dict[str, Any]:
    """Return the table row of a stream of the page."""
    headroom = stream.get("headroom") or {}
    seconds = headroom.get("best")
    suffix = "" if headroom.get("certainty") == "proven" else " (estimated)"
    return {
        **stream,
        "level": "DAG deleted" if stream["retired"] else stream["level"],
        "left": None if seconds is None else f"{seconds / 3600:.1f} h{suffix}",
        "events": sum(stream.get("hours", ())),
        "concerns": [concern["text"] for concern in stream["concerns"]],
    }


def decoded_rows(manifest_url: str, landing_conn_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the events of a landed window in its order, including undecodable ones, each with its ``_table``.

    Holds all events of the window in memory.
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
    """Yield events of a topic. They are drained into a temporary folder with its own position, so no position moves."""
    parsed, after = Topic.parse(topic, api), start_from_text(start_from)
    hook, now = event_hook(parsed.api, salesforce_conn_id), datetime.now(UTC)
    limits = DrainLimits(max_events=max_events, max_seconds=max_seconds, idle_timeout=idle_timeout)
    request = WindowRequest(run=RunIdentity("sfstream", "peek", now.isoformat(), now), limits=limits, start_from=after)
    with TemporaryDirectory(prefix="sfstream-peek-") as folder, hook.get_conn() as client:
        catalog = open_landing(folder, None)
        stream = Stream(hook.org_id, parsed.api, parsed.name, "peek")
        landed = LandedStream(stream, catalog, open_replay_store("landing", "", catalog))
        outcome = drain_window(landed, request, source=client)
        for row in decoded_rows(outcome.manifest.window.manifest_url):
            row.pop("window_id", None)  # it identifies only a window in the temporary folder
            yield row
