from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.localorg import LocalOrg, put_back


@pytest.fixture(scope="session")
def shared_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("shared") / "org") as org:
        yield org


@pytest.fixture
def org(shared_org: LocalOrg) -> Iterator[LocalOrg]:
    """One org for many tests, each with topics of its own; knobs and faults are put back afterwards."""
    yield shared_org
    put_back(shared_org)


@pytest.fixture
def topic(org: LocalOrg, request: pytest.FixtureRequest) -> str:
    """A platform event that no other test uses, with one field ``Number__c``."""
    name = f"T{abs(hash(request.node.nodeid))}__e"
    org.define(name, Number__c="int")
    return f"/event/{name}"


@pytest.fixture
def managed(org: LocalOrg, topic: str) -> str:
    """The developer name of a managed subscription to ``topic`` that starts with the earliest event."""
    name = f"M{topic.removeprefix('/event/T').removesuffix('__e')}"
    org.managed_subscription(name, topic, default_replay="EARLIEST")
    return name
