from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.localorg import LocalOrg, reset_org


@pytest.fixture(scope="session")
def shared_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("shared") / "org") as org:
        yield org


@pytest.fixture
def org(shared_org: LocalOrg) -> Iterator[LocalOrg]:
    """Share one org between tests with different topics; reset its knobs and faults after each test."""
    yield shared_org
    reset_org(shared_org)


@pytest.fixture
def topic(org: LocalOrg, request: pytest.FixtureRequest) -> str:
    """Define a platform event for one test, with one field ``Number__c``, and return its topic."""
    name = f"T{abs(hash(request.node.nodeid))}__e"
    org.define(name, Number__c="int")
    return f"/event/{name}"


@pytest.fixture
def managed(org: LocalOrg, topic: str) -> str:
    """Create a managed subscription to ``topic`` that starts at the earliest event; return its developer name."""
    name = f"M{topic.removeprefix('/event/T').removesuffix('__e')}"
    org.managed_subscription(name, topic, default_replay="EARLIEST")
    return name
