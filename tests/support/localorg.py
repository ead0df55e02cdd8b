"""A local org as a fixture, and waiting for what it shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sfstream_localorg.process import AdminError, LocalOrg

__all__ = ["AdminError", "LocalOrg", "org", "put_back", "wait_until"]


def wait_until(condition: Callable[[], Any], *, seconds: float = 60.0, what: str = "the condition") -> Any:
    """Return the first true value of ``condition``; fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds} s"
        time.sleep(0.02)
    return value


def put_back(org: LocalOrg) -> None:
    """End all that a test may have done to an org which others use after it; its topics and events stay."""
    org.clear_faults()
    org.reset_knobs()
    org.admin("POST", "/oauth", {"fail_next": 0, "fail_error": None, "empty_next": 0, "login_host": False})
    for managed in org.managed_subscriptions().values():  # an org can have 200
        org.rest("DELETE", f"/tooling/sobjects/ManagedEventSubscription/{managed['id']}")


@pytest.fixture
def org(tmp_path: Path) -> Iterator[LocalOrg]:
    """A fresh org of its own for one test."""
    with LocalOrg.running(tmp_path / "org") as local_org:
        yield local_org
