"""Visibility of a changed subscription on the Pub/Sub API, derived from responses to subscribe requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ServiceUnavailableError,
    SessionExpiredError,
    SubscriptionBusyError,
    SubscriptionStoppedError,
    ThrottledError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.hooks.managed_event_subscription import VisibleState, visible_state, wait_until_seen
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription

ORDERS = ManagedSubscription("Orders")
EVENT = object()


class ScriptedStream:
    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.closed = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def close(self) -> None:
        self.closed = True


class ScriptedClient:
    """Client that answers each subscribe request with the next of ``answers``: error, batch, or ``None`` (silence)."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.streams: list[ScriptedStream] = []
        self.renewed = 0
        self.limits: list[int | None] = []
        self.reached = 0
        self.fault: Exception | None = None

    def managed_subscribe(self, subscription: Any, *, limit: int | None, idle_timeout: float) -> ScriptedStream:
        assert subscription == ORDERS
        assert idle_timeout > 0
        self.limits.append(limit)
        stream = ScriptedStream(self._answers.pop(0))
        self.streams.append(stream)
        return stream

    def prove_contact(self, topic: str) -> None:
        """Count the contact check; raise ``fault`` if it is set."""
        self.reached += 1
        if self.fault:
            raise self.fault

    def renew_session(self) -> None:
        self.renewed += 1


class Clock:
    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (None, None),
        (EVENT, "running"),
        (SubscriptionBusyError("taken"), "running"),
        (SubscriptionStoppedError("stopped"), "stopped"),
        (TopicNotFoundError("unknown"), "deleted"),
    ],
)
def test_visible_state_of_each_response(answer: Any, seen: VisibleState | None) -> None:
    client: Any = ScriptedClient(answer)
    assert visible_state(client, ORDERS) == seen
    assert client.limits == [1], "the look requests one event only"
    assert [stream.closed for stream in client.streams] == [True]


def test_a_refused_token_is_renewed_once() -> None:
    client: Any = ScriptedClient(SessionExpiredError("expired"), EVENT)
    assert visible_state(client, ORDERS) == "running"
    assert client.renewed == 1
    client = ScriptedClient(SessionExpiredError("expired"), SessionExpiredError("expired"))
    with pytest.raises(SessionExpiredError):
        visible_state(client, ORDERS)
    assert all(stream.closed for stream in client.streams)


def test_silence_without_contact_raises_the_contact_error() -> None:
    client: Any = ScriptedClient(None)
    client.fault = ServiceUnavailableError("no route")
    with pytest.raises(ServiceUnavailableError, match="no route"):
        visible_state(client, ORDERS)
    assert client.streams[0].closed


def wait(client: Any, expected: VisibleState, clock: Clock, timeout: float = 20.0) -> VisibleState | None:
    return wait_until_seen(client, ORDERS, expected, timeout=timeout, interval=5.0, now=clock.now, sleep=clock.sleep)


@pytest.mark.parametrize(
    ("expected", "answers"),
    [
        (
            "running",
            [TopicNotFoundError("unknown"), ThrottledError("busy"), SubscriptionStoppedError("stopped"), None],
        ),
        ("stopped", [None, EVENT, SubscriptionBusyError("taken"), SubscriptionStoppedError("stopped")]),
        ("deleted", [None, SubscriptionStoppedError("stopped"), EVENT, TopicNotFoundError("unknown")]),
    ],
)
def test_wait_repeats_the_look_until_the_expected_state_is_visible(expected: VisibleState, answers: list[Any]) -> None:
    client, clock = ScriptedClient(*answers), Clock()
    assert wait(client, expected, clock) == (None if answers[-1] is None else expected), "silence shows nothing"
    assert len(client.streams) == len(answers)
    assert clock.slept == [5.0] * (len(answers) - 1)
    assert all(stream.closed for stream in client.streams)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(TopicNotFoundError("unknown"), "was not found"), (ServiceUnavailableError("maintenance"), "maintenance")],
)
def test_wait_fails_after_the_timeout_with_the_last_response(answer: Exception, reason: str) -> None:
    client, clock = ScriptedClient(*[answer] * 10), Clock()
    with pytest.raises(ServiceUnavailableError, match=rf"Orders.*within 20 seconds.*{reason}.*Run the task again"):
        wait(client, "running", clock)
    assert len(client.streams) == 5, "at 0, 5, 10, 15 and 20 seconds"


def test_wait_raises_an_error_that_is_not_retriable_at_once() -> None:
    client, clock = ScriptedClient(AccessDeniedError("no")), Clock()
    with pytest.raises(AccessDeniedError):
        wait(client, "running", clock)
    assert not clock.slept
