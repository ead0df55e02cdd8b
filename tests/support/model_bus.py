"""A topic in memory that can be published to and read, and whose requests and answers can get lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from airflow_provider_sfstream.exceptions import ReplayIdLostError, SalesforceStreamError
from airflow_provider_sfstream.salesforce.events import EventBatch, Responses
from airflow_provider_sfstream.salesforce.pubsub.publishing import OutgoingEvent, PublishedEvent

Answer = Callable[[Sequence[OutgoingEvent]], list[PublishedEvent]]


class ModelBus:
    """Keeps what is published. ``script`` says how the next requests are answered; after it, all are accepted.

    :param keeps_ids: whether events have the ID that their publisher gave.
    """

    def __init__(self, *, keeps_ids: bool = True) -> None:
        self.events: list[tuple[str, bytes, bytes]] = []
        self.requests: list[list[str]] = []
        self.script: list[Answer] = []
        self.looks = 0
        self.call_timeout = 0.0
        self.said_that_all_has_come = True
        self._keeps_ids = keeps_ids
        self._numbers = itertools.count(100, 3)

    def publish(self, topic: str, events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
        self.requests.append([event.correlation_key for event in events])
        return (self.script.pop(0) if self.script else self.accept)(events)

    def accept(self, events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
        """Publish all."""
        results = []
        for event in events:
            replay_id = next(self._numbers).to_bytes(8) + b"\0\0"
            self.events.append((event.correlation_key, replay_id, event.payload))
            results.append(PublishedEvent(event.correlation_key, replay_id))
        return results

    def refuse(self, error: SalesforceStreamError, *places: int) -> Answer:
        """Return what publishes all events but those at these places of the request, which have the error."""

        def answer(events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
            accepted = iter(self.accept([event for place, event in enumerate(events) if place not in places]))
            return [
                PublishedEvent(event.correlation_key, None, error) if place in places else next(accepted)
                for place, event in enumerate(events)
            ]

        return answer

    def lose_request(self, error: SalesforceStreamError) -> Answer:
        """Return what publishes nothing, and raises the error."""

        def answer(events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
            raise error

        return answer

    def lose_answer(self, error: SalesforceStreamError, *, of: int | None = None) -> Answer:
        """Return what publishes the first ``of`` events, or all, and raises the error."""

        def answer(events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
            self.accept(events[:of])
            raise error

        return answer

    def renew_session(self) -> None:
        """There is none."""

    def subscribe(self, topic: str, start: bytes, *, limit: int | None = None, idle_timeout: float) -> Responses:
        self.looks += 1
        places = [place for place, event in enumerate(self.events) if event[1] == start]
        if not places:
            raise ReplayIdLostError(f"{topic}: it is not known.")
        after = self.events[places[0] + 1 :]
        ids = [event_id if self._keeps_ids else f"another {event_id}" for event_id, _, _ in after]
        replay_ids, payloads = [each[1] for each in after], [each[2] for each in after]
        yield EventBatch(replay_ids, [*ids], ["s"] * len(ids), payloads, b"", 1, 0)
        if self.said_that_all_has_come:
            yield EventBatch([], [], [], [], b"x", 1, 0)
        yield None
