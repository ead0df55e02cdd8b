"""The streams page after real drains, compared with the org's record."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FrameLocator, Locator, Page, expect

from scripts.airflow_stack import AirflowStack
from tests.support.browser import artifact_folder, browser_page
from tests.support.localorg import LocalOrg
from tests.support.packages import BROWSER, need

pytestmark = pytest.mark.extended
TOPIC = "/event/Shown__e"


@pytest.fixture(scope="module")
def drained(airflow: AirflowStack, system_org: LocalOrg) -> AirflowStack:
    """Run two drains of one stream, a mapped task with two streams, and a drain whose login is refused."""
    system_org.define("Shown__e", Number__c="double")
    wrong: dict[str, Any] = system_org.airflow_connection()
    wrong["extra"] = {**wrong["extra"], "consumer_secret": "not-the-secret-at-all"}
    airflow.add_connection("salesforce_page_refused", **wrong)
    for dag in ("one", "mapped", "refused"):
        airflow.wait_for_dag(f"page.{dag}")
        airflow.unpause(f"page.{dag}")
    for count, dag, state in (
        (3, "one", "success"),
        (2, "one", "success"),
        (1, "mapped", "success"),
        (0, "refused", "failed"),
    ):
        system_org.publish(TOPIC, [{"Number__c": float(number)} for number in range(count)])
        run = airflow.trigger(f"page.{dag}")
        ended = airflow.wait_for_run(f"page.{dag}", run)
        assert ended == state, dag if dag == "mapped" else airflow.task_log(f"page.{dag}", run, "drain")
    return airflow


def all_streams(page: Page, airflow: AirflowStack) -> FrameLocator:
    """Open the streams page from the menu of Airflow's UI."""
    page.goto(f"{airflow.url}/")
    page.get_by_role("button", name="Browse").click()
    page.get_by_role("menuitem", name="Salesforce streams").click()
    return page.frame_locator("iframe")


def stream_row(frame: FrameLocator, subscription: str) -> Locator:
    """Return the row of a stream of this module's topic; the page also lists streams of other tests."""
    return frame.get_by_role("row").filter(has_text=f"{subscription} · salesforce_default").filter(has_text=TOPIC)


def test_each_stream_shows_what_the_org_published(drained: AirflowStack, system_org: LocalOrg, tmp_path: Path) -> None:
    need(BROWSER)
    record = system_org.record(TOPIC)
    with browser_page() as page:
        frame = all_streams(page, drained)
        for subscription, events, position in (
            ("one", 5, record[4]["replay_id"].hex()),
            ("left", len(record), record[-1]["replay_id"].hex()),
            ("right", len(record), record[-1]["replay_id"].hex()),
        ):
            row = stream_row(frame, subscription)
            expect(row.get_by_role("img", name=re.compile(f"^{events} events in 72 hours"))).to_be_visible()
            row.get_by_role("link").click()
            expect(frame.get_by_text(position, exact=True)).to_be_visible()
            frame.get_by_role("link", name="All streams").click()
        expect(frame.get_by_role("rowheader").filter(has_text=TOPIC)).to_have_count(4)
        page.screenshot(path=artifact_folder(tmp_path) / "streams_page_drains.png")


def test_windows_link_to_their_tasks_and_manifests(drained: AirflowStack, lake: Path) -> None:
    need(BROWSER)
    runs = drained.run_ids("page.one")[-2:]
    with browser_page() as page:
        frame = all_streams(page, drained)
        stream_row(frame, "one").get_by_role("link").click()
        frame.locator("summary", has_text="2 windows").click()
        windows = frame.get_by_role("table", name="Windows, newest first").locator("tbody").get_by_role("row")
        expect(windows).to_have_count(2)
        for row, run, events in zip((windows.nth(1), windows.nth(0)), runs, (3, 2), strict=True):
            result = drained.xcom("page.one", run, "drain")
            expect(row).to_contain_text(result["manifest_url"])
            expect(row.get_by_role("cell").nth(2)).to_have_text(str(events))
        windows.nth(0).get_by_role("link").click()
        expect(page).to_have_url(re.compile(r"/dags/page\.one/runs/[^/]+/tasks/drain\?try_number=1$"))
        expect(page.get_by_text("Log message source details")).to_be_visible()


def test_a_mapped_task_is_found_by_its_index(drained: AirflowStack) -> None:
    need(BROWSER)
    with browser_page() as page:
        frame = all_streams(page, drained)
        stream_row(frame, "right").get_by_role("link").click()
        frame.locator("a .window").last.click()
        expect(page).to_have_url(re.compile(r"/dags/page\.mapped/runs/[^/]+/tasks/drain/mapped/1\?try_number=1$"))
        expect(page.get_by_text("Log message source details")).to_be_visible()


def test_a_dag_has_a_tab_with_its_streams(drained: AirflowStack, tmp_path: Path) -> None:
    need(BROWSER)
    with browser_page() as page:
        page.goto(f"{drained.url}/dags/page.mapped")
        page.get_by_role("link", name="Salesforce streams").click()
        frame = page.frame_locator("iframe")
        expect(frame.get_by_role("heading", level=1)).to_have_text("Salesforce streams of page.mapped")
        expect(frame.get_by_role("rowheader")).to_have_count(2)
        page.screenshot(path=artifact_folder(tmp_path) / "streams_page_tab.png")
        frame.get_by_role("rowheader").first.get_by_role("link").click()
        expect(frame.get_by_role("heading", level=1)).to_have_text(TOPIC)
        frame.get_by_role("link", name="Streams of page.mapped").click()
        expect(frame.get_by_role("rowheader")).to_have_count(2)


def test_refused_login_is_shown_before_the_first_drain(drained: AirflowStack) -> None:
    need(BROWSER)
    with browser_page() as page:
        row = all_streams(page, drained).get_by_role("row").filter(has_text="airflow · salesforce_page_refused")
        expect(row).to_contain_text("Task drain failed")
        expect(row).to_contain_text("refused the login")
        expect(row).to_contain_text("No drain has stored a status")


def test_the_buttons_open_pages_with_airflows_own_forms(drained: AirflowStack) -> None:
    need(BROWSER)
    with browser_page() as page:
        for button, again in (
            ("DAG page.one", False),
            ("Last run", True),
        ):
            frame = all_streams(page, drained)
            stream_row(frame, "one").get_by_role("link").click()
            expect(frame.get_by_role("link", name="Backfills")).to_have_count(0)  # the DAG has no schedule
            frame.get_by_role("link", name=button).click()
            expect(page).to_have_url(re.compile(r"/dags/page\.one"))
            page.get_by_test_id("trigger-dag-button").click()
            if again:
                expect(page.get_by_role("menuitem")).to_have_count(2)
            else:
                expect(page.get_by_role("dialog")).to_contain_text("page.one")
