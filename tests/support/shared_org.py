"""Local org shared by the tests of a file, each with its own topic: starting an org takes a second per test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.localorg import LocalOrg, reset_org
from tests.support.tasks import set_connection

_numbers = itertools.count(1)


class SharedOrg(LocalOrg):
    """Org that many tests use in sequence.

    ``topic`` is a platform event for the running test only, with one field ``Number__c``.
    """

    topic = ""

    def begin_test(self) -> None:
        """Create the topic of the next test, and clear the request log of the previous test."""
        self.topic = str(self.define(f"Order{next(_numbers)}__e", Number__c="double")["name"])
        self.admin("DELETE", "/requests")
        self.logins_before = self.admin("GET", "/oauth")["requests"]
        self.delivered_before = self.admin("GET", "/org")["delivered"]

    def end_test(self) -> None:
        """Restart the org if the test stopped it, and undo the changes of the test."""
        if self._process is None:
            self.start()
        reset_org(self)

    @property
    def logins(self) -> int:
        """Number of token requests of this test."""
        return int(self.admin("GET", "/oauth")["requests"]) - self.logins_before

    @property
    def delivered(self) -> int:
        """Number of events delivered to this test."""
        return int(self.admin("GET", "/org")["delivered"]) - self.delivered_before

    def rotate_consumer_secret(self) -> str:
        """Replace the secret of the external client app, and return it. Connections created later contain it."""
        secret = str(self.admin("POST", "/oauth/consumer_secret", {})["client_secret"])
        self.info = {**self.info, "client_secret": secret}
        return secret

    def open_streams(self) -> int:
        """Return the number of open streams of the test's topic."""
        return sum(stream["topic"] == self.topic for stream in self.streams())


@pytest.fixture(scope="module")
def shared_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedOrg]:
    with SharedOrg.running(tmp_path_factory.mktemp("shared") / "org") as org:
        yield org


@pytest.fixture
def org(request: pytest.FixtureRequest) -> Iterator[SharedOrg]:
    """Return the shared org with a new, empty topic, and undo the changes of the test afterwards.

    A test with the mark :data:`OWN_ORG` gets its own org.
    """
    if getattr(request, "param", None) == "own":
        with SharedOrg.running(request.getfixturevalue("tmp_path") / "org") as own:
            own.begin_test()
            yield own
        return
    shared: SharedOrg = request.getfixturevalue("shared_org")
    shared.begin_test()
    yield shared
    shared.end_test()


@pytest.fixture(autouse=True)
def connections(org: SharedOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the connections of the org and of a replay store, for each test of a file that imports this fixture."""
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    org.knobs(keepalive_seconds=0.2)


OWN_ORG = pytest.mark.parametrize("org", ["own"], indirect=True, ids=["own org"])
"""Mark of a test whose changes to the org cannot be undone, such as a moved clock."""
