"""Local org as a fixture, and a helper that waits for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sfstream_localorg.process import AdminError, LocalOrg

__all__ = ["AdminError", "LocalOrg", "org", "reset_org", "wait_until"]


def wait_until(condition: Callable[[], Any], *, seconds: float = 60.0, what: str = "the condition") -> Any:
    """Return the first true value of ``condition``; fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} was not met within {seconds} s"
        time.sleep(0.02)
    return value


def reset_org(org: LocalOrg) -> None:
    """Reset the faults, settings and managed subscriptions of a shared org after a test; keep its topics and events."""
    org.clear_faults()
    org.reset_knobs()
    flags = {"login_host": False, "rotate_refresh_tokens": False}
    org.admin("POST", "/oauth", {"fail_next": 0, "fail_error": None, "empty_next": 0, **flags})
    for managed in org.managed_subscriptions().values():  # an org allows 200 of them
        org.rest("DELETE", f"/tooling/sobjects/ManagedEventSubscription/{managed['id']}")


@pytest.fixture
def org(tmp_path: Path) -> Iterator[LocalOrg]:
    """Start a new org for one test."""
    with LocalOrg.running(tmp_path / "org") as local_org:
        yield local_org
