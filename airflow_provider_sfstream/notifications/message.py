"""Messages of a notifier: the failure report or the losses of a task, and a DAG run that did not meet its deadline."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any, Self

from airflow.sdk import Context

from airflow_provider_sfstream.actions.failures import LABELS, guide, report_of_error, subject_of
from airflow_provider_sfstream.hooks.replay_store import open_status_store
from airflow_provider_sfstream.monitoring.known_status import ReportedStatus
from airflow_provider_sfstream.redaction import redacted

log = logging.getLogger(__name__)

_STATES = {"success": "succeeded", "skipped": "was skipped", "up_for_retry": "failed and will be retried"}
_ENDED = "The task ended without an error: its process was killed, or Airflow lost contact with it."
_ON_CALL = "on-call.md"
_WHEN_LOST = f"{_ON_CALL}#when-events-are-lost"


@dataclass(frozen=True)
class LossSummary:
    """Gaps, missing spans and quarantined rows in the result of a task. True if there is one.

    :param events: one sentence for each gap and each missing span.
    :param quarantined: number of rows in quarantine.
    :param is_uncertain: ``events`` has one uncertain gap only, so that no event is known to be lost.
    :param is_known: ``False``: there is no result that could show losses.
    """

    events: tuple[str, ...] = ()
    quarantined: int = 0
    is_uncertain: bool = False
    is_known: bool = True

    def __bool__(self) -> bool:
        return bool(self.events or self.quarantined)

    @classmethod
    def from_result(cls, result: Any) -> Self:
        """Return the losses in the XCom result of a task of this package; unknown ones for any other result."""
        if not isinstance(result, Mapping):
            return cls(is_known=False)
        gap, missing = result.get("gap"), result.get("missing")
        events = [_gap(gap)] if isinstance(gap, Mapping) else []
        events += [_missing(span) for span in missing if isinstance(span, Mapping)] if isinstance(missing, list) else []
        jobs = result.get("tables")  # of a drain: the metrics of its table jobs
        reports = [result, *(jobs.values() if isinstance(jobs, Mapping) else ())]
        counts = [report.get("quarantined") for report in reports if isinstance(report, Mapping)]
        quarantined = sum(count for count in counts if type(count) is int)
        is_uncertain = isinstance(gap, Mapping) and gap.get("uncertain") is True and len(events) == 1
        return cls(tuple(events), quarantined, is_uncertain)

    @property
    def summary(self) -> str:
        """Summary of the losses, in one sentence after the outcome of the task."""
        if self.is_uncertain:
            return "Possible loss; no event is known to be lost. Events that were read are stored; the gap is recorded."
        if self.events:
            return "Events were lost. Events that were read are stored, and the loss is recorded."
        if self.quarantined:
            return "Rows could not be decoded, and are in quarantine."
        if not self.is_known:
            return "No result was read: losses and quarantined rows are unknown."
        return "Its result has no gap, no missing span and no quarantined row."

    @property
    def data_loss(self) -> str:
        """Lost events and quarantined rows, one sentence for each."""
        rows = [f"{self.quarantined} rows are in quarantine."] if self.quarantined else []
        return " ".join([*self.events, *rows]) or ("None is recorded." if self.is_known else "Unknown.")

    @property
    def action(self) -> str:
        """Instructions to the reader; an empty text if there are no losses."""
        fetch = "Fetch the affected records from Salesforce, if you need them." if self.events else ""
        return " ".join(filter(None, (fetch, "Process the quarantined rows again." if self.quarantined else "")))


def _gap(gap: Mapping[str, Any]) -> str:
    since = gap.get("since") or "an unknown time"
    events = "Possibly events" if gap.get("uncertain") else "Events"
    return redacted(f"{events} from {since} on, detected at {gap.get('detected_at')} ({gap.get('reason')}).")


def _missing(span: Mapping[str, Any]) -> str:
    return redacted(f"Events from {span.get('from')} to {span.get('to')}.")


@dataclass(frozen=True)
class StreamMessage:
    """A message about one task, or about a DAG run. It holds no secret.

    :param title: task and state, in one line.
    :param parts: texts by their label: ``Error``, ``Context``, ``Data loss``, ``Time left``, ``Action``, ``Docs``. A
        label without a text has an empty one, because a template of Airflow fails for a missing key.
    :param facts: those of ``dag_id``, ``task_id``, ``run_id``, ``map_index``, ``try_number``, ``state`` and ``log_url``
        that the context of the callback has.
    """

    title: str
    parts: Mapping[str, str]
    facts: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The message as lines of text."""
        lines = [self.title, *(f"{label}: {text}" for label, text in self.parts.items() if text)]
        return "\n".join([*lines, f"Log: {self.facts['log_url']}"] if self.facts.get("log_url") else lines)

    @property
    def html(self) -> str:
        """The message as HTML for an e-mail."""
        return "<br>\n".join(escape(line) for line in self.text.splitlines())

    @property
    def document(self) -> dict[str, Any]:
        """The message as JSON: ``text``, ``title``, the facts, and each part by its label, as in ``data_loss``."""
        labelled = {label.lower().replace(" ", "_"): text for label, text in self.parts.items()}
        return {"text": self.text, "title": self.title, **self.facts, **labelled}

    @classmethod
    def from_failure(cls, context: Context) -> Self:
        """Return the message of a task, or a DAG run, that did not succeed."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            parts = report_of_error(error)
        else:
            # A text of Airflow: the reason in a DAG's callback, or why the scheduler failed a task.
            reason = context.get("reason")
            text = redacted(str(error or (f"The DAG run failed: {reason}." if reason else _ENDED)))
            parts = {"Error": text, "Context": _subject(context), "Docs": guide(_ON_CALL)}
        return cls._from_context(context, parts, "failed")

    @classmethod
    def from_success(cls, context: Context, losses: LossSummary) -> Self:
        """Return the message of a task that succeeded, with the losses in its result."""
        parts = {
            "Error": losses.summary if losses else f"{_outcome(context)} {losses.summary}",
            "Context": _subject(context),
            "Data loss": losses.data_loss,
            "Action": losses.action,
        }
        if losses:
            parts["Docs"] = guide(_WHEN_LOST if losses.events else "event-log.md#quarantine")
        return cls._from_context(context, parts, "success")

    @classmethod
    def _from_context(cls, context: Context, parts: Mapping[str, str], state: str) -> Self:
        task: Any = context.get("ti")
        dag: Any = context.get("dag")
        is_of_dag = "reason" in context  # only the callbacks of a DAG have a reason
        task_state = getattr(task, "state", None)  # absent if the task's process was killed
        state = state if is_of_dag or task_state is None else str(getattr(task_state, "value", task_state))
        name = str(getattr(task, "dag_id", None) or getattr(dag, "dag_id", None))
        index = getattr(task, "map_index", None)
        if not is_of_dag:
            name += f".{task.task_id}" if index in (None, -1) else f".{task.task_id}[{index}]"
        facts = {
            "dag_id": getattr(task, "dag_id", None) or getattr(dag, "dag_id", None),
            "task_id": None if is_of_dag else getattr(task, "task_id", None),
            "run_id": getattr(task, "run_id", None) or context.get("run_id"),
            "map_index": None if is_of_dag else index,
            "try_number": None if is_of_dag else getattr(task, "try_number", None),
            "state": state,
            # For a DAG run, the log of the task that ended last.
            "log_url": getattr(task, "log_url", None),
        }
        title = f"{name} {_STATES.get(state, 'failed')} ({facts['run_id']})"
        return cls(title, {label: parts.get(label, "") for label in LABELS}, facts)


def _subject(context: Context) -> str:
    task: Any = context.get("task")
    return "" if task is None else redacted(subject_of(task))


def _outcome(context: Context) -> str:
    """Return the outcome of a task, or of a DAG run, that did not fail."""
    if "reason" in context:
        return "The DAG run succeeded."
    is_skipped = getattr(context.get("ti"), "state", None) == "skipped"
    return "The task was skipped." if is_skipped else "The task succeeded."


def missed_deadline(context: Mapping[str, Any], streams: Sequence[str] | None = None) -> StreamMessage | None:
    """Return the message about a DAG run that did not succeed before its deadline.

    ``None`` if Salesforce answered a drain of each stream since the run was queued.

    :param context: the context of a deadline's callback: the run as in Airflow's API, and the deadline.
    :param streams: URIs of streams; ``None``: those of the DAG with a status.
    """
    run = context["dag_run"]
    dag_id, run_id = run["dag_id"], run["dag_run_id"]
    contacts = dict.fromkeys(streams or ()) | _contacts(dag_id, streams)
    since = datetime.fromisoformat(run["queued_at"] or run["run_after"])
    late = [uri for uri, contact in contacts.items() if contact is None or contact < since]
    if contacts and not late:
        log.info(
            "Run %s of %s missed its deadline, but Salesforce has answered a drain of each stream since.",
            run_id,
            dag_id,
        )
        return None
    unknown = "unknown, because no status of a drain could be read"
    lines = [f"{uri} (last response of Salesforce: {contacts[uri] or unknown})" for uri in late]
    parts = {
        "Error": f"The run is {run['state']}, and should have succeeded by {context['deadline']['deadline_time']}.",
        "Context": ", ".join(lines) or "no stream of this DAG has a readable status",
        "Docs": guide("on-call.md#what-to-do"),
    }
    facts = {"dag_id": dag_id, "task_id": None, "run_id": run_id, "map_index": None, "try_number": None}
    facts |= {"state": run["state"], "log_url": None}
    return StreamMessage(
        f"{dag_id} missed its deadline ({run_id})", {label: parts.get(label, "") for label in LABELS}, facts
    )


def _contacts(dag_id: str, streams: Sequence[str] | None) -> dict[str, datetime | None]:
    """Return the time of Salesforce's last response to a drain of each stream whose status is readable: of these, or of
    a DAG's."""
    try:
        with closing(open_status_store()) as store:
            reported = ReportedStatus(store.statuses())
    except Exception as error:  # the alert must not depend on this store
        log.warning("The status of streams cannot be read, so that the deadline is reported: %s", error)
        return {}
    contacts = {
        uri: reported.section(uri, "drain").get("contact_at")
        for uri in reported.streams()
        if (reported.owner(uri) == dag_id if streams is None else uri in streams)
    }
    return {uri: None if contact is None else datetime.fromisoformat(contact) for uri, contact in contacts.items()}
