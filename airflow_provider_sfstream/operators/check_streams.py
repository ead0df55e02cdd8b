"""Alert by a failed task if a stream may soon lose events, or a replica or allocation needs attention."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_sfstream._airflow import dag_exists
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.exceptions import ConfigurationError, UnhealthyStreamsError
from airflow_provider_sfstream.hooks.replay_store import open_status_store
from airflow_provider_sfstream.monitoring.health import HealthLimits, findings_of
from airflow_provider_sfstream.monitoring.known_status import ReportedStatus
from airflow_provider_sfstream.monitoring.metrics import emit_metrics

if TYPE_CHECKING:
    from airflow_provider_sfstream.monitoring.status import Status

_DAY = timedelta(hours=24)


class CheckSalesforceStreamsOperator(BaseOperator):
    """Check the stored status of streams, replicas and allocations; fail if one needs attention.

    It contacts neither Salesforce nor a storage, so that it also alerts when these do not respond. Give the DAG that
    has it an alert of Airflow's, or :class:`~airflow_provider_sfstream.notifications.salesforce_stream.\
SalesforceStreamNotifier`. Each run emits the metrics of every status that do not belong to one run, so that ages and
    headroom also change while no drain runs.

    By default it is not retried, so that no alert is late.

    If Salesforce has not confirmed the end of a stream, the remaining time is an estimate from the time of the last
    stored event, which publishers set; the log names these streams.

    The XCom result is the number of checked subjects. It is an error if no task has stored a status.

    :param streams: the URIs of streams (``sfstream://salesforce_default/event/Order__e?subscription=airflow``), folders
        of tables and connections to check. One without a status is an error. ``None``: all, except those whose DAG
        was deleted, which the log names (before Airflow 3.3: all). (templated)
    :param min_headroom: fail with less time than this until unread events expire.
    :param max_contact_age: fail if Salesforce's last response to a drain is older.
    :param max_gap_age: fail for a loss that was found within this time.
    :param max_unclean_age: fail for rows that are dirty, tables that are flagged, or tables that are not up to date in
        an Iceberg catalog, longer than this.
    :param min_allocation: fail with less than this share of an allocation, from 0 to 1.
    :raises ConfigurationError: at construction, if a limit cannot be used.
    """

    template_fields: Sequence[str] = ("streams",)
    ui_color = "#f8e5d8"

    def __init__(
        self,
        *,
        streams: Sequence[str] | None = None,
        min_headroom: timedelta = _DAY,
        max_contact_age: timedelta = _DAY,
        max_gap_age: timedelta = _DAY,
        max_unclean_age: timedelta = _DAY,
        min_allocation: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not 0 <= min_allocation <= 1:
            raise ConfigurationError(f"min_allocation={min_allocation!r} must be a share, from 0 to 1.")
        self.streams = streams
        self.min_headroom = min_headroom
        self.max_contact_age = max_contact_age
        self.max_gap_age = max_gap_age
        self.max_unclean_age = max_unclean_age
        self.min_allocation = min_allocation

    def execute(self, context: Context) -> int:
        """Check every status once; return the number of subjects."""
        limits = HealthLimits(
            self.min_headroom, self.max_contact_age, self.max_gap_age, self.max_unclean_age, self.min_allocation
        )
        with airflow_errors(self):
            with closing(open_status_store()) as store:
                stored = [status for status in store.statuses() if self._is_meant(status.subject)]
            subjects = {status.subject for status in stored}
            unseen = sorted({*(self.streams or ())} - subjects)
            if unseen or not subjects:
                raise UnhealthyStreamsError(f"No task has stored a status of {', '.join(unseen) or 'any stream'}.")
            if self.streams is None:
                stored = self._without_retired(stored, context["ti"])
            for status in stored:
                emit_metrics(status.subject, status.section, status.document, is_new=False)
            reported, now = ReportedStatus(stored), datetime.now(UTC)
            findings = [
                (subject, finding)
                for subject in reported.subjects()
                for finding in findings_of(reported, subject, limits, now)
            ]
            problems = [f"{subject}: {finding.detail}" for subject, finding in findings if finding.is_over_limit]
            for problem in problems:
                self.log.error("%s", problem)
            if problems:
                more = f" {len(problems) - 1} more problems are in the log." if len(problems) > 1 else ""
                raise UnhealthyStreamsError(f"{problems[0]}.{more}")
            for subject, finding in findings:
                if finding.kind == "end":
                    self.log.warning("%s: %s.", subject, finding.detail)
        checked = len(reported.subjects())
        self.log.info("No limit is exceeded by the stored status of %d streams, replicas and allocations.", checked)
        return checked

    def _without_retired(self, stored: list[Status], task_instance: Any) -> list[Status]:
        """Return the statuses without those whose DAG does not exist, and log these."""
        reported = ReportedStatus(stored)
        owners = {subject: owner for subject in reported.subjects() if (owner := reported.owner(subject)) is not None}
        deleted = {owner for owner in set(owners.values()) if not dag_exists(task_instance, owner)}
        retired = [subject for subject, owner in owners.items() if owner in deleted]
        for subject in retired:
            self.log.warning(
                "%s is not checked: its DAG %s no longer exists. To remove its status, run: sfstream forget %s",
                subject,
                owners[subject],
                shlex.quote(subject),
            )
        return [status for status in stored if status.subject not in retired]

    def _is_meant(self, subject: str) -> bool:
        return self.streams is None or subject in self.streams
