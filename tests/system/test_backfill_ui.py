"""A backfill created in the dialog of the real UI with a real browser, up to the table that Spark writes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from playwright.sync_api import Page, expect

from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.backfills import HOUR, PastTopic, live_position
from tests.support.browser import artifact_folder, browser_page
from tests.support.localorg import LocalOrg
from tests.support.packages import BROWSER, need

pytestmark = pytest.mark.extended
DAG_ID = "backfill.table"


def fill_in(page: Page, label: str, time: datetime) -> None:
    """Enter one of the two dates of the dialog."""
    field = page.get_by_role("group").filter(has=page.get_by_text(label, exact=True)).get_by_test_id("datetime-input")
    field.click()
    page.get_by_placeholder("YYYY/MM/DD").fill(f"{time:%Y/%m/%d}")
    page.get_by_placeholder("HH:mm").fill(f"{time:%H:%M}")
    expect(field).to_contain_text(f"{time:%H:%M}")
    page.keyboard.press("Escape")
    expect(page.get_by_placeholder("YYYY/MM/DD")).to_be_hidden()


def choose(page: Page, option: str) -> None:
    """Click a card of the dialog, as a user does: its radio button is hidden."""
    button = page.get_by_role("radio", name=option, exact=True)
    page.locator("label").filter(has=button).click()
    expect(button).to_be_checked()


def submit_backfill(page: Page, first: datetime, last: datetime, reprocess: str, runs: int) -> None:
    """Open the backfill dialog of the DAG's page, fill it in and submit it."""
    page.get_by_role("button", name="Trigger Dag").click()
    choose(page, "Backfill")
    fill_in(page, "From", first)
    fill_in(page, "To", last)
    choose(page, reprocess)
    expect(page.get_by_text(f"{runs} runs will be triggered")).to_be_visible()
    # Wait for the server's response: the notification in the UI is visible only for some seconds.
    with page.expect_response(lambda response: response.url.endswith("/api/v2/backfills")) as answered:
        page.get_by_role("button", name="Run Backfill").click()
    assert answered.value.ok, answered.value.text()
    expect(page.get_by_text("Backfill in progress")).to_be_visible()


def table_rows(lake: Path) -> list[bytes]:
    table = DeltaTable(str(lake / "backfill" / "tables" / "Table__e")).to_pyarrow_table(columns=["_replay_id"])
    return sorted(table["_replay_id"].to_pylist())


@pytest.mark.timeout(1800)  # three Spark jobs, one after the other
def test_a_backfill_from_the_dialog(airflow: AirflowStack, past_org: LocalOrg, lake: Path, tmp_path: Path) -> None:
    need(BROWSER)
    topic = PastTopic(airflow, past_org, "Table__e")
    topic.publish_hours(6, 1)
    airflow.wait_for_dag(DAG_ID)
    airflow.unpause(DAG_ID)
    scheduled = wait_for(lambda: airflow.run_ids(DAG_ID), 180, "the scheduled run")[0]
    assert airflow.wait_for_run(DAG_ID, scheduled) == "success", airflow.task_log(DAG_ID, scheduled, "drain")
    assert table_rows(lake) == topic.replay_ids_between(topic.hour(1), topic.hour(0))
    position = live_position(airflow, topic.stream("table"))
    assert position is not None
    first, last = topic.hour(4), topic.hour(3)
    with browser_page() as page:
        page.goto(f"{airflow.url}/dags/{DAG_ID}")
        submit_backfill(page, first, last, "All Runs", 2)
        (created,) = airflow.api("GET", "/backfills", params={"dag_id": DAG_ID})["backfills"]
        airflow.wait_for_backfill(created["id"])
        page.goto(f"{airflow.url}/dags/{DAG_ID}/runs?run_type=backfill")
        for begin in (first, last):
            row = page.get_by_role("row").filter(has_text=f"backfill__{(begin + HOUR).isoformat()}")
            expect(row.get_by_text("Success")).to_be_visible()
        screenshot = artifact_folder(tmp_path) / "backfill_from_the_dialog.png"
        page.screenshot(path=screenshot)
        print(f"\nscreenshot: {screenshot}")

    runs = airflow.backfill_runs(DAG_ID, first, last)
    assert [run["state"] for run in runs.values()] == ["success", "success"]
    for begin, run in runs.items():
        result = airflow.xcom(DAG_ID, run["dag_run_id"], "drain")
        assert topic.events_of(result) == topic.replay_ids_between(begin, begin + HOUR)
    happened = sorted(
        topic.replay_ids_between(first, last + HOUR) + topic.replay_ids_between(topic.hour(1), topic.hour(0))
    )
    assert table_rows(lake) == happened
    assert live_position(airflow, topic.stream("table")) == position
