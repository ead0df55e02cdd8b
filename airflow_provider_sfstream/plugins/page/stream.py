"""Data of one stream for the page, from status documents, with the spans of time that its windows cover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.monitoring.known_status import ReportedStatus
from airflow_provider_sfstream.monitoring.pages import backfills_page, dag_page, run_page, task_page
from airflow_provider_sfstream.monitoring.status import Document, Status
from airflow_provider_sfstream.plugins.page.overview import forget_command, replica_tables, stream_row

DAYS = 7
"""Maximum number of days in the drawing."""
Span = tuple[datetime, datetime]


def stream_details(
    statuses: Iterable[Status], uri: str, now: datetime, *, existing_dags: Mapping[str, bool] | None = None
) -> Document | None:
    """Return the page's data of a stream; ``None`` if it has no status.

    :param existing_dags: the DAGs of the documents that exist, and whether Airflow allows backfills of them; ``None``:
        all.
    """
    reported = ReportedStatus(statuses)
    if uri not in reported.streams():
        return None
    drain, windows = reported.section(uri, "drain"), reported.section(uri, "windows").get("windows", [])
    gaps = drain.get("gaps", [])
    return {
        "now": now.isoformat(),
        **stream_row(reported, uri, now, existing_dags),
        "org_id": drain.get("stream", {}).get("org_id"),
        "position": drain.get("position"),
        "timeline": timeline(windows, gaps, now),
        "gap_list": [{**gap, "page": task_page(gap["task"])} for gap in reversed(gaps)],
        "schema_changes": list(reversed(drain.get("schema_changes", []))),
        "tables": replica_tables(reported, uri),
        "event_logs": [
            {
                "url": document["output_url"],
                "at": document["at"],
                "rows_written": document.get("rows_written"),
                "set_aside": document.get("set_aside"),
                "page": task_page(document["task"]),
            }
            for document in reported.event_logs(uri)
        ],
        "waiting": reported.section(uri, "wait") or None,
        "actions": _actions(drain, existing_dags),
        "forget": forget_command(uri),
    }


def _actions(drain: Document, existing_dags: Mapping[str, bool] | None) -> list[Document]:
    """Return the links to pages of Airflow that have a form, which no link can open or fill in."""
    task = drain.get("task")
    if task is None or (existing_dags is not None and task["dag_id"] not in existing_dags):
        return []
    dag_id = task["dag_id"]
    actions = [
        {"name": f"DAG {dag_id}", "page": dag_page(dag_id), "hint": "to trigger a run"},
        {"name": "Last run", "page": run_page(task), "hint": "to trigger a run with the same parameters"},
    ]
    if existing_dags is None or existing_dags[dag_id]:
        hint = "to run the DAG for past intervals"
        actions.append({"name": f"Backfills of {dag_id}", "page": backfills_page(dag_id), "hint": hint})
    return actions


def timeline(windows: Sequence[Document], gaps: Sequence[Document], now: datetime) -> Document:
    """Return the windows, newest first, the start of the drawing, and its spans that no window covers.

    :param windows: the lines of the section ``windows``, the newest last.
    """
    lines = [window_on_timeline(line) for line in windows]
    oldest = min((datetime.fromisoformat(line["from"]) for line in lines), default=now)
    start = max(oldest, now - timedelta(days=DAYS))
    covered = [span for line in windows if (span := _covered(line))]
    uncovered = [{"from": a.isoformat(), "until": b.isoformat()} for a, b in between(covered, start, now)]
    lost: list[Document] = [
        {"from": since.isoformat(), "until": detected_at.isoformat(), "uncertain": bool(gap.get("uncertain"))}
        for gap in gaps
        if (since := _since(gap)) and (detected_at := _at(gap["detected_at"])) > start
    ]
    return {"start": start.isoformat(), "windows": lines[::-1], "not_covered": uncovered, "lost": lost}


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
    """Return the spans from ``start`` to ``end`` that no covered span contains."""
    uncovered, reached = [], start
    for begin, until in sorted(covered):
        if begin > reached:
            uncovered.append((reached, min(begin, end)))
        reached = max(reached, until)
    return [*uncovered, *([(reached, end)] if reached < end else [])]


def _covered(line: Document) -> Span | None:
    begin, until = (line.get(name) for name in ("covered_from", "covered_until"))
    if begin is None or until is None or _at(begin) >= _at(until):
        return None
    return _at(begin), _at(until)


def _since(gap: Document) -> datetime | None:
    return None if gap["since"] is None else _at(gap["since"])


def _at(text: Any) -> datetime:
    return datetime.fromisoformat(text)
