"""Numbers of status documents as Airflow metrics, for StatsD and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from airflow_provider_sfstream._airflow import gauge
from airflow_provider_sfstream.monitoring.headroom import Headroom
from airflow_provider_sfstream.monitoring.status import Document
from airflow_provider_sfstream.salesforce.stream_uris import SCHEME, StreamUri

_AGES = {"last_event_time": "last_event_age", "contact_at": "contact_age", "confirmed_at": "confirmed_age"}


def emit_metrics(subject: str, section: str, document: Document, *, is_new: bool = True) -> None:
    """Emit the numbers of a document as Airflow gauges, tagged with the stream or the folder of tables.

    :param is_new: ``False``: only the numbers that hold until the next document, not those of the run that wrote it.
    """
    tags = _tags(subject)
    for name, value, further_tags in numbers(section, document, datetime.now(UTC), is_new):
        gauge(f"sfstream.{name}", value, {**tags, **further_tags})


def numbers(
    section: str, document: Document, now: datetime, is_new: bool
) -> Iterator[tuple[str, float, dict[str, str]]]:
    """Yield the name, the value and the further tags of each gauge. Durations are seconds, sizes bytes."""
    if section == "drain":
        for key, name in _AGES.items():
            if document.get(key):
                yield name, (now - datetime.fromisoformat(document[key])).total_seconds(), {}
        headroom = Headroom.from_drain(document, now)
        if headroom.known is not None:
            yield "headroom", headroom.known.total_seconds(), {}
        if is_new and (window := document.get("window")):
            yield "window_events", window["event_count"], {}
            yield "window_bytes", window["payload_bytes"], {}
        yield "gaps", len(document["gaps"]), {}
    for name in ("quarantined", "rows_written", "duplicates", "seconds", "remaining", "event_count"):
        if is_new and name in document:
            yield f"{section.partition('.')[0]}_{name}", document[name], {}
    if section == "tables":
        for table, metrics in document.get("tables", {}).items():
            yield "dirty_rows", metrics.get("dirty", 0), {"table": table}
            yield "flagged_tables", float(metrics.get("flag") is not None), {"table": table}


def _tags(subject: str) -> dict[str, str]:
    if "/" not in subject:  # the connection of an allocation
        return {"salesforce_conn_id": subject}
    if not subject.startswith(f"{SCHEME}://"):
        return {"tables": subject}
    uri = StreamUri.parse(subject)
    return {"salesforce_conn_id": uri.salesforce_conn_id, "topic": uri.topic, "subscription": uri.subscription or ""}
