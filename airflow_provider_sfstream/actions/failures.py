"""Failure report: short lines that a task logs before it fails; the first one is its error.

The person on call reads the log in a browser. The report has the error, the data loss, the remaining time and the
action; the error that Airflow shows below it has no chain of causes, because the report contains their texts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import metadata
from itertools import islice
from textwrap import TextWrapper
from types import TracebackType
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.actions.status import report_failure
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.exceptions import LandingError, PositionAgedOutError, SalesforceStreamError
from airflow_provider_sfstream.monitoring.headroom import Headroom
from airflow_provider_sfstream.monitoring.status import Certainty, drain_document
from airflow_provider_sfstream.redaction import has_credentials, redacted
from airflow_provider_sfstream.salesforce.topics import SHORT_RETENTION, Topic, retention_by_kind

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, BaseSensorOperator

log = logging.getLogger(__name__)

_WIDTH = 92
"""Characters of a line of the block: with Airflow's time and level before it, still in sight at 1,344 pixels."""

_MOST_WINDOWS = 100
"""Windows that are read at most, the newest first, to find one that shows how far events are stored."""

LABELS = ("Error", "Context", "Data loss", "Time left", "Action", "Docs")
"""Labels of the parts of the report, in order."""

_SUBJECT = {
    "topic": "topic",
    "subscription": "subscription",
    "managed_subscription": "managed subscription",
    "salesforce_conn_id": "connection",
    "landing_url": "landing",
    "output_url": "tables",
}
"""Arguments of operators that identify the subject of a task, and their names in the report."""


@dataclass(frozen=True)
class FailureReport:
    """Failure report of a task: the text of each of its parts, and ``certainty`` of some, by label.

    :param error: the class of the error and its first sentence.
    :param time_left: the time until unread events expire; ``None`` if the task reads no events.
    """

    error: str
    context: str
    data_loss: str
    time_left: str | None
    action: str
    docs: str
    certainty: dict[str, Certainty] = field(default_factory=dict)

    @classmethod
    def from_error(cls, error: SalesforceStreamError, operator: BaseOperator, now: datetime) -> FailureReport:
        """Return the report on an error of a task. Reads the landing, unless the landing failed."""
        retried = "Airflow retries the task, as its retries allow." if error.retriable else ""
        # A position that cannot be read proves no lost event: there may have been none.
        certainty: dict[str, Certainty] = {"Data loss": "unknown" if error.replay_lost else "proven"}
        data_loss, time_left = getattr(operator, "data_loss", None) or error.lost, None
        if hasattr(operator, "topic") and hasattr(operator, "landing_url"):
            headroom = drain_headroom(operator, error, now)
            time_left, certainty["Time left"] = remaining_time(headroom, error)
            # A lost position makes it doubtful that an idle drain had received all events.
            if error.replay_lost and headroom.until is not None and not headroom.is_by_idle:
                data_loss += f" Events until {minute(headroom.until)} are stored{estimate_basis(headroom)}."
        return cls(
            error=f"{type(error).__name__}: {error.happened}",
            context=subject_of(operator),
            data_loss=data_loss,
            time_left=time_left,
            action=" ".join(filter(None, (error.advice, retried))),
            docs=guide(error.guide),
            certainty=certainty,
        )

    def parts(self) -> dict[str, str]:
        """Return the parts of the report, by label."""
        texts = (self.error, self.context, self.data_loss, self.time_left, self.action, self.docs)
        return {label: text for label, text in zip(LABELS, texts, strict=True) if text}

    def lines(self) -> list[str]:
        """Return the lines of the report. Each fits the width of Airflow's log view."""
        lines = []
        for label, text in self.parts().items():
            first, other = f"{label:<10}", " " * 10
            wrapper = TextWrapper(_WIDTH, first, other, break_long_words=False, break_on_hyphens=False)
            lines += wrapper.wrap(text)
        return lines


class airflow_errors:  # noqa: N801  # read as a verb of the with statement
    """Report an error of a task, and raise a permanent one as AirflowFailException.

    The error contains its first sentence; its notes contain the other lines of the block, for callbacks. Causes are not
    chained: the complete original error is logged at DEBUG level. Of nested blocks, the inner one reports.
    """

    def __init__(self, operator: BaseOperator) -> None:
        self._operator = operator

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A table job of a drain has its own block within that of the drain.
        if not isinstance(error, SalesforceStreamError) or len(report_of_error(error)) > 1:
            return
        report = log_failure(error, self._operator)
        if error.retriable:
            error.args = (report.error.partition(": ")[2],)
            raise _noted(error, report).with_traceback(None) from None
        raise _noted(AirflowFailException(report.error), report) from None


def log_failure(error: SalesforceStreamError, operator: BaseOperator, *, asks: bool = False) -> FailureReport:
    """Log the failure report of a task, store it for the streams page, and return it.

    :param asks: whether the task waits for an answer of a user instead of failing.
    """
    log.debug("The error in full:", exc_info=error)
    report = FailureReport.from_error(error, operator, datetime.now(UTC))
    if asks:
        waits = f"{report.error} The task waits for an answer in Required actions."
        report = replace(
            report, error=waits, action="In Airflow: Browse, Required Actions; state a reason, and choose."
        )
    for line in report.lines():
        log.error("%s", line)
    report_failure(operator, report.parts(), report.certainty)
    return report


def _noted(error: BaseException, report: FailureReport) -> BaseException:
    for label, text in list(report.parts().items())[1:]:
        error.add_note(f"{label}: {text}")
    return error


def report_of_error(error: BaseException) -> dict[str, str]:
    """Return the failure report of an error that a task raised, by label: the block in the task's log.

    An error of another package has only its text, after ``Error``.
    """
    notes = [note.partition(": ") for note in getattr(error, "__notes__", ())]
    labelled = {label: text for label, _, text in notes if label in LABELS[1:]}
    # The name of its class is in the text of one that is not tried again, whose own class is Airflow's.
    is_named = isinstance(error, AirflowFailException) and bool(labelled)
    text = str(error) if is_named else f"{type(error).__name__}: {error}".removesuffix(": ")
    return {label: redacted(part) for label, part in {"Error": text, **labelled}.items()}


def subject_of(operator: BaseOperator) -> str:
    """Return the subject of a task, as in the report after ``Context``: topic, connection, and so on."""
    values = {word: getattr(operator, name, None) for name, word in _SUBJECT.items()}
    return ", ".join(f"{word} {value}" for word, value in values.items() if value and not has_credentials(str(value)))


def guide(page: str) -> str:
    """Return the path of a documentation page, and its URL if the metadata of the package has one."""
    for each in metadata("airflow-provider-sfstream").get_all("Project-URL") or ():
        name, _, url = each.partition(", ")
        if name == "Documentation":
            return f"docs/{page} {url.rstrip('/')}/{page}"
    return f"docs/{page}"


@contextmanager
def soft_failing(sensor: BaseSensorOperator) -> Iterator[None]:
    """Handle an error before deferral as Airflow's sensors do after it, or in a poke."""
    try:
        yield
    except AirflowFailException as error:
        if sensor.soft_fail or sensor.never_fail:
            raise AirflowSkipException(f"Skipped, because soft_fail or never_fail is set: {error}") from error
        raise


def drain_headroom(operator: BaseOperator, error: SalesforceStreamError, now: datetime) -> Headroom:
    """Return the headroom of the stream of a drain that failed, by its landing; an unknown one if that cannot be read.

    Salesforce and the stores of positions and status are not asked: the drain may have failed because of them.
    """
    drain: Any = operator
    try:
        headroom = None if isinstance(error, LandingError) else _landed_headroom(drain, now)
    except Exception as fault:  # the report is about another error
        log.debug("The landing does not show how far events are stored:", exc_info=fault)
        headroom = None
    retention = retention_by_kind(str(drain.topic))
    return headroom or Headroom(None, None, retention or SHORT_RETENTION, retention is not None, now)


def _landed_headroom(drain: Any, now: datetime) -> Headroom | None:
    topic = Topic.parse(drain.topic, drain.api)
    catalog = open_landing(drain.landing_url, drain.landing_conn_id)
    streams = catalog.streams_of(topic.api, topic.name, drain.subscription)
    newest = catalog.newest_live(streams[0]) if len(streams) == 1 else None
    if newest is None:
        return None
    for manifest in islice(catalog.chain(streams[0], newest.window.window_id), _MOST_WINDOWS):
        status = drain_document(None, streams[0], [manifest], run=manifest.window.run, at=now)
        headroom = Headroom.from_drain(status, now)
        if headroom.until is not None:
            return headroom
    return None


def estimate_basis(headroom: Headroom) -> str:
    """Return the basis of an estimate of the time up to which events are stored; an empty text if it is proven."""
    if headroom.estimated_until is None:
        return ""
    by_idle = ", because the last drain received no further one"
    return by_idle if headroom.is_by_idle else ", by the time of the last one"


def remaining_time(headroom: Headroom, error: SalesforceStreamError) -> tuple[str, Certainty]:
    """Return the time until the events that a drain did not read expire, and the certainty of that time."""
    is_defined = headroom.is_retention_proven
    rule = f"Salesforce keeps an event for {hours_text(headroom.retention)}{'' if is_defined else ' at least'}."
    if isinstance(error, PositionAgedOutError):
        return f"Unknown: an undelivered event, if one exists, is lost once it reaches this age. {rule}", "unknown"
    if headroom.until is None or headroom.best is None:
        return f"Unknown: the landing does not show the time up to which events are stored. {rule}", "unknown"
    certainty, stored = headroom.certainty, minute(headroom.until)
    how = f"{certainty}{estimate_basis(headroom)}"
    if headroom.best <= timedelta(0):
        lost = "are being lost" if is_defined else "may be lost"
        return f"Nothing ({how}): events from {stored} on were not read, and {lost}. {rule}", certainty
    hours = f"{hours_text(headroom.best)}, until {minute(headroom.now + headroom.best)} ({how})"
    return f"{hours}: events until {stored} are stored. {rule}", certainty


def hours_text(time: timedelta) -> str:
    """Return a time in hours, or in minutes below two hours."""
    hours = time.total_seconds() / 3600
    return f"{hours:.0f} hours" if hours >= 2 else f"{hours * 60:.0f} min"


def minute(time: datetime) -> str:
    """Return a time in UTC, to the minute."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
