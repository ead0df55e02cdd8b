"""Question to the users of Airflow whether the loss at a position is accepted (``on_invalid_replay="ask"``)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import await_answer
from airflow_provider_sfstream.actions.failures import hours_text, log_failure, minute
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.exceptions import PositionAgedOutError, ReplayIdLostError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.actions.drain.arguments import Drain
    from airflow_provider_sfstream.replay_stores.base import Position
    from airflow_provider_sfstream.salesforce.streams import RunIdentity

log = logging.getLogger(__name__)

_CHOICES = {
    "earliest": "continue with the oldest event that Salesforce still retains",
    "latest": "continue with new events only; the retained ones are lost too",
}


@contextmanager
def asking_about_loss(drain: Drain, context: Context) -> Iterator[None]:
    """Ask, if the ``with`` block fails because the recorded position is lost and the operator has ``"ask"``.

    The task then leaves its worker, and its method ``execute_answer`` resumes it. Nothing is recorded before. A try
    that is killed before it has recorded the answer is followed by one that asks again.
    """
    try:
        yield
    except ReplayIdLostError as error:
        from airflow_provider_sfstream.replay_windows.lost_positions import is_unaccepted_loss

        landed = drain.landed
        position = landed.position()
        if drain.arguments.on_invalid_replay != "ask" or not is_unaccepted_loss(landed, position, error):
            raise
        body = _body(drain, error, position)
        landed.store.close()  # the wait may be long
        log_failure(error, drain.arguments, asks=True)
        await_answer(
            context,
            method_name="execute_answer",
            kwargs={"after": (position.replay_id or b"").hex()},
            timeout=drain.arguments.execution_timeout,
            subject=f"{landed.stream.topic}, {landed.stream.subscription}: accept the loss of events?",
            body=body,
            options=_options(error),
        )


def accept_answer(drain: Drain, event: dict[str, Any], after: str, run: RunIdentity) -> None:
    """Accept a loss as a user answered, with that user, the run and the reason in the gap.

    Without an answer, or if the position has changed since the question, nothing is accepted.

    :param event: Airflow's document of the answer.
    :param after: the position that the question was about, as hex text.
    :raises ConfigurationError: the answer has no choice or no reason, or the position can be read after all. Nothing
        was recorded.
    """
    from airflow_provider_sfstream.replay_windows.lost_positions import accept_loss

    landed = drain.landed
    if "error" in event:
        log.warning("%s: nobody accepted the loss of events: %s", landed.stream, event["error"])
        return
    replay_id = landed.position().replay_id
    if replay_id is None or replay_id.hex() != after:
        log.warning("%s: the answer is not applied, because the position has changed since.", landed.stream)
        return
    choice: Any = "".join(event["chosen_options"])
    check_choice("the answer", choice, tuple(_CHOICES))
    user = (event["responded_by_user"] or {}).get("name", "an unknown user")
    with drain.hook.get_conn() as client:
        gap = accept_loss(
            landed,
            client,
            start_from=choice,
            reason=str((event["params_input"] or {}).get("reason") or ""),
            accepted_by=f"{user} in {run}",
            now=datetime.now(UTC),
        )
    log.warning("%s: the loss of events after %s is %s", landed.stream, after, gap.reason)


def _options(error: ReplayIdLostError) -> list[str]:
    """Return the choices. After a position that aged out in quiet, any drain continues from the earliest event."""
    return ["earliest"] if isinstance(error, PositionAgedOutError) else list(_CHOICES)


def _body(drain: Drain, error: ReplayIdLostError, position: Position) -> str:
    """Return the text of the question, in Markdown."""
    from airflow_provider_sfstream.replay_windows.lost_positions import last_stored_at

    landed, now = drain.landed, datetime.now(UTC)
    since, retention = last_stored_at(landed, position), landed.known_retention
    span = "The time of the last stored event is not known."
    if since is not None:
        span = f"At most the events of {hours_text(now - since)} are lost: since the last stored one, {minute(since)}."
    kept = f"{hours_text(landed.retention)}{'' if retention else ' at least'}"
    choices = "\n".join(f"- **{option}**: {_CHOICES[option]}" for option in _options(error))
    return (
        f"{error.happened}\n\n{span} Salesforce keeps an event for {kept}: each hour without an answer may lose more. "
        f"(As of {minute(now)}. Nothing was stored, and the position was not moved.)\n\n{choices}\n\n"
        "The answer records a gap with your name and the reason; the task then drains the stream."
    )
