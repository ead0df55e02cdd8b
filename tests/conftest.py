"""What holds for every test of the package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_sfstream import redaction
from tests.support import hours


@pytest.fixture(autouse=True)
def secrets_of_a_test_are_forgotten() -> Iterator[None]:
    """What one test makes a secret, such as the password "wrong", would be left out of the texts of all others."""
    forms, longest_first = dict(redaction._forms), list(redaction._longest_first)
    yield
    redaction._forms.clear()
    redaction._forms.update(forms)
    redaction._longest_first[:] = longest_first


@pytest.fixture(autouse=True)
def hours_are_those_of_the_test() -> None:
    """A test may run an hour after the collection, and after the one before it."""
    hours.new_test()
