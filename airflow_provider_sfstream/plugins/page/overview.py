"""Data of the page of all streams, worst first, from status documents."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from airflow_provider_sfstream.monitoring.headroom import Headroom
from airflow_provider_sfstream.monitoring.health import LEVELS, HealthLimits, findings_of, worst
from airflow_provider_sfstream.monitoring.known_status import ReportedStatus
from airflow_provider_sfstream.monitoring.pages import dag_page, task_page
from airflow_provider_sfstream.monitoring.status import HOURS, Document, Status
from airflow_provider_sfstream.plugins.page.loading import parsed
from airflow_provider_sfstream.salesforce.topics import SHORT_RETENTION, retention_by_kind

_OF_DRAIN = ("confirmed_at", "contact_at", "last_event_time")


def overview(statuses: Iterable[Status], now: datetime, dag_id: str | None = None) -> Document:
    """Return the page's data of all streams.

    :param dag_id: only streams with a status of a task of this DAG; ``None`` for all.
    """
    reported = ReportedStatus(statuses)
    uris = [uri for uri in reported.streams() if dag_id is None or dag_id in reported.dag_ids(uri)]
    rows = [stream_row(reported, uri, now) for uri in uris]
    folders = [failure_of(reported, subject) for subject in reported.failed_folders()] if dag_id is None else []
    return {"now": now.isoformat(), "streams": [row for *_, row in sorted(map(_by_worst, rows))], "folders": folders}


def stream_row(known: ReportedStatus, uri: str, now: datetime) -> Document:
    """Return the page's data of a stream, or a note that its documents cannot be read."""
    try:
        return _row(known, uri, now)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        # Anyone who may write Variables may have written this document: it must not hide the other streams.
        concern = {"level": "warning", "text": "The status documents cannot be read"}
        return {"uri": uri, "topic": uri, "level": "warning", "concerns": [concern]}


def failure_of(known: ReportedStatus, subject: str) -> Document | None:
    """Return the last failure of a subject; ``None`` after a later success."""
    failed = known.failure(subject)
    if failed is None:
        return None
    report, task = failed.get("report", {}), failed["task"]
    facts = {"error": report.get("Error", "see its log"), "at": failed["at"], "report": report}
    return {"subject": subject, **facts, "task_id": task["task_id"], "page": task_page(task)}


def _row(reported: ReportedStatus, uri: str, now: datetime) -> Document:
    parts = parsed(uri)
    drain = reported.section(uri, "drain")
    dag_ids = reported.dag_ids(uri)
    tables = replica_tables(reported, uri)
    subjects = (uri, *reported.folders(uri), parts.salesforce_conn_id)
    findings = [finding for subject in subjects for finding in findings_of(reported, subject, HealthLimits(), now)]
    findings.sort(key=lambda finding: (LEVELS.index(finding.level), finding.kind != "failure"))
    # Several tables or event logs of a stream can have equal findings: each text is shown once.
    concerns = dict.fromkeys((finding.level, finding.text) for finding in findings if finding.level != "good")
    headroom = Headroom.from_drain(drain, now) if "retention" in drain else None
    return {
        "uri": uri,
        "connection": parts.salesforce_conn_id,
        "topic": parts.topic,
        "subscription": parts.subscription,
        "api": parts.api or drain.get("stream", {}).get("api"),
        "retention": drain.get("retention", (retention_by_kind(parts.topic) or SHORT_RETENTION).total_seconds()),
        "drained_at": drain.get("at"),
        **{name: drain.get(name) for name in _OF_DRAIN},
        "certainty": reported.certainty(uri),
        "hours": hourly(drain.get("hours", {}), now),
        "gaps": len(drain.get("gaps", [])),
        "missing": drain.get("missing", []),
        "quarantined": sum(_set_aside(document) for document in reported.event_logs(uri)),
        "dirty": sum(table["dirty"] for table in tables),
        "flagged": sum(table["flag"] is not None for table in tables),
        "failures": [failure for subject in subjects if (failure := failure_of(reported, subject))],
        "allocations": [
            {"name": name, "used": used, "maximum": maximum} for name, used, maximum in reported.allocations(uri)
        ],
        "dags": [{"dag_id": dag_id, "page": dag_page(dag_id)} for dag_id in dag_ids],
        "headroom": headroom
        and {
            "known": _seconds(headroom.known),
            "assumed": _seconds(headroom.assumed),
            "best": _seconds(headroom.best),
            "level": worst([finding for finding in findings if finding.kind in ("time_left", "end")]),
        },
        "level": worst(findings),
        "concerns": [{"level": level, "text": text} for level, text in concerns],
    }


def replica_tables(known: ReportedStatus, uri: str) -> list[Document]:
    """Return the tables of each replica that a stream was applied to."""
    return [
        {"url": url, "table": name, "dirty": table.get("dirty", 0), "flag": table.get("flag")}
        for url in known.replicas(uri)
        for name, table in sorted(known.section(url, "tables").get("tables", {}).items())
    ]


def hourly(hours: dict[str, int], now: datetime) -> list[int]:
    """Return the number of events drained in each of the last hours, the current hour last."""
    return [hours.get(hour, 0) for hour in _hours_until(now.replace(minute=0, second=0, microsecond=0))]


@lru_cache(maxsize=2)
def _hours_until(hour: datetime) -> list[str]:
    """Return the names of the last hours. Cached, because formatting times takes longest of the data of a stream."""
    return [f"{hour - timedelta(hours=ago):%Y-%m-%dT%H}" for ago in range(HOURS - 1, -1, -1)]


def _set_aside(event_log: Document) -> int:
    """Return the number of rows in the last quarantine of an event log."""
    return int((event_log.get("set_aside") or {}).get("rows", 0))


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _by_worst(row: Document) -> tuple[int, float, str, dict[str, Any]]:
    """Return the sort key of a stream: problems, then remaining time, then name."""
    best = (row.get("headroom") or {}).get("best")
    return LEVELS.index(row["level"]), float("-inf") if best is None else best, row["uri"], row
