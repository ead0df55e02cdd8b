"""Overview page: every stream with its problems, the worst first."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.monitoring.status import Status, drain_document
from airflow_provider_sfstream.plugins.page.loading import is_valid
from airflow_provider_sfstream.plugins.page.overview import overview
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream
from tests.support.stream_statuses import (
    HOUR,
    UNHEALTHY,
    drain_statuses,
    failure_status,
    healthy,
    never_confirmed,
    run,
    task_fields,
)

NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)
EXPECTED = {
    "expiring": ("bad", "Unread events are lost soon"),
    "gap": ("bad", "Events were lost"),
    "failed_login": ("bad", "Task drain failed: AuthenticationError: /event/Login__e: the login was refused"),
    "quarantine": ("warning", "Rows are in quarantine"),
    "dirty_replica": ("warning", "Dirty rows need a refresh"),
}


def only(statuses: list[Status], now: datetime = NOW) -> dict[str, Any]:
    """Return the one stream that is shown."""
    [row] = overview(statuses, now)["streams"]
    return dict(row)


def test_healthy_stream_has_no_concerns() -> None:
    row = only(healthy(NOW))
    assert (row["level"], row["concerns"], row["failures"]) == ("good", [], [])
    assert (row["topic"], row["subscription"], row["connection"]) == (
        "/event/Order__e",
        "airflow",
        "salesforce_default",
    )
    assert row["headroom"] == {
        "known": 72 * 3600,
        "assumed": None,
        "best": 72 * 3600,
        "certainty": "proven",
        "level": "good",
    }
    assert row["certainty"] == {
        "confirmed_at": "proven",
        "contact_at": "proven",
        "last_event_time": "estimated",
        "retention": "proven",
    }
    assert row["hours"][-24:] == [number % 4 * 25 for number in range(24, 0, -1)]
    assert sum(row["hours"][:-24]) == 0
    assert row["dags"] == [{"dag_id": "orders", "page": "dags/orders"}]


def test_every_broken_state_has_an_expected_text() -> None:
    assert EXPECTED.keys() == UNHEALTHY.keys()


@pytest.mark.parametrize("name", UNHEALTHY)
def test_problem_is_the_first_concern(name: str) -> None:
    row = only(UNHEALTHY[name](NOW))
    level, text = EXPECTED[name]
    assert row["level"] == level
    assert row["concerns"][0]["level"] == level
    assert row["concerns"][0]["text"].startswith(text)


def test_worst_stream_is_first() -> None:
    statuses = [status for state in (healthy, *UNHEALTHY.values()) for status in state(NOW)]
    found = overview(statuses, NOW)["streams"]
    assert [row["level"] for row in found] == ["bad"] * 3 + ["warning"] * 2 + ["good"]
    assert found[0]["topic"] == "/event/Expiring__e", "of two bad streams, the one with less time left is first"
    assert found[-1]["topic"] == "/event/Order__e"
    json.dumps(found)


def test_a_stream_whose_end_is_not_confirmed_is_good_with_a_note() -> None:
    row = only(never_confirmed(NOW))
    assert row["headroom"] == {
        "known": None,
        "assumed": 72 * 3600,
        "best": 72 * 3600,
        "certainty": "estimated",
        "level": "good",
    }
    text = "End of stream never confirmed; remaining time is an estimate"
    assert (row["level"], row["concerns"]) == ("good", [{"level": "note", "text": text}])


def test_the_first_drain_of_a_quiet_topic_is_good() -> None:
    statuses = drain_statuses(NOW, "/event/Quiet__e", windows=1, confirmed=False, stop_reason="idle")
    statuses[0].document.pop("last_event_time")
    assert only(statuses)["level"] == "good"


def test_a_drain_that_ended_at_a_limit_without_an_event_is_a_warning() -> None:
    statuses = drain_statuses(NOW, "/event/Quiet__e", windows=1, confirmed=False, stop_reason="max_seconds")
    statuses[0].document.pop("last_event_time")
    row = only(statuses)
    assert row["level"] == "warning"
    assert row["concerns"][0]["text"].startswith("Remaining time unknown")
    answer = overview(statuses, NOW)["banner"]
    assert answer["text"] == "The time until streams lose events is unknown"
    assert (answer["level"], answer["note"]) == ("warning", "Unknown for 1 stream. 1 stream below needs attention.")


def streams(*ended: int, confirmed: bool = True) -> list[Status]:
    """Return the statuses of a stream for each number of hours since its last drain."""
    found = [
        drain_statuses(NOW, f"/event/E{hours}__e", ended=hours * HOUR, confirmed=confirmed, stop_reason="idle")
        for hours in ended
    ]
    return [status for statuses in found for status in statuses]


@pytest.mark.parametrize(
    ("statuses", "level", "text", "note"),
    [
        (
            streams(1, 6),
            "good",
            "No stream loses events before Fri 06:30 UTC",
            "This holds without another drain.",
        ),
        (
            [*streams(1), *never_confirmed(NOW)],
            "good",
            "No stream loses events before Fri 11:30 UTC (estimate)",
            "This holds without another drain. Estimated for 1 of 2 streams.",
        ),
        (
            streams(1, 64, 66),
            "bad",
            "2 streams lose events within 8 hours",
            "2 streams below need attention.",
        ),
        (
            streams(66, confirmed=False),
            "bad",
            "1 stream loses events within 6 hours (estimate)",
            "Estimated for 1 of 1 stream. 1 stream below needs attention.",
        ),
        (streams(73), "bad", "1 stream loses events now", "1 stream below needs attention."),
        (
            streams(40),
            "warning",
            "No stream loses events before Wed 20:30 UTC",
            "This holds without another drain. 1 stream below needs attention.",
        ),
    ],
)
def test_the_banner_answers_when_events_are_lost(statuses: list[Status], level: str, text: str, note: str) -> None:
    assert overview(statuses, NOW)["banner"] == {"level": level, "text": text, "note": note}


def test_the_banner_counts_streams_of_which_no_drain_is_known() -> None:
    uri = "sfstream://salesforce_default/event/New__e?subscription=airflow"
    waiting = Status(uri, "wait", {"reason": "events", **task_fields(NOW)})
    note = "This holds without another drain. Unknown for 1 stream. 1 stream below needs attention."
    answer = overview([*streams(1), waiting], NOW)["banner"]
    assert (answer["level"], answer["note"]) == ("warning", note)


def test_there_is_no_banner_before_the_first_drain() -> None:
    uri = "sfstream://salesforce_default/event/New__e?subscription=airflow"
    assert overview([], NOW)["banner"] is None
    assert overview([failure_status(NOW, uri, {"Error": "x"})], NOW)["banner"] is None


def test_a_stream_whose_dag_does_not_exist_follows_the_others() -> None:
    statuses = [*UNHEALTHY["expiring"](NOW), *UNHEALTHY["dirty_replica"](NOW)]
    failure = failure_status(NOW, "s3://lake/elsewhere", {"Error": "x"}, "event_log")
    found = overview([*statuses, failure], NOW, existing_dags={"accounts"})
    assert [(row["topic"], row["retired"]) for row in found["streams"]] == [
        ("/data/AccountChangeEvent", False),
        ("/event/Expiring__e", True),
    ]
    assert found["banner"]["text"] == "No stream loses events before Fri 12:30 UTC"
    [folder] = found["folders"]
    assert (folder["retired"], folder["forget"]) == (True, "sfstream forget s3://lake/elsewhere")
    assert not any(row["retired"] for row in overview(statuses, NOW)["streams"])


def test_a_loss_is_shown_as_long_as_its_events_would_be_retained() -> None:
    """A later possible loss does not hide it."""
    found = UNHEALTHY["gap"](NOW)
    [loss] = found[0].document["gaps"]
    found[0].document["gaps"].append({**loss, "uncertain": True})
    assert [each["text"] for each in only(found)["concerns"]] == ["Events were lost", "Events may have been lost"]
    later = NOW + 70 * HOUR
    assert "Events were lost" in [each["text"] for each in only(found, later)["concerns"]]
    later = NOW + 71 * HOUR
    assert "Events were lost" not in [each["text"] for each in only(found, later)["concerns"]]


def test_tables_that_need_a_refresh_are_one_concern() -> None:
    found = UNHEALTHY["dirty_replica"](NOW)
    tables = found[-1].document["tables"]
    tables["Contact"] = {"dirty": 3, "flag": None}
    assert [each["text"] for each in only(found)["concerns"]] == ["Dirty rows need a refresh"]
    tables["Contact"]["flag"] = "gap"
    assert [each["text"] for each in only(found)["concerns"]] == ["A table must be fetched again"]


def test_dirty_rows_are_a_note_until_a_refresh_is_late() -> None:
    found = UNHEALTHY["dirty_replica"](NOW)
    found[-1].document["tables"]["Account"]["unclean_since"] = (NOW - HOUR).isoformat()
    row = only(found)
    assert (row["level"], row["concerns"]) == ("good", [{"level": "note", "text": "Dirty rows need a refresh"}])


@pytest.mark.parametrize(("ended", "level"), [(35, "good"), (37, "warning"), (59, "warning"), (61, "bad"), (73, "bad")])
def test_level_depends_on_the_time_left(ended: int, level: str) -> None:
    assert only(drain_statuses(NOW, "/event/Order__e", ended=ended * HOUR))["level"] == level


def test_push_topic_has_a_third_of_the_retention() -> None:
    row = only(drain_statuses(NOW, "/topic/Orders", ended=13 * HOUR))
    assert (row["retention"], row["level"]) == (24 * 3600, "warning")


def test_failure_ends_with_a_later_success() -> None:
    drain = drain_statuses(NOW - HOUR, "/event/Order__e")
    failure = failure_status(NOW, drain[0].subject, {"Error": "x"})
    assert only([*drain, failure])["level"] == "bad"
    assert only([*drain_statuses(NOW + HOUR, "/event/Order__e"), failure], NOW + HOUR)["failures"] == []


def test_return_of_earlier_windows_does_not_end_a_failure() -> None:
    [drain, windows] = drain_statuses(NOW - HOUR, "/event/Order__e")
    failure = failure_status(NOW - timedelta(minutes=30), drain.subject, {"Error": "x"})
    stream = Stream(**drain.document["stream"])

    def drained(identity: RunIdentity, *manifests: Manifest) -> list[Status]:
        document = drain_document(drain.document, stream, manifests, run=identity, at=NOW)
        return [Status(drain.subject, "drain", document), windows, failure]

    cleared = only(drained(run(NOW - 5 * HOUR)))
    assert (len(cleared["failures"]), cleared["drained_at"]) == (1, (NOW - HOUR).isoformat())
    assert only(drained(run(NOW - timedelta(minutes=30))))["failures"] == [], "of the run that failed"


def test_success_of_an_event_log_does_not_end_the_failure_of_the_drain() -> None:
    drain = drain_statuses(NOW - HOUR, "/event/Order__e")
    failure = failure_status(NOW - timedelta(minutes=30), drain[0].subject, {"Error": "x"})
    facts = {"output_url": "s3://lake/tables", "quarantined": 0, **task_fields(NOW, task_id="event_log")}
    assert len(only([*drain, failure, Status(drain[0].subject, "event_log.0123", facts)])["failures"]) == 1


def test_unfinished_wait_does_not_end_a_failure() -> None:
    drain = drain_statuses(NOW - HOUR, "/event/Order__e")
    subject = drain[0].subject
    failure = failure_status(NOW - timedelta(minutes=30), subject, {"Error": "x"})
    waiting = Status(subject, "wait", {"reason": "waiting", **task_fields(NOW)})
    assert len(only([*drain, failure, waiting])["failures"]) == 1
    woken = Status(subject, "wait", {"reason": "events", **task_fields(NOW)})
    assert only([*drain, failure, woken])["failures"] == []


def test_event_log_failure_is_shown_at_its_stream() -> None:
    failure = failure_status(NOW + HOUR, "s3://lake/tables", {"Error": "SparkJobError: Spark is gone"}, "event_log")
    row = only([*healthy(NOW), failure], NOW + HOUR)
    assert [each["error"] for each in row["failures"]] == ["SparkJobError: Spark is gone"]
    assert row["failures"][0]["page"].endswith("/tasks/event_log?try_number=1")


def test_failed_tables_without_a_known_stream_are_listed() -> None:
    failure = failure_status(NOW, "s3://lake/elsewhere", {"Error": "x"}, "event_log")
    found = overview([*healthy(NOW), failure], NOW)
    assert [each["subject"] for each in found["folders"]] == ["s3://lake/elsewhere"]
    assert found["streams"][0]["level"] == "good"


def test_a_stream_that_was_never_drained_is_shown() -> None:
    uri = "sfstream://salesforce_default/event/New__e?subscription=airflow"
    row = only([failure_status(NOW, uri, {"Error": "x"})])
    assert (row["level"], row["retention"]) == ("bad", 24 * 3600), "the shortest retention"
    assert set(row["certainty"].values()) == {"unknown"}
    assert [each["text"] for each in row["concerns"]] == ["Task drain failed: x", "No drain has stored a status"]


def test_the_allocation_of_its_org_is_shown() -> None:
    ours = {"allocation": "DailyDeliveredPlatformEvents", "max": 1000, "remaining": 50, "at": NOW.isoformat()}
    row = only([*healthy(NOW), Status("salesforce_default", "allocation.DailyDeliveredPlatformEvents", ours)])
    assert row["allocations"] == [{"name": "DailyDeliveredPlatformEvents", "used": 950, "maximum": 1000}]
    assert row["concerns"] == [{"level": "bad", "text": "DailyDeliveredPlatformEvents: 95% used"}]
    theirs = Status("other", "allocation.DailyDeliveredPlatformEvents", ours)
    assert only([*healthy(NOW), theirs])["allocations"] == []


def test_unreadable_document_hides_no_other_stream() -> None:
    odd = Status("sfstream://salesforce_default/event/Odd__e?subscription=x", "drain", {"hours": 7, **task_fields(NOW)})
    found = overview([odd, *healthy(NOW)], NOW)["streams"]
    assert [row["level"] for row in found] == ["warning", "good"]
    assert found[0]["concerns"][0]["text"] == "The status documents cannot be read"


URI = "sfstream://salesforce_default/event/Odd__e?subscription=x"


@pytest.mark.parametrize(
    ("subject", "section", "document"),
    [
        ("sfstream://[/event/Odd__e", "drain", task_fields(NOW)),
        ("sfstream://a:b/odd", "drain", task_fields(NOW)),
        (URI, "drain", []),
        (URI, "drain", {"task": "drain"}),
        (URI, "drain", {"task": {"dag_id": "orders"}}),
        (URI, "drain", task_fields(NOW) | {"gaps": [3]}),
        (URI, "drain", task_fields(NOW) | {"at": "2026-11-24T12:00:00"}),
        (URI, "windows", {"windows": "none"}),
        (URI, "failed.1", {"report": {}}),
        (URI, "event_log.1", task_fields(NOW) | {"output_url": []}),
        ("s3://lake", "tables", {"streams": [{}]}),
        (7, "drain", task_fields(NOW)),
    ],
)
def test_invalid_status_document_is_rejected(subject: Any, section: str, document: Any) -> None:
    assert not is_valid(Status(subject, section, document))


def test_documents_written_by_tasks_are_valid() -> None:
    statuses = [status for state in (healthy, *UNHEALTHY.values()) for status in state(NOW)]
    assert all(is_valid(status) for status in statuses)


def test_dag_page_shows_only_the_streams_of_the_dag() -> None:
    statuses = [*healthy(NOW), *UNHEALTHY["dirty_replica"](NOW)]
    assert [row["topic"] for row in overview(statuses, NOW, "accounts")["streams"]] == ["/data/AccountChangeEvent"]
    assert overview(statuses, NOW, "others")["streams"] == []
