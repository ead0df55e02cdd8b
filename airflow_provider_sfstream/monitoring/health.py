"""Health findings of streams, tables and allocations, by the status that tasks wrote. Pure.

The page of streams and the command line render their level and text; a check renders the detail, and fails by limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from airflow_provider_sfstream.monitoring.headroom import Headroom
from airflow_provider_sfstream.monitoring.known_status import ReportedStatus
from airflow_provider_sfstream.monitoring.status import Document, certainty_of, connection_of

Level: TypeAlias = Literal["bad", "warning", "note", "good"]
LEVELS: tuple[Level, ...] = ("bad", "warning", "note", "good")
"""From the worst to the best. A note is shown, and its stream is good."""
_DAY = timedelta(hours=24)
_TIME_LEFT: tuple[tuple[float, Level, str], ...] = (
    (0, "bad", "Unread events may be lost already"),
    (1 / 6, "bad", "Unread events are lost soon"),
    (1 / 2, "warning", "More than half of the retention is used up"),
    (float("inf"), "good", ""),
)
"""Level and text by the maximum remaining share of the retention: of 72 hours, 12 and 36."""
_SPENT_BAD, _SPENT_WARNING = 0.9, 0.75
"""Of an allocation."""


@dataclass(frozen=True)
class HealthLimits:
    """Limits beyond which a check fails.

    :param headroom: less time than this remains until events are lost.
    :param contact_age: Salesforce last answered a drain longer ago than this.
    :param gap_age: a loss of events was detected no longer ago than this.
    :param unclean_age: for longer than this, rows are dirty, a table or column is flagged, or a table is not up to date
        in an Iceberg catalog.
    :param allocation: less than this share of an allocation remains, from 0 to 1.
    """

    headroom: timedelta = _DAY
    contact_age: timedelta = _DAY
    gap_age: timedelta = _DAY
    unclean_age: timedelta = _DAY
    allocation: float = 0.1


@dataclass(frozen=True)
class Finding:
    """An evaluated problem of a stream, of a folder of tables or of an allocation.

    :param kind: ``end``: the remaining time is not proven, because the end of the stream is not confirmed.
    :param level: the urgency on the page of streams, which does not show ``good``.
    :param text: a few words for the page of streams.
    :param detail: the same with its figures, without the subject.
    :param is_over_limit: whether a check fails for it.
    """

    kind: Literal["failure", "time_left", "end", "contact", "loss", "quarantine", "tables", "catalog", "allocation"]
    level: Level
    text: str
    detail: str
    is_over_limit: bool


def worst(findings: list[Finding]) -> Level:
    """Return the level of the worst finding; ``good`` without a problem."""
    return worst_level(finding.level for finding in findings)


def worst_level(levels: Iterable[Level]) -> Level:
    """Return the worst level; ``good`` without a problem."""
    return min((level for level in levels if level != "note"), key=LEVELS.index, default="good")


def findings_of(known: ReportedStatus, subject: str, limits: HealthLimits, now: datetime) -> Iterator[Finding]:
    """Yield the findings about a subject of the status, a failed task first."""
    for failed in known.failures(subject):
        task, error = failed["task"], failed.get("report", {}).get("Error", "see its log")
        detail = f"{task['dag_id']}.{task['task_id']} failed at {failed['at']}: {error}"
        yield Finding("failure", "bad", f"Task {task['task_id']} failed: {error}", detail, True)
    if connection_of(subject) is not None:
        yield from _of_drain(known.section(subject, "drain"), limits, now)
    for section, document in sorted(known.sections(subject).items()):
        if section == "tables":
            yield from _of_tables(document, limits, now)
        elif section == "catalog":
            yield from _of_catalog(document, limits, now)
        elif section.startswith("allocation."):
            yield _of_allocation(document, limits)
        elif set_aside := document.get("set_aside"):
            quarantined = f"{set_aside['rows']} events were quarantined, the last at {set_aside['at']}"
            detail = f"{quarantined}; not all of their windows were processed again since"
            yield Finding("quarantine", "warning", "Rows are in quarantine", detail, True)


def _of_drain(drain: Document, limits: HealthLimits, now: datetime) -> Iterator[Finding]:
    if "retention" not in drain:
        detail = "no drain has stored a status, so the time until events are lost is unknown"
        yield Finding("end", "warning", "No drain has stored a status", detail, False)
        return
    headroom = Headroom.from_drain(drain, now)
    yield from _time_left(headroom, limits, now - _time(drain["since"]))
    yield from _contact(drain, limits, now)
    for gap in drain.get("gaps", ()):
        age = now - _time(gap["detected_at"])
        level: Level = "good" if age >= headroom.retention else "warning" if gap.get("uncertain") else "bad"
        text = "Events may have been lost" if gap.get("uncertain") else "Events were lost"
        lost = "possible loss, no event is known to be lost:" if gap.get("uncertain") else "events were lost"
        detail = f"{lost} after {gap['after']}, since {gap['since'] or 'an unknown time'} ({gap['reason']})"
        yield Finding("loss", level, text, detail, age < limits.gap_age)
    for span in drain.get("missing", ()):
        detail = f"events from {span['from']} to {span['to']} could not be read"
        yield Finding("loss", "warning", "The last interval is incomplete", detail, True)


def _time_left(headroom: Headroom, limits: HealthLimits, since_first_drain: timedelta) -> Iterator[Finding]:
    best, proven = headroom.best, headroom.known
    if best is None:
        text = "Remaining time unknown: no event is stored, and no drain has reached the end"
        detail = "the time until events are lost is unknown: no confirmed end and no stored event"
        yield Finding("end", "warning", text, detail, since_first_drain > limits.contact_age)
        return
    basis = "" if headroom.estimated_until is None else ", by the time of the last event"
    if basis and headroom.is_by_idle:
        basis = ", because the last drain received no further event"
    detail = f"{_hours(best)} remain until events are lost ({headroom.certainty}{basis})"
    level, text = next((level, text) for share, level, text in _TIME_LEFT if best / headroom.retention <= share)
    yield Finding("time_left", level, text, detail, best < limits.headroom)
    if headroom.assumed is not None and (proven is None or proven <= timedelta(0)):
        confirmation = "never confirmed" if proven is None else "not confirmed within the retention"
        detail = "Salesforce has not confirmed the end of the stream: the remaining time is an estimate"
        yield Finding("end", "note", f"End of stream {confirmation}; remaining time is an estimate", detail, False)


def _contact(drain: Document, limits: HealthLimits, now: datetime) -> Iterator[Finding]:
    if drain.get("contact_at") is None:
        detail, is_over_limit = "Salesforce never answered a drain", True
    else:
        age = now - _time(drain["contact_at"])
        clock = " (estimated, by the worker's clock)" if certainty_of(drain)["contact_at"] == "estimated" else ""
        detail, is_over_limit = f"Salesforce last answered a drain {_hours(age)} ago{clock}", age > limits.contact_age
    # The page of streams shows the contact separately.
    yield Finding("contact", "good", detail, detail, is_over_limit)


def _of_tables(document: Document, limits: HealthLimits, now: datetime) -> Iterator[Finding]:
    tables = sorted(document["tables"].items())
    is_flagged = any(table.get("flag") is not None for _, table in tables)
    text = "A table must be fetched again" if is_flagged else "Dirty rows need a refresh"
    for name, table in tables:
        dirty, flag, since = table.get("dirty", 0), table.get("flag"), table.get("unclean_since")
        if dirty or flag is not None:
            detail = f"{name} has {dirty} dirty rows since {since}{f', flagged: {flag}' if flag else ''}"
            is_over_limit = since is not None and now - _time(since) > limits.unclean_age
            yield Finding("tables", "warning" if is_over_limit else "note", text, detail, is_over_limit)


def _of_catalog(document: Document, limits: HealthLimits, now: datetime) -> Iterator[Finding]:
    for name, error in sorted(document["outdated"].items()):
        since = document["outdated_since"]
        detail = f"{name} is not up to date in the Iceberg catalog since {since}: {error}"
        is_over_limit = now - _time(since) > limits.unclean_age
        yield Finding("catalog", "warning", "The Iceberg catalog is not up to date", detail, is_over_limit)


def _of_allocation(document: Document, limits: HealthLimits) -> Finding:
    name, most, remaining = document["allocation"], document["max"], document["remaining"]
    spent = (most - remaining) / most
    level: Level = "bad" if spent >= _SPENT_BAD else "warning" if spent >= _SPENT_WARNING else "good"
    detail = f"{remaining:,} of {most:,} {name} remained at {document['at']}"
    return Finding("allocation", level, f"{name}: {spent:.0%} used", detail, remaining < limits.allocation * most)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _hours(time: timedelta) -> str:
    return f"{time.total_seconds() / 3600:.1f} hours"
