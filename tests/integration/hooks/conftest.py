"""One local org for all hook tests. Its faults, knobs and subscriptions are reset after each test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.event_hooks import EventHook
from tests.support.localorg import LocalOrg, reset_org


@pytest.fixture(scope="session")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        org.define("Order__e", Amount__c="double")
        org.define("Invoice__e", Amount__c="double")
        org.publish("/event/Order__e", [{"Amount__c": 1.0}])
        org.push_topic("Accounts", "SELECT Id, Name FROM Account")
        org.rest("POST", "/sobjects/Account", {"Name": "Acme"})
        yield org


@pytest.fixture
def org(running_org: LocalOrg) -> Iterator[LocalOrg]:
    running_org.admin("DELETE", "/requests")  # tests read the whole log many times, so it must be short
    yield running_org
    reset_org(running_org)


@pytest.fixture
def make_hook(org: LocalOrg, kind: EventHook, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Create a hook of the given kind on a connection to the org. Keyword arguments override extras."""

    def make_hook(**changes: Any) -> Any:
        extra = {**kind.extra(org), **changes}
        monkeypatch.setenv("AIRFLOW_CONN_SF", json.dumps({"conn_type": "salesforce", "extra": json.dumps(extra)}))
        return kind.hook("sf")

    return make_hook
