"""Contract of replay stores, run on a store with positions in files in a landing on S3."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.replaced_files import PositionFiles
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from tests.integration.replay_stores import test_replay_store_contract
from tests.support.replay_stores import StoreUnderTest

pytestmark = pytest.mark.extended


@pytest.fixture
def under_test(landing: Landing) -> Iterator[StoreUnderTest]:
    catalog = LandingCatalog(landing)
    under_test = StoreUnderTest(lambda: DocumentReplayStore(catalog, PositionFiles(landing)), catalog)
    yield under_test
    under_test.store.close()


globals().update(
    {
        name: function
        for name, function in inspect.getmembers(test_replay_store_contract, inspect.isfunction)
        if name.startswith("test_")
    }
)
