from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_sfstream.tables.delta.table_location import TableLocation, storage_options

KEYS = {"fs.s3a.access.key": "mine", "fs.s3a.secret.key": "hunter2"}


def options(url: str = "s3a://lake/tables", session: dict[str, str] | None = None, **settings: str) -> dict[str, str]:
    hadoop = {name.replace("_", "."): value for name, value in settings.items()}
    return storage_options(url, (KEYS | hadoop).get, (session or {}).items())


def test_hadoop_settings_of_s3_are_used() -> None:
    settings = {
        "fs_s3a_session_token": "token",
        "fs_s3a_endpoint": "storage:8333",
        "fs_s3a_endpoint_region": "eu-central-1",
        "fs_s3a_path_style_access": "true",
        "fs_s3a_connection_ssl_enabled": "false",
    }
    assert options(**settings) == {
        "AWS_ACCESS_KEY_ID": "mine",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AWS_SESSION_TOKEN": "token",
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "http://storage:8333",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        "aws_conditional_put": "etag",
    }


@pytest.mark.parametrize(
    ("settings", "endpoint", "allows_http"),
    [
        ({"fs_s3a_endpoint": "storage"}, "https://storage", False),
        ({"fs_s3a_endpoint": "https://storage", "fs_s3a_connection_ssl_enabled": "false"}, "https://storage", False),
        ({"fs_s3a_endpoint": "http://storage"}, "http://storage", True),
    ],
)
def test_endpoint_uses_the_protocol_of_hadoop(settings: dict[str, str], endpoint: str, allows_http: bool) -> None:
    found = options(**settings)
    assert found["AWS_ENDPOINT_URL"] == endpoint
    assert ("AWS_ALLOW_HTTP" in found) == allows_http


def test_bucket_settings_take_precedence() -> None:
    bucket = {"fs_s3a_bucket_lake_access_key": "of the bucket", "fs_s3a_bucket_other_access_key": "of another"}
    assert options(**bucket)["AWS_ACCESS_KEY_ID"] == "of the bucket"
    assert options("s3://third/x", **bucket)["AWS_ACCESS_KEY_ID"] == "mine"


def test_without_credentials_the_environment_decides() -> None:
    assert storage_options("s3a://lake/tables", {}.get) == {"aws_conditional_put": "etag"}


def test_other_storage_has_only_the_options_of_the_session() -> None:
    session = {"spark.sfstream.storage.azure_storage_account_key": "secret", "spark.app.name": "x"}
    assert options("abfss://lake@account/tables", session) == {"azure_storage_account_key": "secret"}
    assert options("file:///tables", {}) == {}
    assert options(session={"spark.sfstream.storage.AWS_REGION": "eu-west-1"})["AWS_REGION"] == "eu-west-1"


def test_location_text_shows_no_option() -> None:
    location = TableLocation("s3://lake/tables", {"AWS_SECRET_ACCESS_KEY": "hunter2"})
    assert location.below("Order__e") == TableLocation("s3://lake/tables/Order__e", location.options)
    assert "hunter2" not in f"{location!r} {location} {location.below('Order__e')!r}"


def test_a_local_folder_is_the_root_of_its_file_system(tmp_path: Path) -> None:
    with TableLocation(str(tmp_path)).filesystem().open_output_stream("here") as stream:
        stream.write(b"x")
    assert (tmp_path / "here").read_bytes() == b"x"
