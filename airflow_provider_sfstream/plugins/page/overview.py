"""Data of the page of all streams, worst first, from status documents."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from airflow_provider_sfstream.monitoring.headroom import Headroom
from airflow_provider_sfstream.monitoring.health import LEVELS, HealthLimits, findings_of, worst, worst_level
from airflow_provider_sfstream.monitoring.known_status import ReportedStatus
from airflow_provider_sfstream.monitoring.pages import dag_page, task_page
from airflow_provider_sfstream.monitoring.status import HOURS, Document, Status, certainty_of
from airflow_provider_sfstream.plugins.page.loading import parsed
from airflow_provider_sfstream.salesforce.topics import SHORT_RETENTION, retention_by_kind

_OF_DRAIN = ("confirmed_at", "contact_at", "last_event_time")


def overview(
    statuses: Iterable[Status],
    now: datetime,
    dag_id: str | None = None,
    *,
    existing_dags: Collection[str] | None = None,
) -> Document:
    """Return the page's data of all streams; those whose DAG does not exist follow the others.

    :param dag_id: only streams with a status of a task of this DAG; ``None`` for all.
    :param existing_dags: the DAGs of the documents that exist; ``None``: all.
    """
    reported = ReportedStatus(statuses)
    uris = [uri for uri in reported.streams() if dag_id is None or dag_id in reported.dag_ids(uri)]
    rows = [stream_row(reported, uri, now, existing_dags) for uri in uris]
    subjects = reported.failed_folders() if dag_id is None else []
    folders = [failure for subject in subjects for failure in failures_of(reported, subject, existing_dags)]
    return {
        "now": now.isoformat(),
        "banner": banner([row for row in rows if not row["retired"]], now),
        "streams": [row for *_, row in sorted(map(_by_worst, rows))],
        "folders": folders,
    }


def banner(rows: Sequence[Mapping[str, Any]], now: datetime) -> Document | None:
    """Return the first answer of the page, with its level: the time until a stream loses events if no drain succeeds.

    An answer that is not proven for each stream is called an estimate.

    :param rows: streams of the page. Without one that was drained, the answer is ``None``.
    """
    drained = [row["headroom"] for row in rows if row.get("headroom")]
    timed = [headroom for headroom in drained if headroom["best"] is not None]
    if not drained:
        return None
    urgent = [headroom for headroom in timed if headroom["level"] == "bad"]
    estimates = [headroom for headroom in timed if headroom["certainty"] != "proven"]
    notes = ["This holds without another drain."] if timed else []
    level = worst_level([headroom["level"] for headroom in timed])
    if urgent:
        hours = math.ceil(max(headroom["best"] for headroom in urgent) / 3600)
        subject = "1 stream loses" if len(urgent) == 1 else f"{len(urgent)} streams lose"
        text = f"{subject} events within {_count(hours, 'hour')}" if hours > 0 else f"{subject} events now"
        notes = []
    elif timed:
        until = now.astimezone(UTC) + timedelta(seconds=min(headroom["best"] for headroom in timed))
        text = f"No stream loses events before {until:%a %H:%M} UTC"
    else:
        text = "The time until streams lose events is unknown"
    if any(headroom["certainty"] != "proven" for headroom in urgent or timed):
        text += " (estimate)"
        notes.append(f"Estimated for {len(estimates)} of {_count(len(timed), 'stream')}.")
    if unknown := len(rows) - len(timed):
        level = worst_level([level, "warning"])
        notes.append(f"Unknown for {_count(unknown, 'stream')}.")
    if sick := sum(row["level"] in ("bad", "warning") for row in rows):
        notes.append(f"{_count(sick, 'stream')} below {'needs' if sick == 1 else 'need'} attention.")
    return {"level": level, "text": text, "note": " ".join(notes)}


def stream_row(
    known: ReportedStatus, uri: str, now: datetime, existing_dags: Collection[str] | None = None
) -> Document:
    """Return the page's data of a stream, or a note that its documents cannot be read."""
    retired = is_retired(known.owner(uri), existing_dags)
    try:
        return _row(known, uri, now) | {"retired": retired}
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        # Anyone who may write Variables may have written this document: it must not hide the other streams.
        concern = {"level": "warning", "text": "The status documents cannot be read"}
        return {"uri": uri, "topic": uri, "level": "warning", "concerns": [concern], "retired": retired}


def is_retired(dag_id: str | None, existing_dags: Collection[str] | None) -> bool:
    """Return whether a DAG does not exist."""
    return existing_dags is not None and dag_id is not None and dag_id not in existing_dags


def failures_of(
    known: ReportedStatus, subject: str, existing_dags: Collection[str] | None = None
) -> Iterator[Document]:
    """Yield the last failure of each task about a subject without a later success, the newest first."""
    for failed in known.failures(subject):
        report, task = failed.get("report", {}), failed["task"]
        facts = {"error": report.get("Error", "see its log"), "at": failed["at"], "report": report}
        links = {"page": task_page(task), "forget": forget_command(subject)}
        retired = is_retired(task["dag_id"], existing_dags)
        yield {"subject": subject, **facts, "task_id": task["task_id"], **links, "retired": retired}


def forget_command(subject: str) -> str:
    """Return the command that removes a subject from the page."""
    return f"sfstream forget {shlex.quote(subject)}"


def _row(reported: ReportedStatus, uri: str, now: datetime) -> Document:
    parts = parsed(uri)
    drain = reported.section(uri, "drain")
    dag_ids = reported.dag_ids(uri)
    tables = replica_tables(reported, uri)
    subjects = (uri, *reported.folders(uri), parts.salesforce_conn_id)
    findings = [finding for subject in subjects for finding in findings_of(reported, subject, HealthLimits(), now)]
    findings.sort(key=lambda finding: (LEVELS.index(finding.level), finding.kind != "failure"))
    # Several tables or event logs of a stream can have equal findings: each text is shown once, with its worst level.
    concerns = {finding.text: finding.level for finding in reversed(findings) if finding.level != "good"}
    headroom = Headroom.from_drain(drain, now) if "retention" in drain else None
    return {
        "uri": uri,
        "connection": parts.salesforce_conn_id,
        "topic": parts.topic,
        "subscription": parts.subscription,
        "api": parts.api or drain.get("stream", {}).get("api"),
        "retention": drain.get("retention", (retention_by_kind(parts.topic) or SHORT_RETENTION).total_seconds()),
        "drained_at": drain.get("drained_at"),
        **{name: drain.get(name) for name in _OF_DRAIN},
        "certainty": certainty_of(drain),
        "hours": hourly(drain.get("hours", {}), now),
        "gaps": len(drain.get("gaps", [])),
        "missing": drain.get("missing", []),
        "quarantined": sum(_set_aside(document) for document in reported.event_logs(uri)),
        "dirty": sum(table["dirty"] for table in tables),
        "flagged": sum(table["flag"] is not None for table in tables),
        "failures": [failure for subject in subjects for failure in failures_of(reported, subject)],
        "allocations": [
            {"name": name, "used": used, "maximum": maximum} for name, used, maximum in reported.allocations(uri)
        ],
        "dags": [{"dag_id": dag_id, "page": dag_page(dag_id)} for dag_id in dag_ids],
        "headroom": headroom
        and {
            "known": _seconds(headroom.known),
            "assumed": _seconds(headroom.assumed),
            "best": _seconds(headroom.best),
            "certainty": headroom.certainty,
            "level": worst([finding for finding in findings if finding.kind in ("time_left", "end")]),
        },
        "level": worst(findings),
        "concerns": [{"level": level, "text": text} for text, level in reversed(concerns.items())],
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
    return int((event_log.get("set_aside") or {}).get("rows", 0))


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _by_worst(row: Document) -> tuple[bool, int, float, str, dict[str, Any]]:
    """Return the sort key of a stream: existing DAGs, problems, remaining time, name."""
    best = (row.get("headroom") or {}).get("best")
    return row["retired"], LEVELS.index(row["level"]), float("-inf") if best is None else best, row["uri"], row
