"""Parsing of API versions."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.api_versions import (
    DEFAULT_API_VERSION,
    api_version_from,
    api_version_retirement,
)


@pytest.mark.parametrize(
    ("written", "version"),
    [("62.0", "62.0"), ("62", "62.0"), ("v62.0", "62.0"), ("V62", "62.0"), (" 37.0 ", "37.0"), ("100.0", "100.0")],
)
def test_usual_forms_of_an_api_version_are_accepted(written: str, version: str) -> None:
    assert api_version_from(written) == version


@pytest.mark.parametrize("written", ["", "36.0", "23", "62.1", "62.0/../x", "sixty", "v", "-62.0", "62.0 beta", "0x40"])
def test_invalid_or_old_api_version_is_refused(written: str) -> None:
    with pytest.raises(ConfigurationError, match=r"37\.0 or above.*Nothing was contacted"):
        api_version_from(written)


def test_default_api_version_is_valid() -> None:
    assert api_version_from(DEFAULT_API_VERSION) == DEFAULT_API_VERSION


def test_api_version_below_a_higher_minimum_is_refused() -> None:
    assert api_version_from("v60", first=60, what="it requires") == "60.0"
    with pytest.raises(ConfigurationError, match=r"'59\.0' is invalid or too old: it requires 60\.0 or above"):
        api_version_from("59.0", first=60, what="it requires")


@pytest.mark.parametrize(
    ("written", "retires"),
    [("40.0", True), ("v37", True), ("41.0", False), (DEFAULT_API_VERSION, False), (None, False), ("sixty", False)],
)
def test_retirement_of_an_api_version_is_named(written: str | None, retires: bool) -> None:
    assert ("Summer '28. Set version to 66.0" in (api_version_retirement(written) or "")) == retires
