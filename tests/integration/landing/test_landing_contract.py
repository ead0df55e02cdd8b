"""The landing tests for local files and memory, run on S3 through an Airflow connection."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from tests.support.object_storage import ObjectStorage
from tests.unit.landing import test_catalog, test_intervals, test_parquet

pytestmark = pytest.mark.extended


@pytest.fixture
def catalog(landing: Landing) -> LandingCatalog:
    return LandingCatalog(landing)


def _tests_of_a_landing() -> dict[str, Any]:
    functions = [
        (module.__name__.rpartition(".")[2], name, function)
        for module in (test_catalog, test_intervals, test_parquet)
        for name, function in inspect.getmembers(module, inspect.isfunction)
    ]
    return {
        f"{name}__{module}": function
        for module, name, function in functions
        if name.startswith("test_") and {"landing", "catalog"} & inspect.signature(function).parameters.keys()
    }


globals().update(_tests_of_a_landing())


def test_check_of_a_landing_leaves_no_file(landing: Landing, object_storage: ObjectStorage) -> None:
    landing.check_writable()
    assert object_storage.keys(landing.base.partition("/")[2]) == []
