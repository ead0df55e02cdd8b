"""In-memory topic with publish and subscribe methods, which can lose requests and responses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from airflow_provider_sfstream.exceptions import ReplayIdLostError, SalesforceStreamError
from airflow_provider_sfstream.salesforce.events import EventBatch, Responses
from airflow_provider_sfstream.salesforce.pubsub.publishing import OutgoingEvent, PublishedEvent

_END = b"x"
"""Replay ID in the empty responses at the end of the topic."""

Answer = Callable[[Sequence[OutgoingEvent]], list[PublishedEvent]]


class ModelBus:
    """Topic that stores published events. ``script`` holds the responses to the next requests; later requests succeed.

    :param keeps_ids: whether received events have the ID that the publisher assigned.
    """

    def __init__(self, *, keeps_ids: bool = True) -> None:
        self.events: list[tuple[str, bytes, bytes]] = []
        self.requests: list[list[str]] = []
        self.script: list[Answer] = []
        self.subscription_count = 0
        self.call_timeout = 0.0
        self.confirms_end = True
        self._keeps_ids = keeps_ids
        self._numbers = itertools.count(100, 3)

    def publish(self, topic: str, events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
        self.requests.append([event.correlation_key for event in events])
        return (self.script.pop(0) if self.script else self.accept)(events)

    def accept(self, events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
        """Publish all events."""
        results = []
        for event in events:
            replay_id = next(self._numbers).to_bytes(8) + b"\0\0"
            self.events.append((event.correlation_key, replay_id, event.payload))
            results.append(PublishedEvent(event.correlation_key, replay_id))
        return results

    def refuse(self, error: SalesforceStreamError, *places: int) -> Answer:
        """Return a response that publishes all events except those at ``places``, which it rejects with ``error``."""

        def answer(events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
            accepted = iter(self.accept([event for place, event in enumerate(events) if place not in places]))
            return [
                PublishedEvent(event.correlation_key, None, error) if place in places else next(accepted)
                for place, event in enumerate(events)
            ]

        return answer

    def lose_request(self, error: SalesforceStreamError) -> Answer:
        """Return a response that publishes no event, and raises ``error``."""

        def answer(events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
            raise error

        return answer

    def lose_answer(self, error: SalesforceStreamError, *, of: int | None = None) -> Answer:
        """Return a response that publishes the first ``of`` events (default: all), and raises ``error``."""

        def answer(events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
            self.accept(events[:of])
            raise error

        return answer

    def renew_session(self) -> None:
        """Do nothing: the bus has no session."""

    def subscribe(self, topic: str, after: bytes, *, limit: int | None = None, idle_timeout: float) -> Responses:
        self.subscription_count += 1
        places = [place for place, event in enumerate(self.events) if event[1] == after]
        if not places and after != _END:
            raise ReplayIdLostError(f"{topic}: unknown replay ID.")
        later = self.events[places[0] + 1 :] if places else []
        ids = [event_id if self._keeps_ids else f"another {event_id}" for event_id, _, _ in later]
        replay_ids, payloads = [each[1] for each in later], [each[2] for each in later]
        if later:
            yield EventBatch(replay_ids, [*ids], ["s"] * len(ids), payloads, b"", 1, 0)
        if self.confirms_end:
            yield EventBatch([], [], [], [], _END, 1, 0)
        yield None

    def latest(self, topic: str, *, idle_timeout: float) -> Responses:
        if self.confirms_end:
            yield EventBatch([], [], [], [], _END, 1, 0)
        yield None
