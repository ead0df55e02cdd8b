"""What of a stream, a replica or an allocation needs somebody's attention, by the status that tasks have left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.protocol.certainty import certainty_of
from airflow_provider_sfstream.protocol.headroom import Headroom
from airflow_provider_sfstream.protocol.known_status import Known
from airflow_provider_sfstream.protocol.status import Status

_DAY = timedelta(hours=24)


@dataclass(frozen=True)
class HealthLimits:
    """From where on something needs attention.

    :param headroom: less than this is left until events are lost.
    :param contact_age: Salesforce last answered a drain longer ago than this.
    :param gap_age: events were lost, and it was found out no longer ago than this.
    :param unclean_age: rows are dirty, or a table or column is flagged, for longer than this.
    :param allocation: less than this share of an allocation remains, from 0 to 1.
    """

    headroom: timedelta = _DAY
    contact_age: timedelta = _DAY
    gap_age: timedelta = _DAY
    unclean_age: timedelta = _DAY
    allocation: float = 0.1


@dataclass(frozen=True)
class Problem:
    """One thing that needs attention.

    :param subject: of the status: a stream's URI, the folder of a replica, or a connection.
    :param what: in a few words, without the subject.
    """

    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.what}"


def problems(statuses: Iterable[Status], limits: HealthLimits, now: datetime) -> list[Problem]:
    """Return what needs attention, subject by subject."""
    known = Known(statuses)
    return [Problem(subject, what) for subject in known.subjects() for what in _of_subject(known, subject, limits, now)]


def assumed(statuses: Iterable[Status], now: datetime) -> list[str]:
    """Return the streams whose time left is only estimated: the end was never proven, or so long ago that unread
    events may be lost already."""
    drains = ((each.subject, Headroom.of(each.document, now)) for each in statuses if each.section == "drain")
    return sorted(uri for uri, headroom in drains if headroom.known is None or headroom.known <= timedelta(0))


def _of_subject(known: Known, subject: str, limits: HealthLimits, now: datetime) -> Iterator[str]:
    failed = known.failure(subject)
    if failed is not None:
        task = failed["task"]
        yield f"{task['dag_id']}.{task['task_id']} failed at {failed['at']}: {failed['report']['What']}"
    for section, document in sorted(known.sections(subject).items()):
        if section == "drain":
            yield from _of_drain(document, limits, now)
        elif section == "tables":
            yield from _of_tables(document, limits, now)
        elif section.startswith("allocation."):
            if document["remaining"] < limits.allocation * document["max"]:
                yield f"{document['remaining']:,} of {document['max']:,} {document['allocation']} remain"
        elif rows := (document.get("set_aside") or {}).get("rows"):
            yield f"{rows} events were put into quarantine at {document['set_aside']['at']} and not taken back since"


def _of_drain(drain: dict[str, Any], limits: HealthLimits, now: datetime) -> Iterator[str]:
    headroom = Headroom.of(drain, now)
    if headroom.best is None:
        if now - _time(drain["since"]) > limits.contact_age:
            yield "the time until events are lost is unknown: nothing shows up to when events are stored"
    elif headroom.best < limits.headroom:
        word = "proven" if headroom.assumed is None else "estimated, by the time of the last event"
        yield f"{_hours(headroom.best)} are left until events are lost ({word})"
    contact = drain.get("contact_at")
    if contact is None:
        yield "Salesforce never answered a drain"
    elif now - _time(contact) > limits.contact_age:
        estimated = certainty_of(drain)["contact_at"] == "estimated"
        clock = " (estimated, by the worker's clock)" if estimated else ""
        yield f"Salesforce last answered a drain {_hours(now - _time(contact))} ago{clock}"
    for gap in drain["gaps"]:
        if now - _time(gap["detected_at"]) < limits.gap_age:
            lost = "possible loss, nothing is known to be lost:" if gap.get("uncertain") else "events were lost"
            yield f"{lost} after {gap['after']}, since {gap['since'] or 'an unknown time'} ({gap['reason']})"
    for span in drain["missing"]:
        yield f"events from {span['from']} to {span['to']} were not to be had"


def _of_tables(document: dict[str, Any], limits: HealthLimits, now: datetime) -> Iterator[str]:
    for name, table in sorted(document["tables"].items()):
        since = table.get("unclean_since")
        if since is not None and now - _time(since) > limits.unclean_age:
            flag = f", flagged: {table['flag']}" if table.get("flag") else ""
            yield f"{name} has {table.get('dirty', 0)} dirty rows since {since}{flag}"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _hours(time: timedelta) -> str:
    return f"{time.total_seconds() / 3600:.1f} hours"
