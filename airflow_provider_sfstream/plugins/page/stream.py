"""One stream: from status documents to what the page shows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from airflow_provider_sfstream.monitoring.known_status import Known
from airflow_provider_sfstream.monitoring.pages import backfills_page, dag_page, run_page, task_page
from airflow_provider_sfstream.monitoring.status import Document, Status
from airflow_provider_sfstream.plugins.page.overview import replica_tables, stream_row
from airflow_provider_sfstream.plugins.page.timeline import timeline


def stream_details(statuses: Iterable[Status], uri: str, now: datetime) -> Document | None:
    """Return what the page shows of a stream; ``None`` if nothing is known of it."""
    known = Known(statuses)
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
            "hint": "Trigger again there fills in the form with what this run was given",
        },
        {
            "name": f"Backfill {task['dag_id']}",
            "page": backfills_page(task["dag_id"]),
            "hint": "Press Trigger there, choose Backfill, and give the dates below",
        },
    ]
