"""Status documents of healthy and unhealthy streams, in the form that tasks write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.landing.manifest import Manifest, WindowFile
from airflow_provider_sfstream.monitoring.status import (
    Document,
    Status,
    drain_document,
    event_log_document,
    failed_section,
    task_document,
    windows_document,
)
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream
from airflow_provider_sfstream.salesforce.topics import retention_by_kind

HOUR = timedelta(hours=1)
CONNECTION = "salesforce_default"


def run(at: datetime, dag_id: str = "orders", task_id: str = "drain") -> RunIdentity:
    """Return the identity of a scheduled run."""
    return RunIdentity(dag_id, task_id, f"scheduled__{at.isoformat()}", at)


def task_fields(at: datetime, dag_id: str = "orders", task_id: str = "drain") -> Document:
    """Return the fields that identify the task of a document."""
    return {"at": at.isoformat(), "task": task_document(run(at, dag_id, task_id))}


def drain_statuses(
    now: datetime,
    topic: str,
    *,
    dag_id: str = "orders",
    connection: str = CONNECTION,
    subscription: str = "airflow",
    windows: int = 24,
    every: timedelta = HOUR,
    ended: timedelta = timedelta(0),
    confirmed: bool = True,
    stop_reason: str = "caught_up",
    gap: Gap | None = None,
) -> list[Status]:
    """Return the statuses that hourly drains of a stream write.

    :param every: interval between the ends of two drains.
    :param ended: time since the end of the last drain.
    :param confirmed: whether each drain confirmed the end of the stream.
    :param stop_reason: stop reason of each drain.
    :param gap: gap that the last drain recorded.
    """
    uri = str(StreamUri(connection, topic, subscription=subscription))
    stream = Stream("00D000000000001EAA", "pubsub", topic, subscription)
    drain: Document | None = None
    manifests = []
    for number in range(windows, 0, -1):
        end = now - ended - (number - 1) * every
        window = ReplayWindow(
            window_id=f"w{number:05d}",
            kind="live",
            after=b"\x01",
            through=b"\x02",
            event_count=number % 4 * 25,
            first_event_time=end - every / 2,
            last_event_time=end - every / 4,
            manifest_url=f"s3://lake/landing/{dag_id}/{number}/manifest.json",
            run=run(end, dag_id),
            gap=gap if number == 1 else None,
            covered_from=end - every if confirmed else None,
            covered_until=end if confirmed else None,
            contact_at=end,
        )
        part = WindowFile("part-00000.parquet", window.event_count, 100, "0" * 64)
        facts: dict[str, Any] = {"retention": retention_by_kind(topic) or 72 * HOUR}  # high-volume retention
        began = end - every / 10
        manifests.append(Manifest(stream, window, 0, (part,), {}, 12_345, stop_reason, began, end, "test", **facts))
        drain = drain_document(drain, stream, manifests[-1:], run=window.run, at=end)
    assert drain is not None
    return [Status(uri, "drain", drain), Status(uri, "windows", windows_document(None, manifests))]


def failure_status(now: datetime, subject: str, report: dict[str, str], task_id: str = "drain") -> Status:
    """Return the status that a task writes when it fails now."""
    fields = task_fields(now, task_id=task_id)
    return Status(subject, failed_section(fields["task"]), {**fields, "report": report})


def healthy(now: datetime) -> list[Status]:
    """Return the statuses of a healthy stream and its event log."""
    found = drain_statuses(now, "/event/Order__e")
    facts = {"output_url": "s3://lake/tables", "rows_written": 75, "quarantined": 0, "windows": ["w00001"]}
    done = event_log_document(None, {**facts, **task_fields(now, task_id="event_log")})
    return [*found, Status(found[0].subject, "event_log.0123", done)]


def _expiring(now: datetime) -> list[Status]:
    return drain_statuses(now, "/event/Expiring__e", ended=timedelta(hours=64))


def _gap(now: datetime) -> list[Status]:
    reason = "accepted by ada, to go on from earliest: the stream was reset"
    return drain_statuses(now, "/event/Lost__e", gap=Gap(b"\x01", b"\x02", now - 5 * HOUR, now - HOUR, reason))


def _failed_login(now: datetime) -> list[Status]:
    found = drain_statuses(now, "/event/Login__e", ended=2 * HOUR)
    what = "AuthenticationError: /event/Login__e: the login was refused (invalid_client)."
    report = {
        "Error": what,
        "Data loss": "Nothing yet.",
        "Time left": "70 hours",
        "Action": "Check consumer_key and consumer_secret.",
        "Docs": "docs/errors.md#logging-in https://docs.example.com/errors.md#logging-in",
    }
    return [*found, failure_status(now, found[0].subject, report)]


def _quarantine(now: datetime) -> list[Status]:
    found = drain_statuses(now, "/event/Odd__e")
    facts: Any = {"output_url": "s3://lake/tables", "rows_written": 60}
    before = event_log_document(None, {**facts, "quarantined": 15, "windows": ["w00023"], **task_fields(now - HOUR)})
    after = event_log_document(before, {**facts, "quarantined": 0, "windows": ["w00024"], **task_fields(now)})
    return [*found, Status(found[0].subject, "event_log.4567", after)]


def _dirty_replica(now: datetime) -> list[Status]:
    found = drain_statuses(now, "/data/AccountChangeEvent", dag_id="accounts")
    tables = {"Account": {"rows": 10, "dirty": 12, "flag": None, "unclean_since": (now - 25 * HOUR).isoformat()}}
    folder = "s3://lake/replica"
    applied = {"snapshot": 7, **task_fields(now, "accounts", "replica")}
    known = {"tables": tables, "streams": [found[0].subject], "snapshot": 7, "at": now.isoformat()}
    return [*found, Status(folder, "replica", applied), Status(folder, "tables", known)]


def never_confirmed(now: datetime) -> list[Status]:
    """Return the statuses of a stream without a problem, the end of which Salesforce has not confirmed."""
    return drain_statuses(now, "/event/Busy__e", confirmed=False, stop_reason="idle")


UNHEALTHY: dict[str, Callable[[datetime], list[Status]]] = {
    "expiring": _expiring,
    "gap": _gap,
    "failed_login": _failed_login,
    "quarantine": _quarantine,
    "dirty_replica": _dirty_replica,
}
"""Functions that return the statuses of an unhealthy stream, by problem."""
