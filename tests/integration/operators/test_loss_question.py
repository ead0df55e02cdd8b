"""A drain with ``on_invalid_replay="ask"``, against a local org: the question to Airflow's users, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl

from airflow_provider_sfstream import _airflow
from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators import drain_replay_window
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.salesforce.streams import Gap, Stream
from tests.support.airflow_names import TaskAwaitingInput, TaskDeferred
from tests.support.shared_org import OWN_ORG, SharedOrg, connections, org, shared_org
from tests.support.tasks import context_for

__all__ = ["connections", "org", "shared_org"]

HOUR = 3600
LATER = 2
"""Hour of the run that loses the position."""


class Asked:
    """A drain of a stream whose position is lost, and the questions that Airflow received."""

    def __init__(self, org: SharedOrg, folder: Path, **arguments: Any) -> None:
        self.org, self.folder = org, folder
        self.questions: list[Any] = []
        defaults = {"topic": org.topic, "landing_url": str(folder / "lake"), "idle_timeout": 1.0}
        more = {"replay_store": "table", "on_invalid_replay": "ask"}
        self.operator = DrainReplayWindowOperator(task_id="drain", **{**defaults, **more, **arguments})

    def context(self, try_number: int = 1, **dag_run: Any) -> Any:
        return context_for("drain", run_id=f"run-{LATER}", try_number=try_number, hour=LATER, **dag_run)

    def ask(self, try_number: int = 1, **dag_run: Any) -> Callable[..., dict[str, Any]]:
        """Run the task until it waits; return a callable that resumes it with the event of an answer."""
        with pytest.raises((TaskAwaitingInput, TaskDeferred)) as parked:
            self.operator.execute(self.context(try_number, **dag_run))
        waits: Any = parked.value
        context = self.context(try_number, **dag_run)

        def resume(**event: Any) -> dict[str, Any]:
            result: dict[str, Any] = self.operator.resume_execution(
                waits.method_name, {**waits.kwargs, "event": event}, context
            )
            return result

        return resume

    def drain(self) -> dict[str, Any]:
        """Run the DAG run before the loss."""
        return self.operator.execute(context_for("drain"))

    def gaps(self) -> list[Gap]:
        api = "streaming" if self.operator.topic.startswith("/u/") else "pubsub"
        with closing(TableReplayStore(f"sqlite:///{self.folder / 'replay.db'}")) as store:
            return store.gaps(Stream(self.org.org_id, api, self.operator.topic))


def answer(choice: str = "earliest", reason: str = "known") -> dict[str, Any]:
    """Return the event with which Airflow resumes a task, as from ``HITLDetail.as_resume_event_payload``."""
    user = {"id": "7", "name": "ada"}
    when = {"responded_at": datetime(2026, 11, 20, 3, tzinfo=UTC), "timedout": False}
    return {"chosen_options": [choice], "params_input": {"reason": reason}, "responded_by_user": user, **when}


@pytest.fixture
def asked(org: SharedOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asked]:
    def make(**arguments: Any) -> Asked:
        new = Asked(org, tmp_path, **arguments)
        monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **question: new.questions.append(question))
        return new

    return make


@pytest.fixture
def lost(org: SharedOrg, asked: Callable[..., Asked]) -> Asked:
    """A drain whose last position was lost with a reset, after which two events were published."""
    new = asked()
    org.publish(org.topic, [{"Number__c": 1.0}])
    new.drain()
    org.fault("reset_stream", topic=org.topic)
    org.publish(org.topic, [{"Number__c": 2.0}, {"Number__c": 3.0}])
    return new


@pytest.mark.parametrize(("choice", "event_count"), [("earliest", 2), ("latest", 0)])
def test_the_drain_continues_as_a_user_answered(
    lost: Asked, choice: str, event_count: int, caplog: pytest.LogCaptureFixture
) -> None:
    resume = lost.ask()
    [question] = lost.questions
    assert lost.operator.topic in question["subject"]
    assert "Salesforce keeps an event for 72 hours" in question["body"]
    assert "At most the events of 0 min are lost" in question["body"]
    assert question["options"] == ["earliest", "latest"]
    assert "waits for an answer in" in caplog.text
    assert lost.org.client_secret not in f"{question}{caplog.text}"
    assert lost.gaps() == []

    # A reason that quotes another acceptance does not change the choice.
    reason = "as usual: accepted by me, to go on from latest: moved"
    window = resume(**answer(choice, reason))
    assert window["event_count"] == event_count
    assert window["gap"]["reason"] == (
        f"accepted by ada in orders.drain run run-{LATER} try 1, to go on from {choice}: {reason}"
    )
    assert lost.operator.execute(lost.context(2))["window_id"] == window["window_id"]


def test_a_try_that_was_killed_is_followed_by_a_safe_one(lost: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    lost.ask()
    resume = lost.ask(try_number=2)  # Airflow clears the answer to the first question
    assert (len(lost.questions), lost.gaps()) == (2, [])

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(drain_replay_window, "drain_new_events", killed)
        with pytest.raises(KeyboardInterrupt):
            resume(**answer())
    assert len(lost.gaps()) == 1
    window = lost.operator.execute(lost.context(3))
    assert (window["event_count"], len(lost.questions)) == (2, 2), "the recorded answer is applied without a question"


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"error": "The response timeout has passed.", "error_type": "timeout"}, "ReplayIdLostError"),
        (answer(reason=" "), "reason is empty"),
        (answer("somewhere"), "the answer='somewhere' must be"),
        ({**answer(), "chosen_options": []}, "the answer='' must be"),
    ],
)
def test_without_a_valid_answer_the_task_fails_and_nothing_is_accepted(
    lost: Asked, event: dict[str, Any], error: str
) -> None:
    with pytest.raises(AirflowFailException, match=error):
        lost.ask()(**event)
    assert (lost.gaps(), len(lost.questions)) == ([], 1)


def test_an_answer_about_a_former_position_is_not_applied(lost: Asked, caplog: pytest.LogCaptureFixture) -> None:
    resume = lost.ask()
    other = Asked(lost.org, lost.folder, on_invalid_replay="earliest")
    assert other.operator.execute(context_for("drain", run_id="other", hour=3))["event_count"] == 2
    gaps = lost.gaps()
    assert resume(**answer("latest"))["event_count"] == 0
    assert lost.gaps() == gaps
    assert "the answer is not applied" in caplog.text


def test_a_live_interval_run_asks_but_a_backfill_does_not(lost: Asked, asked: Callable[..., Asked]) -> None:
    now = datetime.now(UTC)
    interval, former = (
        {"data_interval_start": end - timedelta(hours=1), "data_interval_end": end}
        for end in (now, now - timedelta(hours=100))
    )
    hourly = asked(mode="interval", on_expired="partial")
    hourly.operator.execute(hourly.context(**interval, run_type="backfill"))
    assert hourly.questions == []
    resume = hourly.ask(**interval)
    assert resume(**answer())["missing"] != []
    accepted = [gap.reason for gap in hourly.gaps() if gap.after is not None]
    assert all(reason.startswith("accepted by ada") for reason in accepted)
    assert len(accepted) == 2, "one by the answer, one by the drain"

    strict = asked(mode="interval")
    with pytest.raises(AirflowFailException, match="was never landed"):
        strict.operator.execute(strict.context(2, **former))
    assert strict.questions == [], "no answer brings the hours of an interval back"


@OWN_ORG
def test_a_position_that_aged_out_has_one_choice_and_an_uncertain_gap(
    org: SharedOrg, asked: Callable[..., Asked]
) -> None:
    topic = str(org.generic_channel("/u/notifications/Quiet")["name"])
    quiet = asked(topic=topic)
    org.publish(topic, [{"payload": "1"}])
    quiet.drain()
    org.knobs(clock_offset_seconds=25 * HOUR)
    resume = quiet.ask()
    assert quiet.questions[0]["options"] == ["earliest"]
    assert "nothing is known to be lost" in quiet.questions[0]["body"]
    gap = resume(**answer())["gap"]
    assert gap["uncertain"]
    assert "accepted by ada" in gap["reason"]


def test_ask_is_refused_where_nobody_could_answer(asked: Callable[..., Asked], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="cannot be combined with managed_subscription"):
        asked(managed_subscription="Orders")
    monkeypatch.setattr(_airflow, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"needs the HITLOperator of apache-airflow-providers-standard 1\.9"):
        asked()
    asked(on_invalid_replay="earliest")
