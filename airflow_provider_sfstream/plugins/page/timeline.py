"""When a stream was covered: its windows as spans of time, and what lies between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.monitoring.pages import task_page
from airflow_provider_sfstream.monitoring.status import Document

DAYS = 7
"""At most so many are drawn."""
Span = tuple[datetime, datetime]


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
    """Return what is shown of a window. Where it covers no time, it stands where it was drained."""
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
