"""Status and metrics of tasks. An error here never fails a task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.arguments import landed_stream_uri
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.replay_store import open_status_store
from airflow_provider_sfstream.monitoring.metrics import emit_metrics
from airflow_provider_sfstream.monitoring.status import (
    Certainty,
    Document,
    drain_document,
    event_log_document,
    failed_section,
    subject_key,
    task_document,
    windows_document,
)
from airflow_provider_sfstream.redaction import has_credentials

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_sfstream.hooks.salesforce_allocations import Allocation
    from airflow_provider_sfstream.landing.manifest import Manifest
    from airflow_provider_sfstream.monitoring.status_store import Step
    from airflow_provider_sfstream.salesforce.streams import Stream

log = logging.getLogger(__name__)


def report_drain(
    subject: str,
    context: Context,
    stream: Stream,
    drained: Sequence[Manifest],
    schema_changes: Sequence[Mapping[str, Any]],
    missing: Iterable[Mapping[str, str]] = (),
) -> None:
    """Store the sections ``drain`` and ``windows``.

    :param subject: the URI of the landed stream's asset.
    :param drained: the windows that this task run drained, with these schema changes.
    :param missing: lost spans of its interval.
    """

    def drain(before: Document | None) -> Document:
        return drain_document(
            before,
            stream,
            drained,
            run=run_identity(context),
            at=datetime.now(UTC),
            schema_changes=schema_changes,
            missing=missing,
        )

    steps = {"drain": drain, "windows": lambda before: windows_document(before, drained)}
    _store(subject, steps)


def report_section(subject: str, section: str, context: Context, facts: Mapping[str, Any]) -> None:
    """Store a section with these facts, the time and the task run."""
    _store(subject, {section: lambda _: _signed(facts, context)})


def report_event_log(
    stream: str,
    output_url: str,
    context: Context,
    metrics: Mapping[str, Any] | None,
    interval: Sequence[str] | None = None,
) -> None:
    """Store the status of a stream in an event log.

    :param metrics: of the job; ``None`` if they could not be read.
    :param interval: bounds of the event times that the job processed.
    """

    def document(before: Document | None) -> Document:
        facts = _signed({"output_url": output_url, **(metrics or {})}, context)
        return event_log_document(before, facts, interval)

    # A stream may be written to several folders: each has a section.
    _store(stream, {f"event_log.{subject_key(output_url)[:16]}": document})


def report_tables(
    output_url: str, section: str, context: Context, metrics: Mapping[str, Any], streams: Sequence[str] = ()
) -> None:
    """Store a section of a replica's folder, and its section ``tables`` with its tables and the applied streams."""

    def tables(before: Document | None) -> Document:
        previous, at = before or {}, datetime.now(UTC).isoformat()
        former = previous.get("tables", {})
        return {
            "tables": former
            | {name: _table(former.get(name), table, at) for name, table in metrics.get("tables", {}).items()},
            "streams": list(dict.fromkeys([*previous.get("streams", ()), *streams])),
            "snapshot": metrics.get("snapshot", previous.get("snapshot")),
            "at": at,
        }

    facts = {name: value for name, value in metrics.items() if name != "tables"}
    _store(output_url, {section: lambda _: _signed(facts, context), "tables": tables})


def report_catalog(output_url: str, context: Context, errors: Mapping[str, str]) -> None:
    """Store the section ``catalog`` of a folder: the tables that the Iceberg catalog does not have up to date, each
    with its error, and since when there are any."""

    def catalog(before: Document | None) -> Document:
        since = (before or {}).get("outdated_since") or datetime.now(UTC).isoformat()
        return _signed({"outdated": dict(errors), "outdated_since": since if errors else None}, context)

    _store(output_url, {"catalog": catalog})


def report_allocation(salesforce_conn_id: str, context: Context, allocation: Allocation) -> None:
    """Store the rest of an allocation, as a section of its connection."""
    facts = {"allocation": allocation.name, "max": allocation.most, "remaining": allocation.remaining}
    report_section(salesforce_conn_id, f"allocation.{allocation.name}", context, facts)


def _table(before: Mapping[str, Any] | None, metrics: Mapping[str, Any], at: str) -> Document:
    """Return the status of a table, with the time since which it is not clean."""
    is_clean = not metrics.get("dirty") and metrics.get("flag") is None
    return {**metrics, "unclean_since": None if is_clean else ((before or {}).get("unclean_since") or at)}


def report_failure(operator: BaseOperator, report: Mapping[str, str], certainty: Mapping[str, Certainty]) -> None:
    """Store the failure of a task as a section of its stream or its tables: report and certainty, by label."""
    from airflow.sdk import get_current_context

    output_url = getattr(operator, "output_url", None)
    # The topic may be the cause of the failure; outside of a task there is no context.
    with suppress(ConfigurationError, RuntimeError):
        failed = _signed({"report": dict(report), "certainty": dict(certainty)}, get_current_context())
        steps: dict[str, Step] = {failed_section(failed["task"]): lambda _: failed}
        if hasattr(operator, "topic") and hasattr(operator, "subscription"):
            _store(landed_stream_uri(operator), steps)
        elif isinstance(output_url, str) and not has_credentials(output_url):  # why it may be that the task fails
            _store(output_url, steps)


def _signed(facts: Mapping[str, Any], context: Context) -> Document:
    """Return facts with the time and the task run."""
    return {**facts, "at": datetime.now(UTC).isoformat(), "task": task_document(run_identity(context))}


def _store(subject: str, steps: Mapping[str, Step]) -> None:
    """Change sections of a subject, and emit their metrics."""
    try:
        with closing(open_status_store()) as store:
            for section, step in steps.items():
                emit_metrics(subject, section, store.change(subject, section, step))
    except Exception as error:  # the task itself has succeeded
        log.warning("The status of this task was not stored: %s", error)
