"""One local org for all hook tests; every test leaves its faults, knobs and subscriptions as it found them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.event_hooks import EventHook
from tests.support.localorg import LocalOrg, put_back


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
    running_org.admin("DELETE", "/requests")  # tests look at the whole log, many times
    yield running_org
    put_back(running_org)


@pytest.fixture
def make_hook(org: LocalOrg, kind: EventHook, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Make a hook of that kind on a connection to the org, some extras changed."""

    def make_hook(**changes: Any) -> Any:
        extra = {**kind.extra(org), **changes}
        monkeypatch.setenv("AIRFLOW_CONN_SF", json.dumps({"conn_type": "salesforce", "extra": json.dumps(extra)}))
        return kind.hook("sf")

    return make_hook
