"""What is recorded of streams, as rows to show."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow_provider_sfstream.actions.repairs import hex_of
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.cli.options import LandedStreamsOptions
from airflow_provider_sfstream.hooks.event_api import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.monitoring.status import Certainty, window_line
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import Topic


def position_rows(names: LandedStreamsOptions) -> list[dict[str, Any]]:
    """Return the positions of the topics, or of all streams of the landing where none is named.

    :raises SalesforceStreamError: if landing, store or login cannot be used.
    """
    catalog = open_landing(names.landing_url, names.landing_conn_id)
    store = open_replay_store(names.replay_store, names.replay_store_conn_id, catalog)
    topics = [Topic.parse(topic, names.api) for topic in names.topics or ()]
    streams = [
        Stream(event_hook(topic.api, names.salesforce_conn_id).known_org_id, topic.api, topic.name, names.subscription)
        for topic in topics
    ]
    return [_position_row(stream, store.read(stream)) for stream in (streams or catalog.streams())]


def _position_row(stream: Stream, position: Position) -> dict[str, Any]:
    """Return what is listed of a position. ``certainty`` is that of the time up to which events are stored."""
    is_proven = position.confirmed_at is not None and stream.api == "pubsub"
    certainty: Certainty = "proven" if is_proven else "estimated" if position.contact_at is not None else "unknown"
    return {**vars(stream), **asdict(position), "certainty": certainty}


def window_row(manifest: Manifest) -> dict[str, Any]:
    """Return what is listed of a window: what the page of streams has, and from which replay ID to which it goes."""
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
    "concerns": "What is wrong",
}


def status_row(stream: dict[str, Any]) -> dict[str, Any]:
    """Return what a line of a table has of a stream of the page."""
    left = stream.get("headroom") or {}
    perhaps, seconds = "" if left.get("assumed") is None else "perhaps ", left.get("best")
    return {
        **stream,
        "left": None if seconds is None else f"{perhaps}{seconds / 3600:.1f} h",
        "events": sum(stream.get("hours", ())),
        "concerns": [concern["text"] for concern in stream["concerns"]],
    }
