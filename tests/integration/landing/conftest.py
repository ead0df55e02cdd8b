from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.landing.location import Landing
from tests.support.object_storage import BUCKET, ObjectStorage, object_storage
from tests.support.object_storage_proxy import ObjectStorageProxy
from tests.support.tasks import set_connection

__all__ = ["object_storage"]

IMPATIENT = {"config_kwargs": {"retries": {"total_max_attempts": 2}, "connect_timeout": 5, "read_timeout": 20}}
"""Connection settings with fewer tries than the default, so that tests of lasting faults take seconds."""


def connect(monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any]) -> str:
    """Define an Airflow connection with a new ID and return the ID: Airflow caches one filesystem per connection."""
    name = f"storage_{secrets.token_hex(4)}"
    set_connection(monkeypatch, name, **connection)
    return name


@pytest.fixture
def url() -> str:
    """Return a URL below which one test may write."""
    return f"s3://{BUCKET}/{secrets.token_hex(8)}"


@pytest.fixture
def proxy(object_storage: ObjectStorage) -> Iterator[ObjectStorageProxy]:
    with ObjectStorageProxy.running(object_storage.port) as between:
        yield between


@pytest.fixture
def landing(object_storage: ObjectStorage, url: str, monkeypatch: pytest.MonkeyPatch) -> Landing:
    """Open a landing as the operators do: through an Airflow connection of the user with the fewest rights."""
    return open_landing(url, connect(monkeypatch, object_storage.airflow_connection())).landing


@pytest.fixture
def landing_through(
    object_storage: ObjectStorage, url: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[ObjectStorageProxy], Landing]:
    """Open the landing of the test through a proxy."""

    def through(proxy: ObjectStorageProxy) -> Landing:
        connection = object_storage.airflow_connection(proxy.endpoint, **IMPATIENT)
        return open_landing(url, connect(monkeypatch, connection)).landing

    return through
