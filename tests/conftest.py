"""Fixtures that run for every test of the package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_sfstream import redaction
from tests.support import hours


@pytest.fixture(autouse=True)
def forget_secrets_of_the_test() -> Iterator[None]:
    """Forget the secrets that a test registers, such as the password "wrong": later tests would show it redacted."""
    forms, longest_first = dict(redaction._forms), list(redaction._longest_first)
    yield
    redaction._forms.clear()
    redaction._forms.update(forms)
    redaction._longest_first[:] = longest_first


@pytest.fixture(autouse=True)
def compute_hours_for_the_test() -> None:
    """Compute the hours anew for each test: a test may run an hour after the collection or after the previous test."""
    hours.new_test()
