"""Where a browser shows a file, or an application of Spark: only addresses that lead there, and none with a secret."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.monitoring.links import application_page, file_page

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
def test_a_file_has_a_page_where_one_is_known(url: str, extra: dict[str, Any], page: str) -> None:
    assert file_page(url, extra) == page


def test_the_environment_may_say_that_s3_is_not_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_an_application_has_a_page_where_the_connection_names_one(
    application: str, extra: dict[str, Any], page: str
) -> None:
    assert application_page(application, extra) == page
