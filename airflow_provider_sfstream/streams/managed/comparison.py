"""Comparison of a managed subscription with an ordinary one to the same topic.

Salesforce drops the committed replay ID of a managed subscription that is stopped or deleted, moves it when another
client commits, and restarts from ``errorRecoveryReplay`` when it aged out. The stream reports none of this. So a drain
with a recorded position also opens an ordinary subscription at that position: the first event that this one delivers
must be the first new event of the managed stream.

Until that is shown, events are read from the ordinary subscription only. A wrong guess costs deliveries, never events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import takewhile

from airflow_provider_sfstream.salesforce.events import EventBatch, Responses, StartFrom
from airflow_provider_sfstream.streams.managed.redelivery import Redelivery, confirms, without_known

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
"""Seconds that a look at one of the two subscriptions waits for a response."""
_LOOK_EVERY = 1.0
_KNOWN_LENGTHS = (8, 10)

OpenTopic = Callable[[bytes | StartFrom, int | None], Responses]
"""Opens an ordinary subscription at a position, for so many events."""


def is_later(replay_id: bytes, other: bytes) -> bool:
    """Return whether a replay ID seems to lie after another one; ``False`` for an unknown form.

    Replay IDs are opaque. This decides which subscription to wait for, or withholds a commit. It proves nothing.
    """
    return len(replay_id) == len(other) and len(replay_id) in _KNOWN_LENGTHS and replay_id > other


def _is_same(batch: EventBatch, index: int, other: EventBatch) -> bool:
    """Return whether the event at ``index`` is the first one of ``other``. Replay IDs of two topics may be equal."""
    columns = ("replay_ids", "event_ids", "schema_ids")
    return all(getattr(batch, name)[index] == getattr(other, name)[0] for name in columns)


class Comparison:
    """Responses of an ordinary subscription from a position, until the managed stream delivers the same events.

    :param name: the managed subscription, for messages.
    :param open_topic: opens the ordinary subscription.
    :param managed: responses of the managed stream without the events that are stored already.
    :param start: the position, or ``EARLIEST`` after a loss.
    :param limit: events to yield.
    :param patience: seconds to wait for the first event of the managed stream, once the ordinary one has delivered it.
    :param allow: raises the limit of the managed stream by the events that are discarded here.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        open_topic: OpenTopic,
        managed: Iterator[EventBatch | None],
        *,
        start: bytes | StartFrom,
        limit: int | None,
        patience: float,
        allow: Callable[[int], None],
        clock: Callable[[], float],
    ) -> None:
        self._name, self._open_topic, self._managed = name, open_topic, managed
        self._position, self._limit, self._patience = start, limit, patience
        self._allow, self._clock = allow, clock
        self._head: EventBatch | None = None
        self._last: bytes | None = None
        self._next_look = clock()
        self._differed = self._is_exhausted = False
        self.agrees = False
        """The managed stream continues after the position: what it delivers may be read."""

    @property
    def differs(self) -> bool:
        """Whether the managed stream was seen to continue elsewhere, and was not found to agree since."""
        return not self.agrees and (self._differed or self._head is not None)

    def responses(self) -> Responses:
        """Yield the responses of the ordinary subscription. End when the two agree, or with the last event allowed.

        :raises ReplayIdLostError: if the position can no longer be read.
        """
        self._look()
        expected: EventBatch | None = None
        with closing(self._open_topic(self._position, 1)) as ordinary:
            for response in ordinary:
                if response is not None and len(response):
                    expected = response
                    break
                self._moved_to(response)
                yield response
                self._look()
        if expected is None:
            return
        deadline = self._clock() + self._patience
        while self._head is None and not self._is_exhausted and self._clock() < deadline:
            self._look()  # without a None, which would be a silence although an event is here
        if self._head is not None and _is_same(expected, 0, self._head):
            self.agrees = True
        else:
            self._warn(expected.replay_ids[0])
            yield from self._read_topic(expected)

    def rest(self) -> Responses:
        """Yield what the managed stream delivers after the events that were yielded, once the two agree."""
        redelivery = Redelivery(self._last)
        head, self._head = self._head, None
        if head is not None:
            yield without_known(head, redelivery.known(head.replay_ids))
        for response in self._managed:
            if response is not None and len(response):
                yield without_known(response, redelivery.known(response.replay_ids))
            elif response is None or redelivery.is_over:
                yield response

    def _read_topic(self, expected: EventBatch) -> Responses:
        self._moved_to(expected)
        yield expected
        if self._limit == 1:
            return
        left = None if self._limit is None else self._limit - 1
        with closing(self._open_topic(self._position, left)) as ordinary:
            for response in ordinary:
                self._moved_to(response)
                self.agrees = self._reaches_head(response)
                yield response
                if self.agrees:
                    log.info("%s: it continues after the events that were read. Reading it again.", self._name)
                    return
                if response is None or self._clock() >= self._next_look:
                    self._look()

    def _reaches_head(self, response: EventBatch | None) -> bool:
        head = self._head
        if head is None or response is None or head.replay_ids[0] not in response.replay_ids:
            return False
        return _is_same(response, response.replay_ids.index(head.replay_ids[0]), head)

    def _moved_to(self, response: EventBatch | None) -> None:
        if response is None:
            return
        if len(response):
            self._position = self._last = response.replay_ids[-1]
        elif confirms(response):
            self._position = response.latest_replay_id

    def _look(self) -> None:
        """Look for the first event of the managed stream that may lie after the position, unless it is known."""
        if self._head is not None or self._is_exhausted:
            return
        self._next_look = self._clock() + _LOOK_EVERY
        try:
            response = next(self._managed)
        except StopIteration:
            self._is_exhausted = True
            return
        if response is None or not len(response):
            return
        earlier = self._earlier(response.replay_ids)
        self._allow(earlier)
        if earlier < len(response):
            self._head = response.part(earlier, len(response))

    def _earlier(self, replay_ids: Sequence[bytes]) -> int:
        """Return how many events do not lie after the position. Of an unknown form, only those up to the position."""
        position = self._position
        if not isinstance(position, bytes):
            return 0
        if position in replay_ids:
            return replay_ids.index(position) + 1
        count = len(list(takewhile(partial(is_later, position), replay_ids)))
        self._differed = self._differed or count > 0
        return count

    def _warn(self, expected: bytes) -> None:
        self._differed = True
        seen = "nothing so far" if self._head is None else self._head.replay_ids[0].hex()
        log.warning(
            "%s: it does not continue after the recorded position: the next event of the topic is %s, and it delivers "
            "%s. Salesforce dropped its position (it was deleted and recreated, or stopped and started), or another "
            "client commits on it. Nothing is lost: the events are read from the topic itself, after the recorded "
            "position. Give each consumer a managed subscription of its own.",
            self._name,
            expected.hex(),
            seen,
        )
