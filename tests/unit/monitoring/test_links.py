"""Links of tasks to pages of Airflow, storage and Spark. A link without a known page is empty."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers_manager import ProvidersManager

from airflow_provider_sfstream.monitoring.links import application_page, file_page
from airflow_provider_sfstream.monitoring.pages import task_url
from airflow_provider_sfstream.operators.accept_replay_loss import AcceptReplayLossOperator
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator
from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.operators.spark_submit_replica import SparkSubmitReplicaOperator
from airflow_provider_sfstream.plugins.streams import SalesforceStreamsPlugin
from airflow_provider_sfstream.salesforce.streams import RunIdentity
from airflow_provider_sfstream.sensors.salesforce_event import SalesforceEventSensor
from tests.support.tasks import set_connection
from tests.support.windows import DUE

TOPIC = "/event/Order__e"
STREAM = "sfstream%3A%2F%2Fsalesforce_default%2Fevent%2FOrder__e%3Fsubscription%3Dairflow"
DRAINED = {
    "manifest_url": "s3://lake/raw/x/windows/2026/01/31/w%20/manifest.json",
    "asset_uri": "sfstream://salesforce_default/event/Order__e?subscription=airflow",
    "event_count": 3,
}


def links(operator: Any) -> dict[str, str]:
    """Return the URL of each link of an operator, as its task requests it."""
    return {each.name: each.get_link(operator, ti_key=None) for each in operator.operator_extra_links}


def drain(**arguments: Any) -> DrainReplayWindowOperator:
    return DrainReplayWindowOperator(**{"task_id": "drain", "topic": TOPIC, "landing_url": "/lake", **arguments})


def event_log(windows: Any, **arguments: Any) -> SparkSubmitEventLogOperator:
    return SparkSubmitEventLogOperator(task_id="event_log", windows=windows, output_url="s3a://lake", **arguments)


def test_every_link_is_registered_with_airflow() -> None:
    names = {name for name in ProvidersManager().extra_links_class_names if "sfstream" in name}
    shown = {
        f"{type(link).__module__}.{type(link).__name__}"
        for operator in (DrainReplayWindowOperator, SparkSubmitEventLogOperator)
        for link in operator.operator_extra_links
    }
    assert names == shown


def test_each_operator_has_its_links() -> None:
    names = {
        operator: [link.name for link in operator.operator_extra_links]
        for operator in (
            DrainReplayWindowOperator,
            SalesforceEventSensor,
            AcceptReplayLossOperator,
            SparkSubmitEventLogOperator,
            SparkSubmitReplicaOperator,
            SparkSubmitRefreshReplicaOperator,
        )
    }
    assert list(names.values()) == [
        ["Stream", "Manifest", "Previous window"],
        ["Stream"],
        ["Stream"],
        ["Stream", "Manifest", "Spark UI"],
        ["Stream", "Manifest", "Spark UI"],
        ["Spark UI"],
    ]


def test_stream_link_is_known_before_the_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/team/")
    [route] = [view["url_route"] for view in SalesforceStreamsPlugin.external_views if view["destination"] == "nav"]
    page = f"https://airflow.example.com/team/plugin/{route}?stream={STREAM}"
    assert links(drain()) == {"Stream": page, "Manifest": "", "Previous window": ""}
    assert links(SalesforceEventSensor(task_id="wait", topic=TOPIC)) == {"Stream": page}
    loss = AcceptReplayLossOperator(task_id="accept", topic=TOPIC, landing_url="/lake", reason="known")
    assert links(loss) == {"Stream": page}
    assert links(event_log(DRAINED))["Stream"] == page


@pytest.mark.parametrize(
    "windows", [[], [DRAINED["manifest_url"]], [DRAINED, {**DRAINED, "asset_uri": "sfstream://x/event/Other__e"}], 7]
)
def test_stream_link_is_empty_for_no_or_several_streams(windows: Any) -> None:
    assert links(event_log(windows))["Stream"] == ""


def test_invalid_topic_has_no_stream_link() -> None:
    assert links(drain(topic="{{ not_rendered }}"))["Stream"] == ""


def test_a_manifest_on_s3_is_in_the_console_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "raw%2Fx%2Fwindows%2F2026%2F01%2F31%2Fw%2520%2Fmanifest.json"
    assert links(event_log(DRAINED))["Manifest"] == f"https://console.aws.amazon.com/s3/object/lake?prefix={key}"
    set_connection(monkeypatch, "minio", conn_type="aws", extra={"endpoint_url": "http://minio:9000"})
    assert links(event_log(DRAINED, landing_conn_id="minio"))["Manifest"] == ""


def test_manifest_link_is_empty_for_two_windows() -> None:
    second = {**DRAINED, "manifest_url": f"s3://lake/2/{DRAINED['manifest_url'][5:]}"}
    assert links(event_log([DRAINED, second]))["Manifest"] == ""


def test_the_application_is_on_the_history_server_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    task = event_log(DRAINED)
    assert links(task)["Spark UI"] == ""
    task.metrics = {"application_id": "app-1"}
    assert links(task)["Spark UI"] == ""
    set_connection(monkeypatch, "spark_default", conn_type="spark", extra={"history_server": "http://history:18080/"})
    assert links(task)["Spark UI"] == "http://history:18080/history/app-1/jobs/"


class Shown(dict[str, str]):
    """Task instance that stores each pushed value immediately."""

    def xcom_push(self, key: str, value: str) -> None:
        self[key] = value


def submitting(monkeypatch: pytest.MonkeyPatch, **connection: Any) -> tuple[SparkSubmitEventLogOperator, Shown]:
    """Return an operator whose ``spark-submit`` output the test sets, and the links that the operator pushes."""
    set_connection(monkeypatch, "spark_default", **{"conn_type": "spark", "host": "spark://master", **connection})
    task, shown = event_log(DRAINED), Shown()
    task._task_instance, task._hook = shown, task._get_hook()
    return task, shown


BEGUN = "2026 INFO x: Spark application app-7-0001 has begun; its UI: http://driver:4040."


def test_application_is_linked_as_soon_as_its_driver_logs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    task, shown = submitting(monkeypatch, extra={"master_ui": "http://master:8080"})
    steps = []

    def lines() -> Any:
        for line in ("before", BEGUN, "after"):
            steps.append((task.spark_application, dict(shown)))
            yield line

    task._hook._process_spark_submit_log(lines())
    link = {"_link_SparkUILink": "http://master:8080/app/?appId=app-7-0001"}
    assert steps == [(None, {}), (None, {}), ("app-7-0001", link)]
    assert task.metrics is None, "a failed job has its link too"
    assert links(task)["Spark UI"] == link["_link_SparkUILink"]


def test_an_application_on_yarn_is_linked_when_it_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": "rm:8088"}
    task, shown = submitting(monkeypatch, host="yarn", extra=extra)
    task._hook._process_spark_submit_log(iter(["INFO Client: Submitted application application_1_2", "later"]))
    assert shown == {"_link_SparkUILink": "http://rm:8088/cluster/app/application_1_2"}


def test_application_without_a_known_page_is_not_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    task, shown = submitting(monkeypatch)
    task._hook._process_spark_submit_log(iter([BEGUN, "later"]))
    assert (task.spark_application, shown) == ("app-7-0001", {})


def test_link_that_cannot_be_stored_does_not_fail_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    task, _ = submitting(monkeypatch, extra={"master_ui": "http://master:8080"})
    task._task_instance = None
    task._hook._process_spark_submit_log(iter([BEGUN, "later"]))
    assert task.spark_application == "app-7-0001"


@pytest.mark.parametrize(
    ("run", "page"),
    [
        (
            RunIdentity("d", "g.t", "manual__2026-01-31T00:00:00+00:00", DUE),
            "manual__2026-01-31T00%3A00%3A00%2B00%3A00",
        ),
        (RunIdentity("d", "g.t", "r", DUE, map_index=0), "r"),
    ],
)
def test_task_url_is_the_page_of_airflow(monkeypatch: pytest.MonkeyPatch, run: RunIdentity, page: str) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://airflow:8080")
    mapped = "/mapped/0" if run.map_index == 0 else ""
    assert task_url(run) == f"http://airflow:8080/dags/d/runs/{page}/tasks/g.t{mapped}"


KEY = "a/b c/manifest.json"
S3 = "https://console.aws.amazon.com/s3/object/lake?prefix=a%2Fb%20c%2Fmanifest.json"
AWS_OF_OTHERS = {"service_config": {"s3": {"endpoint_url": "http://minio:9000"}}}


@pytest.mark.parametrize(
    ("url", "extra", "page"),
    [
        (f"s3://lake/{KEY}", {}, S3),
        (f"s3a://lake/{KEY}", {"region_name": "eu-west-1"}, S3),
        (f"s3://lake/{KEY}", {"endpoint_url": "http://minio:9000"}, ""),
        (f"s3://lake/{KEY}", AWS_OF_OTHERS, ""),
        (
            f"gs://lake/{KEY}",
            {},
            "https://console.cloud.google.com/storage/browser/_details/lake/a/b%20c/manifest.json",
        ),
        ("https://host/manifest.json", {}, "https://host/manifest.json"),
        ("https://host/manifest.json?sig=secret", {}, ""),
        ("https://me:secret@host/manifest.json", {}, ""),
        (f"file:///lake/{KEY}", {}, ""),
        (f"abfss://lake@account/{KEY}", {}, ""),
    ],
)
def test_file_page_depends_on_its_storage(url: str, extra: dict[str, Any], page: str) -> None:
    assert file_page(url, extra) == page


def test_s3_endpoint_in_the_environment_removes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://minio:9000")
    assert file_page(f"s3://lake/{KEY}", {}) == ""


@pytest.mark.parametrize(
    ("application", "extra", "page"),
    [
        ("app-1", {"history_server": "https://history/base/"}, "https://history/base/history/app-1/jobs/"),
        ("app-1", {"history_server": "history:18080"}, "http://history:18080/history/app-1/jobs/"),
        ("app-1", {"history_server": "javascript://x"}, ""),
        ("app-1", {"history_server": "https://me:secret@history"}, ""),
        ("app-1", {"history_server": 5}, ""),
        ("app-1", {}, ""),
        (
            "application_1_2",
            {"yarn_resourcemanager_webapp_address": "rm:8088"},
            "http://rm:8088/cluster/app/application_1_2",
        ),
        ("spark-1", {"yarn_resourcemanager_webapp_address": "rm:8088"}, ""),
        ("app-1", {"master_ui": "https://master/"}, "https://master/app/?appId=app-1"),
        ("app-1", {"master_ui": "https://master", "history_server": "http://h"}, "http://h/history/app-1/jobs/"),
        ("local-1", {"master_ui": "https://master"}, ""),
        ("app-1&x=/", {"master_ui": "master:8080"}, "http://master:8080/app/?appId=app-1%26x%3D%2F"),
    ],
)
def test_application_page_depends_on_its_connection(application: str, extra: dict[str, Any], page: str) -> None:
    assert application_page(application, extra) == page
