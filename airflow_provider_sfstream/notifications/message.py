"""Message of a notifier about a task: the failure report of its log, and the losses in its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Self

from airflow_provider_sfstream.actions.failures import WORDS, guide_url, report_of_error, subject_of
from airflow_provider_sfstream.redaction import redacted

if TYPE_CHECKING:
    from airflow.sdk import Context

_STATES = {
    "success": "succeeded",
    "skipped": "was skipped",
    "up_for_retry": "failed and will be tried again",
}
_ENDED = "The task ended without an error of its own: its process was killed, or Airflow heard no more of it."
_ON_CALL = "on-call.md"
_WHEN_LOST = f"{_ON_CALL}#when-events-are-lost"


@dataclass(frozen=True)
class LossSummary:
    """Gaps, missing spans and quarantined rows in the result of a task. True if there is one.

    :param events: one sentence for each gap and each missing span.
    :param quarantined: number of rows in quarantine.
    :param is_uncertain: ``events`` has one uncertain gap only, so that no event is known to be lost.
    """

    events: tuple[str, ...] = ()
    quarantined: int = 0
    is_uncertain: bool = False

    def __bool__(self) -> bool:
        return bool(self.events or self.quarantined)

    @classmethod
    def of(cls, result: Any) -> Self:
        """Return the losses in the XCom result of a task of this package; no losses for any other result."""
        if not isinstance(result, Mapping):
            return cls()
        gap, missing = result.get("gap"), result.get("missing")
        events = [_gap(gap)] if isinstance(gap, Mapping) else []
        events += [_missing(span) for span in missing if isinstance(span, Mapping)] if isinstance(missing, list) else []
        quarantined = result.get("quarantined")
        is_uncertain = isinstance(gap, Mapping) and gap.get("uncertain") is True and len(events) == 1
        return cls(tuple(events), quarantined if type(quarantined) is int else 0, is_uncertain)

    @property
    def what(self) -> str:
        """Summary of the losses, in one sentence."""
        if self.is_uncertain:
            return "Possible loss; nothing is known to be lost. What was there is stored, and the gap is recorded."
        if self.events:
            return "Events were lost. What was there is stored, and the loss is recorded."
        if self.quarantined:
            return "Rows could not be decoded, and are in quarantine."
        return "All is well."

    @property
    def lost(self) -> str:
        """Lost events and quarantined rows, one sentence for each."""
        rows = [f"{self.quarantined} rows wait in quarantine."] if self.quarantined else []
        return " ".join([*self.events, *rows]) or "Nothing."

    @property
    def remedy(self) -> str:
        """Instructions to the reader; an empty text if there are no losses."""
        fetch = "Fetch from Salesforce what the events told of, if it is needed." if self.events else ""
        return " ".join(filter(None, (fetch, "Take the rows back from quarantine." if self.quarantined else "")))


def _gap(gap: Mapping[str, Any]) -> str:
    since = gap.get("since") or "an unknown time"
    events = "Possibly events" if gap.get("uncertain") else "Events"
    return redacted(f"{events} from {since} on, found out at {gap.get('detected_at')} ({gap.get('reason')}).")


def _missing(span: Mapping[str, Any]) -> str:
    return redacted(f"Events from {span.get('from')} to {span.get('to')}.")


@dataclass(frozen=True)
class StreamMessage:
    """A message about one task, or about a DAG run. It holds no secret.

    :param title: task and state, in one line.
    :param parts: texts by their label: ``What``, ``Of``, ``Lost``, ``Left``, ``Do``, ``Guide``. A label without a text
        has an empty one, because a template of Airflow fails for a missing key.
    :param facts: those of ``dag_id``, ``task_id``, ``run_id``, ``map_index``, ``try_number``, ``state`` and ``log_url``
        that the context of the callback has.
    """

    title: str
    parts: Mapping[str, str]
    facts: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The message as lines of text."""
        lines = [self.title, *(f"{word}: {text}" for word, text in self.parts.items() if text)]
        return "\n".join([*lines, f"Log: {self.facts['log_url']}"] if self.facts.get("log_url") else lines)

    @property
    def html(self) -> str:
        """The message as HTML for an e-mail."""
        return "<br>\n".join(escape(line) for line in self.text.splitlines())

    @property
    def document(self) -> dict[str, Any]:
        """The message as JSON: ``text``, ``title``, the facts, and each part by its label in lower case."""
        labelled = {word.lower(): text for word, text in self.parts.items()}
        return {"text": self.text, "title": self.title, **self.facts, **labelled}

    @classmethod
    def of_failure(cls, context: Context) -> Self:
        """Return the message of a task, or a DAG run, that did not succeed."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            parts = report_of_error(error)
        else:
            # Text of Airflow's: the reason of a DAG's callback, or why it gave a task up.
            reason = context.get("reason")
            labelled = redacted(str(error or (f"The DAG run failed: {reason}." if reason else _ENDED)))
            parts = {"What": labelled, "Of": _subject(context), "Guide": _guide(_ON_CALL)}
        return cls._of(context, parts, "failed")

    @classmethod
    def of_success(cls, context: Context, losses: LossSummary) -> Self:
        """Return the message of a task that succeeded, with the losses in its result."""
        parts = {"What": losses.what, "Of": _subject(context), "Lost": losses.lost, "Do": losses.remedy}
        if losses:
            parts["Guide"] = _guide(_WHEN_LOST if losses.events else "event-log.md#quarantine")
        return cls._of(context, parts, "success")

    @classmethod
    def _of(cls, context: Context, parts: Mapping[str, str], state: str) -> Self:
        task: Any = context.get("ti")
        dag: Any = context.get("dag")
        of_dag = "reason" in context  # only a DAG's own callbacks have one
        own = getattr(task, "state", None)  # not there where the task's process is gone
        state = state if of_dag or own is None else str(getattr(own, "value", own))
        name = str(getattr(task, "dag_id", None) or getattr(dag, "dag_id", None))
        index = getattr(task, "map_index", None)
        if not of_dag:
            name += f".{task.task_id}" if index in (None, -1) else f".{task.task_id}[{index}]"
        facts = {
            "dag_id": getattr(task, "dag_id", None) or getattr(dag, "dag_id", None),
            "task_id": None if of_dag else getattr(task, "task_id", None),
            "run_id": getattr(task, "run_id", None) or context.get("run_id"),
            "map_index": None if of_dag else index,
            "try_number": None if of_dag else getattr(task, "try_number", None),
            "state": state,
            # Of a DAG run, that of the task that ended last.
            "log_url": getattr(task, "log_url", None),
        }
        title = f"{name} {_STATES.get(state, 'failed')} ({facts['run_id']})"
        return cls(title, {word: parts.get(word, "") for word in WORDS}, facts)


def _subject(context: Context) -> str:
    task: Any = context.get("task")
    return "" if task is None else redacted(subject_of(task))


def _guide(page: str) -> str:
    return f"docs/{page} {guide_url(page)}".rstrip()
