"""Failure reports: the lines that a task logs before it raises."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.actions import failures
from airflow_provider_sfstream.actions.failures import LABELS, FailureReport, airflow_errors
from airflow_provider_sfstream.exceptions import (
    AuthenticationError,
    LandingError,
    PositionAgedOutError,
    ReplayIdLostError,
    SalesforceStreamError,
    ServiceUnavailableError,
)
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.monitoring.status import Certainty
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream

DOCS = Path(__file__).parents[3] / "docs"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
DRAIN: Any = SimpleNamespace(
    topic="/event/Order__e",
    api=None,
    subscription="airflow",
    salesforce_conn_id="salesforce_default",
    landing_url="/lake",
    landing_conn_id=None,
)
TEXT = "/event/Order__e: the login was refused (invalid_client. Really. Try again). Check consumer_key. Then clear."


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the time until which the landing has events: a proven end of stream by default."""

    def store(
        time: datetime | None,
        certainty: Certainty = "proven",
        retention: timedelta | None = None,
        stop_reason: str = "max_events",
    ) -> None:
        windows = [] if time is None else [_window(time, certainty, retention, stop_reason)]
        catalog = SimpleNamespace(
            streams_of=lambda api, topic, subscription: [Stream("00D000000000001EAA", api, topic, subscription)],
            newest_live=lambda stream: windows[0] if windows else None,
            chain=lambda stream, window_id: iter(windows),
        )
        monkeypatch.setattr(failures, "open_landing", lambda url, conn_id: catalog)

    return store


def _window(time: datetime, certainty: Certainty, retention: timedelta | None, stop_reason: str) -> Manifest:
    """Return the manifest of a window that a drain has just finished, with all events until ``time``."""
    run = RunIdentity("orders", "drain", "run-1", NOW)
    facts = {"covered_until" if certainty == "proven" else "last_event_time": time}
    window = ReplayWindow("w1", "live", None, b"\x02", 0, time, facts.pop("last_event_time", None), "", run, **facts)
    stream = Stream("00D000000000001EAA", "pubsub", "/event/Order__e", "airflow")
    return Manifest(stream, window, 0, (), {}, 10, stop_reason, NOW, NOW, "test", retention=retention)


def report(error: SalesforceStreamError, operator: Any = DRAIN) -> FailureReport:
    return FailureReport.from_error(error, operator, NOW)


def test_first_sentence_is_the_failure_and_the_others_are_the_remedy() -> None:
    failure = report(AuthenticationError(TEXT))
    assert failure.error == (
        "AuthenticationError: /event/Order__e: the login was refused (invalid_client. Really. Try again)."
    )
    assert failure.action == "Check consumer_key. Then clear."
    assert "airflow tries" not in failure.action.lower()
    assert (
        failure.context == "topic /event/Order__e, subscription airflow, connection salesforce_default, landing /lake"
    )


def test_error_without_a_remedy_has_the_default_remedy_of_its_class() -> None:
    assert report(AuthenticationError("refused")).action == "Correct the connection, then clear the task."
    assert "Airflow retries the task" in report(ServiceUnavailableError("gone")).action


@pytest.mark.parametrize(
    ("topic", "retention", "age", "left"),
    [
        ("/event/Order__e", 72, 2, "70 hours, until 2026-11-23 10:00 UTC (proven): events until 2026-11-20 10:00"),
        ("/topic/Orders", None, 2, "22 hours, until 2026-11-21 10:00 UTC (proven): events until 2026-11-20 10:00"),
        ("/event/Order__e", 72, 71, "60 min, until 2026-11-20 13:00 UTC"),
        (
            "/event/Order__e",
            72,
            72,
            "Nothing (proven): events from 2026-11-17 12:00 UTC on were not read, and are",
        ),
        ("/event/Order__e", None, 2, "22 hours, until 2026-11-21 10:00 UTC (estimated): events until 2026-11-20"),
        (
            "/event/Order__e",
            None,
            30,
            "Nothing (estimated): events from 2026-11-19 06:00 UTC on were not read, and",
        ),
    ],
)
def test_report_shows_the_hours_until_unread_events_expire(
    stored: Any, topic: str, retention: int | None, age: int, left: str
) -> None:
    """An event whose definition is unknown is assumed to expire after 24 hours, as standard-volume events do."""
    stored(NOW - timedelta(hours=age), retention=None if retention is None else timedelta(hours=retention))
    failure = report(AuthenticationError(TEXT), SimpleNamespace(**{**vars(DRAIN), "topic": topic}))
    assert failure.time_left is not None
    assert failure.time_left.startswith(left)
    assert failure.certainty["Time left"] in left or "until 2026-11-20 13:00" in left


def test_time_left_is_unknown_without_evidence(stored: Any) -> None:
    stored(None)
    assert str(report(AuthenticationError(TEXT)).time_left).startswith("Unknown")
    stored(NOW + timedelta(hours=1), "estimated")
    assert str(report(AuthenticationError(TEXT)).time_left).startswith("Unknown"), (
        "the event's publisher has a wrong clock"
    )
    stored(NOW)
    assert str(report(LandingError("The storage is gone.")).time_left).startswith("Unknown"), (
        "the landing itself failed"
    )
    assert report(AuthenticationError(TEXT), SimpleNamespace(topic="/event/Order__e")).time_left is None, (
        "the operator reads no stream"
    )


@pytest.mark.parametrize(
    ("certainty", "left", "lost"),
    [
        ("proven", "(proven): events", "are stored."),
        ("estimated", "(estimated, by the time of the last one): events", "are stored, by the time of the last one."),
    ],
)
def test_time_left_by_event_times_is_an_estimate(stored: Any, certainty: Certainty, left: str, lost: str) -> None:
    stored(NOW - timedelta(hours=2), certainty, timedelta(hours=72))
    failure = report(ReplayIdLostError("lost"))
    assert left in str(failure.time_left)
    assert failure.data_loss.endswith(lost)
    assert failure.certainty == {"Data loss": "unknown", "Time left": certainty}, (
        "a lost position does not prove that an event was lost"
    )


def test_time_left_after_an_idle_drain_is_an_estimate_and_no_claim_about_a_loss(stored: Any) -> None:
    stored(NOW - timedelta(hours=50), "estimated", timedelta(hours=72), "idle")
    failure = report(AuthenticationError(TEXT))
    assert failure.time_left is not None
    assert failure.time_left.startswith(
        "72 hours, until 2026-11-23 12:00 UTC (estimated, because the last drain received"
    )
    assert failure.certainty["Time left"] == "estimated"
    assert "are stored" not in report(ReplayIdLostError("lost")).data_loss


def test_certainty_is_unknown_without_evidence(stored: Any) -> None:
    stored(None)
    assert report(AuthenticationError(TEXT)).certainty == {"Data loss": "proven", "Time left": "unknown"}
    assert report(AuthenticationError(TEXT), SimpleNamespace(topic="/event/Order__e")).certainty == {
        "Data loss": "proven"
    }


def test_loss_names_the_time_until_which_events_are_stored(stored: Any) -> None:
    stored(NOW - timedelta(hours=80))
    assert report(ReplayIdLostError("lost")).data_loss.endswith("Events until 2026-11-17 04:00 UTC are stored.")


def test_an_aged_position_is_reported_as_a_possible_loss(stored: Any) -> None:
    stored(NOW - timedelta(hours=80))
    drain = SimpleNamespace(**{**vars(DRAIN), "topic": "/topic/Orders"})
    failure = report(
        PositionAgedOutError("/topic/Orders: the position 0a aged out: nothing is known to be lost."), drain
    )
    assert failure.data_loss.startswith(
        "No event is known to be lost. Events that Salesforce stored and did not deliver may be"
    )
    assert str(failure.time_left).startswith("Unknown: an undelivered event, if one exists, is lost")


def test_report_lines_are_short() -> None:
    text = f"/event/Order__e: {'it failed and ' * 40}https://org.example/{'a' * 120} is gone. {'Mend it. ' * 30}"
    lines = report(AuthenticationError(text)).lines()
    assert [line[:10].strip() for line in lines if not line.startswith(" ")] == list(LABELS)
    assert all(len(line) <= 92 or line.strip().startswith("https://") for line in lines)


def test_a_url_with_a_password_is_not_shown() -> None:
    failure = report(
        AuthenticationError(TEXT), SimpleNamespace(**{**vars(DRAIN), "landing_url": "s3://key:secret@lake"})
    )
    assert "secret" not in "".join(failure.lines())


@pytest.mark.parametrize(
    ("error", "raised"),
    [(AuthenticationError(TEXT), AirflowFailException), (ServiceUnavailableError(TEXT), ServiceUnavailableError)],
)
def test_report_is_logged_and_the_error_has_its_first_line(
    error: SalesforceStreamError, raised: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    error.__cause__ = ValueError("a cause of another library")
    with pytest.raises(raised) as caught, caplog.at_level(logging.ERROR), airflow_errors(DRAIN):
        raise error
    logged = [record.getMessage() for record in caplog.records]
    assert logged[0].startswith(f"Error     {type(error).__name__}: /event/Order__e: the login was refused")
    assert str(caught.value).endswith("the login was refused (invalid_client. Really. Try again).")
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)
    notes = caught.value.__notes__
    assert "Action: Check consumer_key. Then clear." in "\n".join(notes)


def test_error_of_another_library_is_raised_unchanged() -> None:
    with pytest.raises(ValueError, match="theirs"), airflow_errors(DRAIN):
        raise ValueError("theirs")


def test_every_error_names_a_section_of_the_documentation() -> None:
    def subclasses(kind: type[SalesforceStreamError]) -> set[type[SalesforceStreamError]]:
        return {kind}.union(*(subclasses(each) for each in kind.__subclasses__()))

    for kind in subclasses(SalesforceStreamError):
        page, _, anchor = kind.guide.partition("#")
        headings = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("#")]
        anchors = {heading.lstrip("# ").lower().replace(" ", "-").replace(",", "") for heading in headings}
        assert anchor in anchors, kind.guide
        assert kind.lost.endswith("."), kind
