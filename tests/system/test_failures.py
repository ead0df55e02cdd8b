"""Failure reports of five common faults in a browser: fully visible without horizontal scrolling."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Page, expect

from scripts.airflow_stack import AirflowStack, free_port
from tests.support.browser import artifact_folder, browser_page
from tests.support.localorg import LocalOrg
from tests.support.packages import BROWSER, need

pytestmark = pytest.mark.extended
TOPIC = "/event/Faulty__e"
WIDTH = 1344
LABELS = ("Error", "Context", "Data loss", "Action", "Docs docs/")
GUIDES = "https://github.com/"
"""Beginning of the guide's URL. The URL may extend beyond the visible area: a click on its beginning is enough."""


class Fault(NamedTuple):
    """A failing task, and texts that its failure report must contain."""

    name: str
    dag: str
    task: str
    says: tuple[str, ...]


FAULTS = (
    Fault(
        "spark_gone", "good", "event_log", ("SparkJobError: spark-submit to spark://127.0.0.1", "windows remain landed")
    ),
    Fault(
        "wrong_secret", "wrong_secret", "drain", ("refused the login", "salesforce_wrong_secret", "Time left 72 hours")
    ),
    Fault("wrong_host", "wrong_host", "drain", ("cannot be reached", "salesforce_wrong_host", "Time left 72 hours")),
    Fault(
        "storage_gone", "storage_gone", "drain", ("LandingError", "s3://lake/landing cannot be", "connect to the endp")
    ),
    Fault("expired_replay_id", "good", "drain", ("ReplayIdLostError", "AcceptReplayLossOperator", "on-call.md")),
)


def failed(airflow: AirflowStack, name: str, task: str, run: str | None = None) -> str:
    """Check that ``task`` fails in a run, by default in a new one, and return the run ID."""
    run = run or airflow.trigger(f"faults.{name}")
    assert airflow.wait_for_run(f"faults.{name}", run) == "failed"
    assert airflow.task_states(f"faults.{name}", run)[task] == "failed"
    return run


def connections(airflow: AirflowStack, org: LocalOrg) -> None:
    """Create the invalid connections."""
    good: dict[str, Any] = org.airflow_connection()
    for name, wrong in (
        ("wrong_secret", {"consumer_secret": "not-the-secret-at-all"}),
        ("wrong_host", {"login_url": f"https://localhost:{free_port()}"}),
    ):
        airflow.add_connection(f"salesforce_{name}", **{**good, "extra": {**good["extra"], **wrong}})
    airflow.add_connection("spark_gone", conn_type="spark", host="spark://127.0.0.1", port=free_port())
    storage = {"endpoint_url": f"http://127.0.0.1:{free_port()}", "region_name": "us-east-1"}
    settings = {"config_kwargs": {"retries": {"total_max_attempts": 1}, "connect_timeout": 2}}
    airflow.add_connection("storage_gone", conn_type="aws", login="a", password="b", extra={**storage, **settings})


PIECES = """
() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  const ended = (node) => !node || node.data.includes("Task failed with exception");
  for (let node = walker.nextNode(); !ended(node); node = walker.nextNode()) {
    if (!found.length && !node.data.includes("Error     ")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    let box = node.parentElement;
    while (box && box.scrollWidth <= box.clientWidth) box = box.parentElement;
    const [text, edge] = [range.getBoundingClientRect(), (box || document.body).getBoundingClientRect()];
    found.push([node.data, edge.left <= text.left && text.right <= edge.right && text.bottom <= innerHeight]);
  }
  return found;
}
"""
"""JavaScript that returns each text node of the failure report, and whether it is visible in the log's frame."""


def check_report(page: Page, airflow: AirflowStack, fault: Fault, run: str, folder: Path) -> None:
    """Open the log of a failed task at the URL that the grid links to, and check its failure report."""
    page.goto(f"{airflow.url}/dags/faults.{fault.dag}/runs/{run}/tasks/{fault.task}")
    first = page.get_by_text("Error     ", exact=False).first
    expect(first).to_be_visible()
    last = page.get_by_text("Task failed with exception").first
    expect(last).to_be_visible()
    below = last.bounding_box()
    assert below is not None
    picture: Any = {
        "x": 0,
        "y": 0,
        "width": WIDTH,
        "height": below["y"] + below["height"],
    }  # without Airflow's traceback
    page.screenshot(path=folder / f"fault_{fault.name}.png", clip=picture)
    pieces = page.evaluate(PIECES)
    assert [text for text, seen in pieces if not seen and not text.startswith(GUIDES)] == [], fault.name
    text = re.sub(r"\d+ \[ [-\d: ]+ \] ERROR -", "", " ".join(" ".join(text for text, _ in pieces).split()))
    block = " ".join(text.split())
    for word in (*LABELS, *fault.says):
        assert word in block, (fault.name, word, block)


def test_failure_report_is_visible_and_names_cause_loss_and_action(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path, tmp_path: Path
) -> None:
    need(BROWSER)
    system_org.define("Faulty__e", Number__c="double")
    connections(airflow, system_org)
    system_org.publish(TOPIC, [{"Number__c": 1.0}])
    for dag in sorted({fault.dag for fault in FAULTS}):
        airflow.wait_for_dag(f"faults.{dag}")
        airflow.unpause(f"faults.{dag}")
    landed, *together, expired = FAULTS
    runs = {landed: failed(airflow, landed.dag, landed.task)}  # the others fail on a stream that has a position
    runs |= {fault: airflow.trigger(f"faults.{fault.dag}") for fault in together}
    for fault, run in runs.items():
        failed(airflow, fault.dag, fault.task, run)
    system_org.fault("reset_stream", topic=TOPIC)
    runs[expired] = failed(airflow, expired.dag, expired.task)
    folder = artifact_folder(tmp_path)
    with browser_page() as page:
        page.set_viewport_size({"width": WIDTH, "height": 900})
        for fault, run in runs.items():
            check_report(page, airflow, fault, run, folder)
    system_org.publish(TOPIC, [{"Number__c": 2.0}])
    check_accepting_the_loss(airflow, lake)


def check_accepting_the_loss(airflow: AirflowStack, lake: Path) -> None:
    """Trigger ``sfstream_accept_loss`` as the failure report advises, then check that the failed drain succeeds."""
    given = {"topic": TOPIC, "subscription": "faults", "reason": "the stream was reset for a test"}
    airflow.wait_for_dag("sfstream_accept_loss")
    airflow.unpause("sfstream_accept_loss")
    accepted = airflow.trigger("sfstream_accept_loss", conf={**given, "landing_url": f"{lake.as_uri()}/landing"})
    assert airflow.wait_for_run("sfstream_accept_loss", accepted) == "success"
    run = failed(airflow, "good", "event_log")  # Spark is still unreachable
    assert airflow.task_states("faults.good", run)["drain"] == "success"
    assert airflow.xcom("faults.good", run, "drain")["gap"] is not None
    airflow.pause("sfstream_accept_loss")
