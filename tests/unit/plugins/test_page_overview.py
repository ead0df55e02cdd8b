"""All streams as the page shows them: what is wrong with each, and the worst first."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_sfstream.monitoring.status import Status
from airflow_provider_sfstream.plugins.page.overview import overview
from airflow_provider_sfstream.plugins.page.reading import is_sound
from tests.support.stream_statuses import BROKEN, HOUR, drained, failed, signed, well

NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)
SAID = {
    "expiring": ("bad", "Unread events are lost soon"),
    "gap": ("bad", "Events were lost"),
    "failed_login": ("bad", "Task drain failed: AuthenticationError: /event/Login__e: the login was refused"),
    "quarantine": ("warning", "Rows are in quarantine"),
    "dirty_replica": ("warning", "Dirty rows wait for a refresh"),
    "never_confirmed": ("warning", "Its end was never confirmed: the time left is only assumed"),
}


def only(statuses: list[Status], now: datetime = NOW) -> dict[str, Any]:
    """Return the one stream that is shown."""
    [row] = overview(statuses, now)["streams"]
    return dict(row)


def test_a_stream_that_is_well() -> None:
    row = only(well(NOW))
    assert (row["level"], row["concerns"], row["failures"]) == ("good", [], [])
    assert (row["topic"], row["subscription"], row["connection"]) == (
        "/event/Order__e",
        "airflow",
        "salesforce_default",
    )
    assert row["headroom"] == {"known": 72 * 3600, "assumed": None, "best": 72 * 3600, "level": "good"}
    assert row["certainty"] == {
        "confirmed_at": "proven",
        "contact_at": "proven",
        "last_event_time": "estimated",
        "retention": "proven",
    }
    assert row["hours"][-24:] == [number % 4 * 25 for number in range(24, 0, -1)]
    assert sum(row["hours"][:-24]) == 0
    assert row["dags"] == [{"dag_id": "orders", "page": "dags/orders"}]


def test_every_broken_state_is_said() -> None:
    assert SAID.keys() == BROKEN.keys()


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_said_first(name: str) -> None:
    row = only(BROKEN[name](NOW))
    level, text = SAID[name]
    assert row["level"] == level
    assert row["concerns"][0]["level"] == level
    assert row["concerns"][0]["text"].startswith(text)


def test_the_worst_comes_first() -> None:
    statuses = [status for state in (well, *BROKEN.values()) for status in state(NOW)]
    found = overview(statuses, NOW)["streams"]
    assert [row["level"] for row in found] == ["bad"] * 3 + ["warning"] * 3 + ["good"]
    assert found[0]["topic"] == "/event/Expiring__e", "of two that are bad, the one with less time"
    assert found[-1]["topic"] == "/event/Order__e"
    json.dumps(found)


def test_known_and_assumed_headroom_are_told_apart() -> None:
    assert only(BROKEN["never_confirmed"](NOW))["headroom"] == {
        "known": None,
        "assumed": 71.75 * 3600,
        "best": 71.75 * 3600,
        "level": "warning",
    }


def test_a_loss_is_shown_as_long_as_its_events_would_be_retained() -> None:
    """A possible loss that was found later does not hide it."""
    found = BROKEN["gap"](NOW)
    [loss] = found[0].document["gaps"]
    found[0].document["gaps"].append({**loss, "uncertain": True})
    assert [each["text"] for each in only(found)["concerns"]] == ["Events were lost", "Events may have been lost"]
    later = NOW + 70 * HOUR
    assert "Events were lost" in [each["text"] for each in only(found, later)["concerns"]]
    later = NOW + 71 * HOUR
    assert "Events were lost" not in [each["text"] for each in only(found, later)["concerns"]]


def test_tables_that_need_a_refresh_are_one_concern() -> None:
    found = BROKEN["dirty_replica"](NOW)
    tables = found[-1].document["tables"]
    tables["Contact"] = {"dirty": 3, "flag": None}
    assert [each["text"] for each in only(found)["concerns"]] == ["Dirty rows wait for a refresh"]
    tables["Contact"]["flag"] = "gap"
    assert [each["text"] for each in only(found)["concerns"]] == ["A table has to be fetched anew"]


@pytest.mark.parametrize(("ended", "level"), [(35, "good"), (37, "warning"), (59, "warning"), (61, "bad"), (73, "bad")])
def test_how_little_time_is_wrong(ended: int, level: str) -> None:
    assert only(drained(NOW, "/event/Order__e", ended=ended * HOUR))["level"] == level


def test_a_push_topic_has_a_third_of_the_time() -> None:
    row = only(drained(NOW, "/topic/Orders", ended=13 * HOUR))
    assert (row["retention"], row["level"]) == (24 * 3600, "warning")


def test_a_failure_is_over_when_a_task_has_ended_well_since() -> None:
    drain = drained(NOW - HOUR, "/event/Order__e")
    failure = failed(NOW, drain[0].subject, {"What": "x"})
    assert only([*drain, failure])["level"] == "bad"
    assert only([*drained(NOW + HOUR, "/event/Order__e"), failure], NOW + HOUR)["failures"] == []


def test_a_wait_that_goes_on_ends_no_failure() -> None:
    drain = drained(NOW - HOUR, "/event/Order__e")
    subject = drain[0].subject
    failure = failed(NOW - timedelta(minutes=30), subject, {"What": "x"})
    waiting = Status(subject, "wait", {"reason": "waiting", **signed(NOW)})
    assert len(only([*drain, failure, waiting])["failures"]) == 1
    woken = Status(subject, "wait", {"reason": "events", **signed(NOW)})
    assert only([*drain, failure, woken])["failures"] == []


def test_a_failure_of_its_event_log_is_the_streams() -> None:
    failure = failed(NOW + HOUR, "s3://lake/tables", {"What": "SparkJobError: Spark is gone"}, "event_log")
    row = only([*well(NOW), failure], NOW + HOUR)
    assert [each["what"] for each in row["failures"]] == ["SparkJobError: Spark is gone"]
    assert row["failures"][0]["page"].endswith("/tasks/event_log?try_number=1")


def test_tables_that_no_stream_is_known_of_are_named_when_they_fail() -> None:
    failure = failed(NOW, "s3://lake/elsewhere", {"What": "x"}, "event_log")
    found = overview([*well(NOW), failure], NOW)
    assert [each["subject"] for each in found["folders"]] == ["s3://lake/elsewhere"]
    assert found["streams"][0]["level"] == "good"


def test_a_stream_that_was_never_drained_is_shown() -> None:
    uri = "sfstream://salesforce_default/event/New__e?subscription=airflow"
    row = only([failed(NOW, uri, {"What": "x"})])
    assert (row["level"], row["retention"]) == ("bad", 24 * 3600), "the least that there is"
    assert set(row["certainty"].values()) == {"unknown"}
    assert [each["text"] for each in row["concerns"]] == ["Task drain failed: x", "Never drained"]


def test_the_allocation_of_its_org_is_shown() -> None:
    ours = {"allocation": "DailyDeliveredPlatformEvents", "max": 1000, "remaining": 50, "at": NOW.isoformat()}
    row = only([*well(NOW), Status("salesforce_default", "allocation.DailyDeliveredPlatformEvents", ours)])
    assert row["allocations"] == [{"name": "DailyDeliveredPlatformEvents", "used": 950, "maximum": 1000}]
    assert row["concerns"] == [{"level": "bad", "text": "DailyDeliveredPlatformEvents: 95% used"}]
    theirs = Status("other", "allocation.DailyDeliveredPlatformEvents", ours)
    assert only([*well(NOW), theirs])["allocations"] == []


def test_a_document_that_cannot_be_made_out_hides_no_other_stream() -> None:
    odd = Status("sfstream://salesforce_default/event/Odd__e?subscription=x", "drain", {"hours": 7, **signed(NOW)})
    found = overview([odd, *well(NOW)], NOW)["streams"]
    assert [row["level"] for row in found] == ["warning", "good"]
    assert found[0]["concerns"][0]["text"] == "What tasks left of it cannot be made out"


URI = "sfstream://salesforce_default/event/Odd__e?subscription=x"


@pytest.mark.parametrize(
    ("subject", "section", "document"),
    [
        ("sfstream://[/event/Odd__e", "drain", signed(NOW)),
        ("sfstream://a:b/odd", "drain", signed(NOW)),
        (URI, "drain", []),
        (URI, "drain", {"task": "drain"}),
        (URI, "drain", {"task": {"dag_id": "orders"}}),
        (URI, "drain", signed(NOW) | {"gaps": [3]}),
        (URI, "drain", signed(NOW) | {"at": "2026-11-24T12:00:00"}),
        (URI, "windows", {"windows": "none"}),
        (URI, "failed", {"report": {}}),
        (URI, "event_log.1", signed(NOW) | {"output_url": []}),
        ("s3://lake", "tables", {"streams": [{}]}),
        (7, "drain", signed(NOW)),
    ],
)
def test_what_is_no_document_is_not_taken_for_one(subject: Any, section: str, document: Any) -> None:
    assert not is_sound(Status(subject, section, document))


def test_documents_that_tasks_leave_are_sound() -> None:
    statuses = [status for state in (well, *BROKEN.values()) for status in state(NOW)]
    assert all(is_sound(status) for status in statuses)


def test_of_a_dag_are_shown_the_streams_that_it_has_to_do_with() -> None:
    statuses = [*well(NOW), *BROKEN["dirty_replica"](NOW)]
    assert [row["topic"] for row in overview(statuses, NOW, "accounts")["streams"]] == ["/data/AccountChangeEvent"]
    assert overview(statuses, NOW, "others")["streams"] == []
