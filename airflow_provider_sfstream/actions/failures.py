"""What a task says before it fails: a block of short lines in its log, and the first of them as its error.

Who is called at night looks at a log in a browser. The block has what happened, what is lost, how long there is to mend
it, and what to do; the error that Airflow shows below it has no chain of causes, whose texts it already holds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import metadata
from textwrap import TextWrapper
from types import TracebackType
from typing import TYPE_CHECKING

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.actions.status import tell_of_failure
from airflow_provider_sfstream.actions.time_left import drain_headroom, estimate_basis, minute, time_left
from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.monitoring.status import Certainty
from airflow_provider_sfstream.redaction import has_credentials, redacted

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator


log = logging.getLogger(__name__)

_WIDTH = 92
"""Characters of a line of the block: with Airflow's time and level before it, still in sight at 1,344 pixels."""

WORDS = ("What", "Of", "Lost", "Left", "Do", "Guide")
"""What stands before the parts of the block, in its order."""

_SUBJECT = {
    "topic": "topic",
    "subscription": "subscription",
    "managed_subscription": "managed subscription",
    "salesforce_conn_id": "connection",
    "landing_url": "landing",
    "output_url": "tables",
}
"""The arguments of operators that say what a task is about, and how the block names them."""


@dataclass(frozen=True)
class FailureReport:
    """Why a task fails, for the person who is called.

    :param what: what happened, in one sentence, after the name of the error.
    :param subject: what the task is about: topic, connection, and so on.
    :param lost: what is lost.
    :param left: how long events that were not read can still be had; ``None`` where the task reads none.
    :param do: what to do.
    :param guide: where more is written.
    :param certainty: that of ``lost`` and ``left``, by the word that stands before each.
    """

    what: str
    subject: str
    lost: str
    left: str | None
    do: str
    guide: str
    certainty: dict[str, Certainty] = field(default_factory=dict)

    @classmethod
    def of(cls, error: SalesforceStreamError, operator: BaseOperator, now: datetime) -> FailureReport:
        """Return the report on an error of a task. Reads the landing, if that is not what failed."""
        retried = "Airflow tries the task again by itself, as its retries allow." if error.retriable else ""
        # A position that cannot be read proves no lost event: there may have been none.
        certainty: dict[str, Certainty] = {"Lost": "unknown" if error.replay_lost else "proven"}
        lost, left = error.lost, None
        if _drains(operator):
            headroom = drain_headroom(operator, error, now)
            left, certainty["Left"] = time_left(headroom, error)
            if error.replay_lost and headroom.until is not None:
                lost += f" Events until {minute(headroom.until)} are stored{estimate_basis(headroom)}."
        return cls(
            what=f"{type(error).__name__}: {error.happened}",
            subject=subject_of(operator),
            lost=lost,
            left=left,
            do=" ".join(filter(None, (error.advice, retried))),
            guide=f"docs/{error.guide} {guide_url(error.guide)}".rstrip(),
            certainty=certainty,
        )

    def parts(self) -> dict[str, str]:
        """Return what the report says, by the word that stands before it."""
        texts = (self.what, self.subject, self.lost, self.left, self.do, self.guide)
        return {word: text for word, text in zip(WORDS, texts, strict=True) if text}

    def lines(self) -> list[str]:
        """Return the block, none of its lines longer than can be seen at once."""
        lines = []
        for word, text in self.parts().items():
            first, other = f"{word:<7}", " " * 7
            wrapper = TextWrapper(_WIDTH, first, other, break_long_words=False, break_on_hyphens=False)
            lines += wrapper.wrap(text)
        return lines


class airflow_errors:  # noqa: N801  # read as a verb of the with statement
    """Tell of an error before it leaves a task, and turn one that a retry cannot mend into AirflowFailException.

    The error keeps its first sentence; its notes have the rest of the block, for callbacks. Its causes are not chained:
    their texts are in the block, and at DEBUG level all of it is logged as it was.
    """

    def __init__(self, operator: BaseOperator) -> None:
        self._operator = operator

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, SalesforceStreamError):
            return
        log.debug("The error in full:", exc_info=error)
        report = FailureReport.of(error, self._operator, datetime.now(UTC))
        for line in report.lines():
            log.error("%s", line)
        tell_of_failure(self._operator, report.parts(), report.certainty)
        if error.retriable:
            error.args = (report.what.partition(": ")[2],)
            raise _noted(error, report).with_traceback(None) from None
        raise _noted(AirflowFailException(report.what), report) from None


def _noted(error: BaseException, report: FailureReport) -> BaseException:
    for word, text in list(report.parts().items())[1:]:
        error.add_note(f"{word}: {text}")
    return error


def told_by(error: BaseException) -> dict[str, str]:
    """Return what an error that left a task says, by the word that stands before it: the block in the task's log.

    Of an error that is none of this package there is its text alone, after ``What``.
    """
    notes = [note.partition(": ") for note in getattr(error, "__notes__", ())]
    told = {word: text for word, _, text in notes if word in WORDS[1:]}
    # The name of its class is in the text of one that is not tried again, whose own class is Airflow's.
    is_named = isinstance(error, AirflowFailException) and bool(told)
    what = str(error) if is_named else f"{type(error).__name__}: {error}".removesuffix(": ")
    return {word: redacted(text) for word, text in {"What": what, **told}.items()}


def subject_of(operator: BaseOperator) -> str:
    """Return what a task is about, as the block has it after ``Of``: topic, connection, and so on."""
    return ", ".join(_subject(operator))


def _subject(operator: BaseOperator) -> Iterator[str]:
    for name, word in _SUBJECT.items():
        value = getattr(operator, name, None)
        if value and not has_credentials(str(value)):
            yield f"{word} {value}"


def _drains(operator: BaseOperator) -> bool:
    return hasattr(operator, "topic") and hasattr(operator, "landing_url")


def guide_url(page: str) -> str:
    """Return where a page of the documentation is read, by the address that the installed package names; or nothing."""
    for each in metadata("airflow-provider-sfstream").get_all("Project-URL") or ():
        name, _, url = each.partition(", ")
        if name == "Documentation":
            return f"{url.rstrip('/')}/{page}"
    return ""
