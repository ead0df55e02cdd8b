"""Lineage for the OpenLineage provider. An error in the lineage does not fail the task."""

from __future__ import annotations

import logging

import pytest
from airflow.providers.openlineage.extractors import OperatorLineage

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.monitoring.lineage import (
    DatasetName,
    LineageMixin,
    name_of_landed,
    name_of_object,
    name_of_stream,
    name_of_url,
)
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri


class Operator(LineageMixin):
    """Operator with a fixed lineage, or with an error that replaces it."""

    def __init__(self, lineage: OperatorLineage | Exception) -> None:
        self._lineage = lineage

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        if isinstance(self._lineage, Exception):
            raise self._lineage
        return self._lineage if has_ended else OperatorLineage()


def test_lineage_differs_before_and_after_the_run() -> None:
    ended = OperatorLineage(run_facets={"any": None})
    operator = Operator(ended)
    assert operator.get_openlineage_facets_on_start() == OperatorLineage()
    assert operator.get_openlineage_facets_on_complete(None) is ended


def test_a_failure_is_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    operator = Operator(OSError("https://user:secret-of-ours@host refused"))
    assert operator.get_openlineage_facets_on_complete(None) is None
    assert "The lineage of this task is unavailable: OSError" in caplog.text
    assert "secret-of-ours" not in caplog.text


ORG = "sfstream://salesforce_default"


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        (f"{ORG}/event/Order__e", "/event/Order__e"),
        (f"{ORG}/event/Order__e?max_wait=60&min_events=5", "/event/Order__e"),
        (f"{ORG}/event/Order__e?api=streaming", "/event/Order__e"),
        (f"{ORG}/topic/Orders", "/topic/Orders"),
        (f"{ORG}/event/Order__e?subscription=a+b", "/event/Order__e?subscription=a%20b"),
        (
            f"{ORG}/event/Order__e?subscription=airflow&api=streaming",
            "/event/Order__e?api=streaming&subscription=airflow",
        ),
    ],
)
def test_a_stream_is_named_as_its_asset(uri: str, name: str) -> None:
    assert name_of_stream(StreamUri.parse(uri)) == DatasetName(ORG, name)


def test_a_connection_with_a_colon_is_written_as_in_its_assets() -> None:
    uri = StreamUri("eu:prod", "/event/Order__e", "airflow")
    name = name_of_stream(uri)
    assert name.namespace + name.name == str(uri)
    assert name_of_object("eu:prod", "Account") == DatasetName(name.namespace, "Account")


@pytest.mark.parametrize(
    ("url", "namespace", "name"),
    [
        ("/lake/tables/", "file", "/lake/tables"),
        ("file:///lake/tables", "file", "/lake/tables"),
        ("s3://bucket/lake/tables/", "s3://bucket", "lake/tables"),
        ("s3a://bucket/lake", "s3://bucket", "lake"),
        ("s3://aws_lake@bucket/lake", "s3://bucket", "lake"),
        ("gcs://bucket/lake", "gs://bucket", "lake"),
        ("abfss://lake@account.dfs.core.windows.net/tables", "abfss://lake@account.dfs.core.windows.net", "tables"),
        ("hdfs://name:8020/lake", "hdfs://name:8020", "/lake"),
        ("memory://lake", "memory://lake", "/"),
    ],
)
def test_folder_has_the_openlineage_name_of_its_storage(url: str, namespace: str, name: str) -> None:
    assert name_of_url(url) == DatasetName(namespace, name)


@pytest.mark.parametrize("url", ["s3://key:secret-of-ours@bucket/lake", "https://host/lake?sig=secret-of-ours"])
def test_url_with_a_password_is_refused_as_a_dataset_name(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        name_of_url(url)
    assert "secret-of-ours" not in str(caught.value)


def test_a_landed_stream_is_in_the_folder_of_its_windows() -> None:
    manifest = "s3://lake/raw/00D/pubsub/event~Order__e/airflow/windows/2026/01/31/w-1/manifest.json"
    assert name_of_landed(manifest) == DatasetName("s3://lake", "raw/00D/pubsub/event~Order__e/airflow")
