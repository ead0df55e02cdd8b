"""Spark data source on a landing in S3, with credentials as options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import LandingError
from pyspark_sfstream import DefaultSource
from tests.support.landing_files import LandedEvent, land_window
from tests.support.object_storage import BUCKET, ObjectStorage

SCHEMA = {"type": "record", "name": "Order__e", "fields": [{"name": "Number__c", "type": "int"}]}


@pytest.fixture
def landed(object_storage: ObjectStorage, url: str, tmp_path: Path) -> str:
    for number in range(3):
        events = [LandedEvent(10 * number + each, "one", {"Number__c": 10 * number + each}) for each in range(2)]
        previous = f"20260110T00000{number - 1}Z-w" if number else None
        land_window(tmp_path, f"20260110T00000{number}Z-w", events, {"one": SCHEMA}, previous_window_id=previous)
    client, prefix = object_storage.client(), url.removeprefix(f"s3://{BUCKET}/")
    for path in (each for each in tmp_path.rglob("*") if each.is_file()):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{path.relative_to(tmp_path)}", Body=path.read_bytes())
    return url


def rows(url: str, storage: ObjectStorage, **changed: str) -> list[dict[str, Any]]:
    key, secret = storage.user
    options = {"storage.key": key, "storage.secret": secret, "storage.endpoint_url": storage.endpoint}
    source = DefaultSource({"path": url, "topic": "/event/Order__e", **options, **changed})
    reader = source.reader(source.schema())
    return [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_landing_is_read_with_credentials_from_options(landed: str, object_storage: ObjectStorage, scheme: str) -> None:
    found = rows(landed.replace("s3:", f"{scheme}:"), object_storage)
    assert [row["Number__c"] for row in found] == [0, 1, 10, 11]


def test_storage_error_contains_no_credential(landed: str, object_storage: ObjectStorage) -> None:
    wrong = "5e4d3c2b1a-is-not-the-secret"
    with pytest.raises(LandingError) as caught:
        rows(landed, object_storage, **{"storage.secret": wrong})
    assert wrong not in str(caught.value)
    assert object_storage.user[0] not in str(caught.value)
