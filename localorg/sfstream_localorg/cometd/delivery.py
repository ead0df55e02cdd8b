"""Delivery of events to a CometD session: the events of its subscriptions in bus order, in chunks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sfstream_localorg.cometd.payloads import to_json
from sfstream_localorg.cometd.sessions import CometdSession, CometdSubscription

if TYPE_CHECKING:
    from sfstream_localorg.bus.event_bus import StoredEvent
    from sfstream_localorg.org import Org

_CHUNK = 500


class Delivery:
    """Events of one response to a session: those on the bus when it begins, at most ``most``.

    A session receives an event once, even if the client did not receive the response.
    """

    def __init__(self, org: Org, session: CometdSession, most: int | None) -> None:
        self._org = org
        self._session = session
        self._through = org.bus.last()
        self._left = most
        self.count = 0

    def chunks(self) -> Iterator[list[bytes]]:
        """Yield chunks of event messages as JSON; a chunk may be empty, so that the caller can yield to other tasks."""
        while self._left is None or self._left > 0:
            found, horizon = self._next()
            if self._left is not None and len(found) > self._left:
                horizon = found[self._left - 1][1].position
                found = [entry for entry in found if entry[1].position <= horizon]
            for subscription in self._session.subscriptions.values():
                if not self._is_withheld(subscription):
                    subscription.position = max(subscription.position, horizon)
            self._count(len(found))
            for prefix, allocation in self._org.streaming_deliveries.items():
                allocation.use(sum(subscription.channel.startswith(prefix) for subscription, *_ in found))
            yield [self._message(subscription, event, data) for subscription, event, data in found]
            if horizon >= self._through:
                return

    def _count(self, number: int) -> None:
        self._org.delivered(number)
        self._session.delivered += number
        self.count += number
        if self._left is not None:
            self._left -= number

    def _next(self) -> tuple[list[tuple[CometdSubscription, StoredEvent, bytes]], int]:
        """Return the next events of all subscriptions in order, and the position up to which they are complete."""
        horizon = self._through
        found: list[tuple[CometdSubscription, StoredEvent]] = []
        for subscription in self._session.subscriptions.values():
            if self._is_withheld(subscription):
                continue
            events = self._org.bus.retained(subscription.channel, subscription.position, _CHUNK)
            shown = self._org.channel_delivery.events(subscription.channel, events)
            found += [(subscription, event) for event in shown]
            if len(events) == _CHUNK:
                horizon = min(horizon, events[-1].position)
        found = [entry for entry in found if entry[1].position <= horizon]
        if len(self._session.subscriptions) > 1:
            found.sort(key=lambda entry: entry[1].position)
        made = ((subscription, event, self._org.event_data(event)) for subscription, event in found)
        return [entry for entry in made if _matches(entry[0], entry[2])], horizon

    def _is_withheld(self, subscription: CometdSubscription) -> bool:
        faults = self._org.faults
        return faults.is_silent(subscription.channel) or faults.delivery.is_stalled(subscription.channel)

    def _message(self, subscription: CometdSubscription, event: StoredEvent, data: bytes) -> bytes:
        return b'{"data":%b,"channel":%b}' % (data, to_json(subscription.name).encode())


@contextlib.contextmanager
def listening(org: Org, session: CometdSession) -> Iterator[None]:
    """Wake a session whenever an event is published to one of its channels, within the context."""
    with contextlib.ExitStack() as listeners:
        for subscription in session.subscriptions.values():
            listeners.enter_context(org.bus.listen(subscription.channel, session.wake))
        yield


def _matches(subscription: CometdSubscription, data: bytes) -> bool:
    return subscription.condition is None or subscription.condition(json.loads(data))
