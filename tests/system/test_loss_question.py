"""A lost position that a user accepts in a browser, in *Required actions* of the real Airflow."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from airflow_provider_sfstream.salesforce.streams import Stream
from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.backfills import create_variable_of_new_stream
from tests.support.browser import artifact_folder, browser_page
from tests.support.landed import replay_ids_of
from tests.support.localorg import LocalOrg
from tests.support.packages import BROWSER, need

pytestmark = pytest.mark.extended
TOPIC = "/event/Asked__e"
DAG_ID = "faults.ask"
REASON = "the sandbox was refreshed"


def test_a_user_accepts_a_loss_in_required_actions(airflow: AirflowStack, system_org: LocalOrg, tmp_path: Path) -> None:
    need(BROWSER)
    system_org.define("Asked__e", Number__c="double")
    system_org.publish(TOPIC, [{"Number__c": 1.0}])
    create_variable_of_new_stream(airflow, Stream(system_org.org_id, "pubsub", TOPIC, "faults"), gaps=True)
    airflow.wait_for_dag(DAG_ID)
    airflow.unpause(DAG_ID)
    assert airflow.wait_for_run(DAG_ID, airflow.trigger(DAG_ID)) == "success"
    system_org.fault("reset_stream", topic=TOPIC)
    kept = system_org.publish(TOPIC, [{"Number__c": 2.0}, {"Number__c": 3.0}])
    run = airflow.trigger(DAG_ID)
    waiting = ("awaiting_input", "deferred")  # the latter before Airflow 3.3
    wait_for(lambda: airflow.task_states(DAG_ID, run)["drain"] in waiting, 300, "the question")
    with browser_page() as page:
        page.goto(f"{airflow.url}/api/v2/auth/login")  # before Airflow 3.2, other pages log nobody in
        page.goto(f"{airflow.url}/sfstream/")
        expect(page.get_by_role("row").filter(has_text=TOPIC)).to_contain_text(
            "waits for an answer in Required actions"
        )
        page.goto(f"{airflow.url}/required_actions")
        page.get_by_role("link", name=f"{TOPIC}, faults: accept the loss of events?").click()
        earliest = page.get_by_role("button", name="earliest")
        expect(earliest).to_be_disabled()  # without a reason
        page.get_by_role("textbox").fill(REASON)
        expect(earliest).to_be_enabled()
        screenshot = artifact_folder(tmp_path) / "loss_question.png"
        page.screenshot(path=screenshot)
        print(f"\nscreenshot: {screenshot}")
        with page.expect_response(
            lambda response: "/hitlDetails" in response.url and response.request.method == "PATCH"
        ):
            earliest.click()
    assert airflow.wait_for_run(DAG_ID, run) == "success", airflow.task_log(DAG_ID, run, "drain")
    result = airflow.xcom(DAG_ID, run, "drain")
    [detail] = airflow.api("GET", f"/dags/{DAG_ID}/dagRuns/{quote(run)}/hitlDetails")["hitl_details"]
    user = detail["responded_by_user"]["name"]
    assert result["gap"]["reason"] == (
        f"accepted by {user} in {DAG_ID}.drain run {run} try 1, to go on from earliest: {REASON}"
    )
    assert replay_ids_of(result["manifest_url"]) == kept
