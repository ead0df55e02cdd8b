"""Stream page: the windows on a timeline, and the links to tasks and forms."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.monitoring.pages import task_page
from airflow_provider_sfstream.monitoring.status import Status
from airflow_provider_sfstream.plugins.page.stream import between, stream_details, timeline
from tests.support.stream_statuses import HOUR, UNHEALTHY, drain_statuses, healthy, never_confirmed

NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)


def details(statuses: list[Status]) -> dict[str, object]:
    found = stream_details(statuses, statuses[0].subject, NOW)
    assert found is not None
    return json.loads(json.dumps(found))


def test_each_window_links_to_the_task_that_drained_it() -> None:
    times = details(healthy(NOW))["timeline"]
    assert len(times["windows"]) == 24
    newest = times["windows"][0]
    assert newest["page"] == ("dags/orders/runs/scheduled__2026-11-24T12%3A30%3A00%2B00%3A00/tasks/drain?try_number=1")
    assert newest["manifest_url"] == "s3://lake/landing/orders/1/manifest.json"
    assert (newest["events"], newest["covers"], newest["until"]) == (25, True, NOW.isoformat())
    assert times["not_covered"] == []


def test_a_mapped_task_has_a_page_of_its_own() -> None:
    task = {"dag_id": "a/b", "run_id": "r", "task_id": "t.u", "map_index": 3, "try_number": 2}
    assert task_page(task) == "dags/a%2Fb/runs/r/tasks/t.u/mapped/3?try_number=2"


def test_uncovered_spans_are_listed() -> None:
    statuses = drain_statuses(NOW, "/event/Order__e", every=2 * HOUR, windows=3)
    lines = statuses[1].document["windows"]
    lines[1]["covered_until"] = (NOW - 3 * HOUR).isoformat()
    assert timeline(lines, [], NOW)["not_covered"] == [
        {"from": (NOW - 3 * HOUR).isoformat(), "until": (NOW - 2 * HOUR).isoformat()}
    ]


def test_between_merges_overlapping_spans() -> None:
    def hours(*spans: tuple[int, int]) -> list[tuple[datetime, datetime]]:
        return [(NOW + a * HOUR, NOW + b * HOUR) for a, b in spans]

    assert between(hours((4, 6), (0, 2), (1, 3)), NOW, NOW + 8 * HOUR) == hours((3, 4), (6, 8))
    assert between(hours((-3, 9)), NOW, NOW + 8 * HOUR) == []
    assert between(hours((9, 10)), NOW, NOW + 8 * HOUR) == hours((0, 8))


def test_window_without_a_covered_span_is_placed_at_its_drain_time() -> None:
    times = details(never_confirmed(NOW))["timeline"]
    assert {window["covers"] for window in times["windows"]} == {False}
    assert times["windows"][0]["until"] == NOW.isoformat()
    [hole] = times["not_covered"]
    assert hole["until"] == NOW.isoformat()


def test_gap_shows_its_start_and_the_user_who_accepted_it() -> None:
    found = details(UNHEALTHY["gap"](NOW))
    [gap] = found["gap_list"]
    assert gap["reason"].startswith("accepted by ada")
    assert gap["since"] == (NOW - 1.25 * HOUR).isoformat(), "the time of the last stored event"
    assert gap["page"].startswith("dags/orders/runs/")
    assert found["timeline"]["lost"] == [{"from": gap["since"], "until": gap["detected_at"], "uncertain": False}]
    assert found["timeline"]["windows"][0]["gap"] is True


def test_timeline_is_limited_to_a_week() -> None:
    statuses = drain_statuses(NOW, "/event/Order__e", every=timedelta(days=1), windows=30)
    assert details(statuses)["timeline"]["start"] == (NOW - timedelta(days=7)).isoformat()


def test_tables_that_name_the_stream_are_shown() -> None:
    found = details(UNHEALTHY["dirty_replica"](NOW))
    assert found["tables"] == [{"url": "s3://lake/replica", "table": "Account", "dirty": 12, "flag": None}]


def test_last_quarantine_is_shown_until_it_is_replayed() -> None:
    [event_log] = details(UNHEALTHY["quarantine"](NOW))["event_logs"]
    assert event_log["set_aside"]["rows"] == 15
    assert event_log["set_aside"]["at"] == (NOW - HOUR).isoformat()


def test_schema_changes_are_shown() -> None:
    statuses = healthy(NOW)
    assert details(statuses)["schema_changes"] == []
    changed = replace(
        statuses[0], document={**statuses[0].document, "schema_changes": [{"added": ["A"]}, {"added": ["B"]}]}
    )
    assert details([changed, *statuses[1:]])["schema_changes"][0] == {"added": ["B"]}


def test_buttons_link_to_forms_of_airflow() -> None:
    pages = [action["page"] for action in details(healthy(NOW))["actions"]]
    assert pages[0] == "dags/orders"
    assert pages[1].startswith("dags/orders/runs/scheduled__")
    assert pages[2] == "dags/orders/backfills"


@pytest.mark.parametrize(("existing", "count"), [(None, 3), ({"orders": True}, 3), ({"orders": False}, 2), ({}, 0)])
def test_forms_are_offered_only_where_airflow_has_them(existing: dict[str, bool] | None, count: int) -> None:
    statuses = healthy(NOW)
    found = stream_details(statuses, statuses[0].subject, NOW, existing_dags=existing)
    assert found is not None
    assert len(found["actions"]) == count
    assert found["retired"] is (count == 0)
    assert found["forget"] == "sfstream forget 'sfstream://salesforce_default/event/Order__e?subscription=airflow'"


def test_missing_stream_has_no_details() -> None:
    assert stream_details(healthy(NOW), "sfstream://a/event/B__e?subscription=c", NOW) is None
