"""One local org for the tests of a file, each with a topic of its own: a process of its own costs a test a second."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.localorg import LocalOrg, put_back

_numbers = itertools.count(1)


class SharedOrg(LocalOrg):
    """An org that many tests use one after the other.

    ``topic`` is a platform event that only the running test uses, with one field ``Number__c``.
    """

    topic = ""

    def begin_test(self) -> None:
        """Make the topic of the next test, and forget what the log says of the test before."""
        self.topic = str(self.define(f"Order{next(_numbers)}__e", Number__c="double")["name"])
        self.admin("DELETE", "/requests")
        self.logins_before = self.admin("GET", "/oauth")["requests"]
        self.delivered_before = self.admin("GET", "/org")["delivered"]

    def end_test(self) -> None:
        """Put back what a test may have changed."""
        if self._process is None:
            self.start()
        put_back(self)

    @property
    def logins(self) -> int:
        """How often this test has asked for a token."""
        return int(self.admin("GET", "/oauth")["requests"]) - self.logins_before

    @property
    def delivered(self) -> int:
        """How many events this test has been sent."""
        return int(self.admin("GET", "/org")["delivered"]) - self.delivered_before

    def rotate_consumer_secret(self) -> str:
        """Give the external client app another secret, and return it. Connections made from now on have it."""
        secret = str(self.admin("POST", "/oauth/consumer_secret", {})["client_secret"])
        self.info = {**self.info, "client_secret": secret}
        return secret

    def open_streams(self) -> int:
        """Return how many streams of the test's topic are open."""
        return sum(stream["topic"] == self.topic for stream in self.streams())


@pytest.fixture(scope="module")
def shared_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedOrg]:
    with SharedOrg.running(tmp_path_factory.mktemp("shared") / "org") as org:
        yield org


@pytest.fixture
def org(request: pytest.FixtureRequest) -> Iterator[SharedOrg]:
    """The org of the file, with a new, empty topic; what the test changes is put back. Tests that :data:`OWN_ORG` marks
    have one of their own."""
    if getattr(request, "param", None) == "own":
        with SharedOrg.running(request.getfixturevalue("tmp_path") / "org") as own:
            own.begin_test()
            yield own
        return
    shared: SharedOrg = request.getfixturevalue("shared_org")
    shared.begin_test()
    yield shared
    shared.end_test()


OWN_ORG = pytest.mark.parametrize("org", ["own"], indirect=True, ids=["own org"])
"""For a test that does to its org what cannot be put back: time does not go backwards."""
