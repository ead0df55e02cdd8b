"""Rows in the output of commands: positions, windows, streams and decoded events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any

from airflow_provider_sfstream._airflow import AirflowNotFoundException
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.cli.options import LandedStreamsOptions
from airflow_provider_sfstream.exceptions import StartNotPinnedError
from airflow_provider_sfstream.hooks.event_topics import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.monitoring.status import Certainty, window_line
from airflow_provider_sfstream.replay_stores.base import Position, ReplayStore
from airflow_provider_sfstream.replay_stores.kinds import REPLAY_STORES, ReplayStoreKind
from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.replay_ids import start_from_text
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream
from airflow_provider_sfstream.salesforce.topics import Api, Topic
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.windows import read_windows


def position_rows(names: LandedStreamsOptions) -> list[dict[str, Any]]:
    """Return the positions of the named topics, or of all streams of the landing."""
    catalog = open_landing(names.landing_url, names.landing_conn_id)
    stores: dict[ReplayStoreKind, ReplayStore] = {}
    for kind in REPLAY_STORES if names.replay_store is None else (names.replay_store,):
        # Without a named store, the table store is optional: its connection may not exist.
        with suppress(*() if names.replay_store else (AirflowNotFoundException,)):
            stores[kind] = open_replay_store(kind, names.replay_store_conn_id, catalog)
    topics = [Topic.parse(topic, names.api) for topic in names.topics or ()]
    streams = [
        Stream(event_hook(topic.api, names.salesforce_conn_id).known_org_id, topic.api, topic.name, names.subscription)
        for topic in topics
    ]
    rows = []
    for stream in streams or catalog.streams():
        found = [_position_row(stream, store.read(stream), kind) for kind, store in stores.items()]
        rows += [row for row in found if row["replay_id"] is not None] or found[:1]
    return rows


def _position_row(stream: Stream, position: Position, replay_store: ReplayStoreKind) -> dict[str, Any]:
    """Return the row of a position. ``certainty`` is that of the time up to which events are stored."""
    is_proven = position.confirmed_at is not None and stream.api == "pubsub"
    certainty: Certainty = "proven" if is_proven else "estimated" if position.contact_at is not None else "unknown"
    return {**vars(stream), **asdict(position), "certainty": certainty, "replay_store": replay_store}


def window_row(manifest: Manifest) -> dict[str, Any]:
    """Return the row of a window: the data of the streams page, with its first and last replay ID."""
    return {**window_line(manifest), **manifest.facts("after", "through")}


STATUS_COLUMNS = {
    "level": "State",
    "topic": "Topic",
    "connection": "Connection",
    "subscription": "Subscription",
    "left": "Left",
    "drained": "Drained",
    "events": "Events",
}


def status_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns of the status table, without a connection or subscription that is equal in all rows."""
    equal = {name for name in ("connection", "subscription") if len({row.get(name) for row in rows}) <= 1}
    return {name: title for name, title in STATUS_COLUMNS.items() if name not in equal}


def status_row(stream: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return the table row of a stream of the page, with relative times."""
    headroom, drained_at = stream.get("headroom") or {}, stream.get("drained_at")
    seconds = headroom.get("best")
    suffix = "" if headroom.get("certainty") == "proven" else " est."
    return {
        **stream,
        "level": "DAG deleted" if stream["retired"] else stream["level"],
        "drained": drained_at and f"{_duration((now - datetime.fromisoformat(drained_at)).total_seconds())} ago",
        "left": None if seconds is None else f"{_duration(seconds)}{suffix}",
        "events": sum(stream.get("hours", ())),
    }


FOLLOWING = DrainLimits(max_events=100, max_seconds=None, idle_timeout=0.5)
"""Limits of one drain of ``peek --follow``, so that an event is shown within about a second."""


def _duration(seconds: float) -> str:
    """Return a duration in its largest whole unit, such as ``4 min``; ``0 s`` for a negative one."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def decoded_rows(manifest_url: str, landing_conn_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the events of a landed window in its order, including undecodable ones, each with its ``_table``.

    Holds all events of the window in memory.
    """
    tables = read_windows(manifest_url, landing_conn_id=landing_conn_id)
    rows = [{"_table": name, **row} for name, table in tables.items() for row in table.to_pylist()]
    yield from sorted(rows, key=lambda row: int(row["_ordinal"] if "_ordinal" in row else row["ordinal"]))


def peeked_rows(
    topic: str, api: Api | None, salesforce_conn_id: str, start_from: str, limits: DrainLimits, *, follow: bool
) -> Iterator[dict[str, Any]]:
    """Yield events of a topic. They are drained into a temporary folder with its own position, so no position moves.

    :param follow: drain again after each drain, without end.
    """
    parsed, after = Topic.parse(topic, api), start_from_text(start_from)
    hook = event_hook(parsed.api, salesforce_conn_id)
    with TemporaryDirectory(prefix="sfstream-peek-") as folder, hook.get_conn() as client:
        catalog = open_landing(folder, None)
        stream = Stream(hook.org_id, parsed.api, parsed.name, "peek")
        landed = LandedStream(stream, catalog, open_replay_store("landing", "", catalog))
        while True:
            now = datetime.now(UTC)
            run = RunIdentity("sfstream", "peek", now.isoformat(), now)
            with suppress(StartNotPinnedError):  # no event since the latest one
                outcome = drain_window(landed, WindowRequest(run, limits=limits, start_from=after), source=client)
                for row in decoded_rows(outcome.manifest.window.manifest_url):
                    row.pop("window_id", None)  # it identifies only a window in the temporary folder
                    yield row
            if not follow:
                return
