"""Health checks: findings from the stored status documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_sfstream.monitoring.health import Finding, HealthLimits, findings_of
from airflow_provider_sfstream.monitoring.known_status import ReportedStatus
from airflow_provider_sfstream.monitoring.status import Status, failed_section

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
STREAM, REPLICA, CONNECTION = "sfstream://c/event/A__e?subscription=airflow", "s3://lake/replica", "salesforce_default"
TABLES = "s3://lake/tables"
TASK = {"dag_id": "orders", "task_id": "drain", "run_id": "r", "map_index": -1, "try_number": 1}


def ago(hours: float) -> str:
    return (NOW - timedelta(hours=hours)).isoformat()


def drain(**facts: Any) -> Status:
    document = {
        "retention": 72 * 3600.0,
        "confirmed_at": ago(1),
        "contact_at": ago(1),
        "certainty": {"confirmed_at": "proven", "contact_at": "proven", "retention": "proven"},
        "since": ago(100),
        "gaps": [],
        "missing": [],
        "at": ago(1),
        "task": TASK,
        **facts,
    }
    return Status(STREAM, "drain", document)


def failed(hours: float, subject: str = STREAM, **task: Any) -> Status:
    document = {"at": ago(hours), "task": {**TASK, **task}, "report": {"Error": "LoginError: no"}}
    return Status(subject, failed_section(document["task"]), document)


def written(hours: float, **task: Any) -> Status:
    """Return the status that a job stores after it wrote a stream to an event log."""
    return Status(STREAM, "event_log.1", {"output_url": TABLES, "at": ago(hours), "task": {**TASK, **task}})


def section(name: str, hours: float, **task: Any) -> Status:
    """Return the status that a job stores about the folder of a replica."""
    return Status(REPLICA, name, {"at": ago(hours), "task": {**TASK, **task}})


def table(**facts: Any) -> Status:
    return Status(
        REPLICA, "tables", {"tables": {"Account": {"dirty": 0, "unclean_since": None, **facts}}, "at": ago(1)}
    )


def catalog(since: str | None, **errors: str) -> Status:
    return Status(TABLES, "catalog", {"outdated": errors, "outdated_since": since, "at": ago(1), "task": TASK})


GAP = {"after": "0a", "since": None, "detected_at": ago(2), "reason": "accepted by x"}


def findings(statuses: list[Status]) -> list[tuple[str, Finding]]:
    """Return the findings of all subjects, each with its subject."""
    known = ReportedStatus(statuses)
    return [(each, found) for each in known.subjects() for found in findings_of(known, each, HealthLimits(), NOW)]


def test_time_left_is_an_assumption_without_a_confirmed_end() -> None:
    for confirmed, is_assumed in ((ago(1), False), (ago(73), True), (None, True)):
        found = findings([drain(confirmed_at=confirmed, last_event_time=ago(1))])
        assert [each.is_over_limit for _, each in found if each.kind == "end"] == ([False] if is_assumed else [])


def test_a_stream_without_the_status_of_a_drain_is_not_healthy() -> None:
    woken = Status(STREAM, "wait", {"reason": "events", "at": ago(1), "task": TASK})
    [(_, found)] = findings([woken])
    assert (found.kind, found.level, found.is_over_limit) == ("end", "warning", False)
    assert found.detail == "no drain has stored a status, so the time until events are lost is unknown"


@pytest.mark.parametrize(
    ("statuses", "details"),
    [
        ([drain()], []),
        ([drain(confirmed_at=ago(50))], ["22.0 hours remain until events are lost (proven)"]),
        ([drain(confirmed_at=ago(60), last_event_time=ago(2))], []),
        (
            [drain(confirmed_at=ago(60), last_event_time=ago(50))],
            ["22.0 hours remain until events are lost (estimated, by the time of the last event)"],
        ),
        (
            [drain(confirmed_at=ago(50), certainty={"confirmed_at": "proven", "retention": "estimated"})],
            ["22.0 hours remain until events are lost (estimated)"],
        ),
        ([drain(confirmed_at=ago(80))], ["-8.0 hours remain"]),
        ([drain(confirmed_at=None)], ["no confirmed end and no stored event"]),
        ([drain(confirmed_at=None, since=ago(2))], []),
        ([drain(contact_at=ago(30))], ["Salesforce last answered a drain 30.0 hours ago"]),
        (
            [drain(contact_at=ago(30), certainty={"confirmed_at": "proven", "contact_at": "estimated"})],
            ["Salesforce last answered a drain 30.0 hours ago (estimated, by the worker's clock)"],
        ),
        ([drain(confirmed_at=ago(50), certainty={})], ["22.0 hours remain until events are lost (estimated"]),
        ([drain(contact_at=None)], ["Salesforce never answered a drain"]),
        ([drain(gaps=[GAP])], ["events were lost after 0a, since an unknown time (accepted by x)"]),
        (
            [drain(gaps=[{**GAP, "uncertain": True}])],
            ["possible loss, no event is known to be lost: after 0a, since an unknown time (accepted by x)"],
        ),
        ([drain(gaps=[{**GAP, "detected_at": ago(25)}])], []),
        ([drain(missing=[{"from": ago(9), "to": ago(8)}])], ["could not be read"]),
        ([drain(), failed(0.5)], ["orders.drain failed at"]),
        ([drain(), failed(2)], []),
        ([failed(2)], ["orders.drain failed at"]),
        ([failed(2), written(1, task_id="event_log")], ["orders.drain failed at"]),
        ([failed(2), failed(1, task_id="event_log")], ["orders.event_log failed at", "orders.drain failed at"]),
        ([failed(2), failed(1, map_index=1)], ["orders.drain failed at", "orders.drain failed at"]),
        ([failed(3), failed(2, task_id="event_log"), drain()], []),
        ([failed(3, TABLES), failed(2, TABLES, task_id="other"), written(1)], ["orders.other failed at"]),
        ([failed(2, REPLICA), section("replica", 1), section("refresh", 1, task_id="refresh")], []),
        ([failed(2, REPLICA), section("refresh", 1, task_id="refresh")], ["orders.drain failed at"]),
        ([failed(2, TABLES), written(1)], []),
        ([failed(1, TABLES), written(2)], ["orders.drain failed at"]),
        ([failed(2, TABLES), written(1, task_id="other")], ["orders.drain failed at"]),
        (
            [Status(STREAM, "event_log.1", {"set_aside": {"rows": 3, "at": ago(9)}, "at": ago(1)})],
            ["3 events were quarantined, the last at"],
        ),
        ([table()], []),
        ([table(dirty=5, unclean_since=ago(2))], []),
        ([table(dirty=5, unclean_since=ago(25))], ["Account has 5 dirty rows since"]),
        ([table(flag="gap", unclean_since=ago(25))], ["flagged: gap"]),
        ([catalog(None)], []),
        ([catalog(ago(2), Account="no route")], []),
        ([catalog(ago(25), Account="no route")], ["Account is not up to date in the Iceberg catalog since"]),
        ([failed(2, TABLES), catalog(None)], ["orders.drain failed at"]),
        ([Status(CONNECTION, "allocation.D", {"allocation": "D", "max": 100, "remaining": 10, "at": ago(1)})], []),
        (
            [Status(CONNECTION, "allocation.D", {"allocation": "D", "max": 1000, "remaining": 99, "at": ago(1)})],
            [f"99 of 1,000 D remained at {ago(1)}"],
        ),
    ],
)
def test_status_has_findings_over_the_limit(statuses: list[Status], details: list[str]) -> None:
    found = [(subject, each) for subject, each in findings(statuses) if each.is_over_limit]
    assert len(found) == len(details), found
    for (subject, finding), text in zip(found, details, strict=True):
        assert text in finding.detail
        assert subject == statuses[0].subject
