"""Data of one stream for the page, from status documents, with the spans of time that its windows cover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.monitoring.known_status import ReportedStatus
from airflow_provider_sfstream.monitoring.pages import backfills_page, dag_page, run_page, task_page
from airflow_provider_sfstream.monitoring.status import Document, Status
from airflow_provider_sfstream.plugins.page.overview import replica_tables, stream_row

DAYS = 7
"""At most so many are drawn."""
Span = tuple[datetime, datetime]


def stream_details(statuses: Iterable[Status], uri: str, now: datetime) -> Document | None:
    """Return the page's data of a stream; ``None`` if it has no status."""
    known = ReportedStatus(statuses)
    if uri not in known.streams():
        return None
    drain, windows = known.section(uri, "drain"), known.section(uri, "windows").get("windows", [])
    gaps = drain.get("gaps", [])
    return {
        "now": now.isoformat(),
        **stream_row(known, uri, now),
        "org_id": drain.get("stream", {}).get("org_id"),
        "position": drain.get("position"),
        "timeline": timeline(windows, gaps, now),
        "gap_list": [{**gap, "page": task_page(gap["task"])} for gap in reversed(gaps)],
        "schema_changes": list(reversed(drain.get("schema_changes", []))),
        "tables": replica_tables(known, uri),
        "event_logs": [
            {
                "url": document["output_url"],
                "at": document["at"],
                "rows_written": document.get("rows_written"),
                "set_aside": document.get("set_aside"),
                "page": task_page(document["task"]),
            }
            for document in known.event_logs(uri)
        ],
        "waiting": known.section(uri, "wait") or None,
        "actions": _actions(drain),
    }


def _actions(drain: Document) -> list[Document]:
    """Return the buttons. They lead to Airflow's own forms, which take nothing from a link: they are opened there."""
    task = drain.get("task")
    if task is None:
        return []
    return [
        {"name": f"Trigger {task['dag_id']}", "page": dag_page(task["dag_id"]), "hint": "Press Trigger there"},
        {
            "name": "Trigger again like the last run",
            "page": run_page(task),
            "hint": "Trigger again there fills in the form with the parameters of this run",
        },
        {
            "name": f"Backfill {task['dag_id']}",
            "page": backfills_page(task["dag_id"]),
            "hint": "Press Trigger there, choose Backfill, and give the dates below",
        },
    ]


def timeline(windows: Sequence[Document], gaps: Sequence[Document], now: datetime) -> Document:
    """Return the windows, newest first, when the drawing begins, and the spans of it that no window covers.

    :param windows: the lines of the section ``windows``, the newest last.
    """
    lines = [window_on_timeline(line) for line in windows]
    oldest = min((datetime.fromisoformat(line["from"]) for line in lines), default=now)
    start = max(oldest, now - timedelta(days=DAYS))
    covered = [span for line in windows if (span := _covered(line))]
    lost = [(since, _at(gap["detected_at"]), gap) for gap in gaps if (since := _since(gap))]
    uncovered = [{"from": a.isoformat(), "until": b.isoformat()} for a, b in between(covered, start, now)]
    spans: list[Document] = [
        {"from": a.isoformat(), "until": b.isoformat(), "uncertain": bool(gap.get("uncertain"))}
        for a, b, gap in lost
        if b > start
    ]
    return {"start": start.isoformat(), "windows": lines[::-1], "not_covered": uncovered, "lost": spans}


def window_on_timeline(line: Document) -> Document:
    """Return the data of a window. A window that covers no time is shown at the time of its drain."""
    span = _covered(line) or (_at(line["started_at"]), _at(line["finished_at"]))
    return {
        "window_id": line["window_id"],
        "kind": line["kind"],
        "covers": _covered(line) is not None,
        "from": span[0].isoformat(),
        "until": span[1].isoformat(),
        "finished_at": line["finished_at"],
        "events": line["event_count"],
        "bytes": line["payload_bytes"],
        "stop_reason": line["stop_reason"],
        "gap": line["gap"],
        "manifest_url": line["manifest_url"],
        "page": task_page(line["task"]),
    }


def between(covered: Iterable[Span], start: datetime, end: datetime) -> list[Span]:
    """Return the spans from ``start`` to ``end`` that no covered span has."""
    found, reached = [], start
    for begin, until in sorted(covered):
        if begin > reached:
            found.append((reached, min(begin, end)))
        reached = max(reached, until)
    return [*found, *([(reached, end)] if reached < end else [])]


def _covered(line: Document) -> Span | None:
    begin, until = (line.get(name) for name in ("covered_from", "covered_until"))
    if begin is None or until is None or _at(begin) >= _at(until):
        return None
    return _at(begin), _at(until)


def _since(gap: Document) -> datetime | None:
    return None if gap["since"] is None else _at(gap["since"])


def _at(text: Any) -> datetime:
    return datetime.fromisoformat(text)
