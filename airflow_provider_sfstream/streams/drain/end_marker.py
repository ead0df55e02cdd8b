"""The second subscription of a drain that has to confirm the end of the stream.

It costs one call, at most one delivered event, and on a quiet topic the time until Salesforce sends an empty response,
which is 270 seconds at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.events import EventBatch
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams.end_of_stream import EndOfStream
from airflow_provider_sfstream.streams.source import EventSource, Responses

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.001


class EndMarker:
    """A subscription at ``LATEST`` beside that of the drain, and the evidence that results.

    A fault of this subscription does not end the drain: it is opened again with the drain's next subscription.

    :param clock: monotonic seconds.
    """

    def __init__(self, source: EventSource, topic: str, clock: Callable[[], float]) -> None:
        self._source, self._topic, self._clock = source, topic, clock
        self._responses: Responses | None = None
        self._evidence: EndOfStream | None = None
        self.opened_at: datetime | None = None
        """Lower bound of Salesforce's time when this subscription was requested; ``None`` if it was not measured."""
        self.answered_at: datetime | None = None
        """Upper bound of Salesforce's time when this subscription last answered; ``None`` if it has not, or if the time
        was not measured."""
        self._server_time: ServerTime | None = None

    @property
    def is_reached(self) -> bool:
        """Whether the drain has taken everything that was published before :attr:`opened_at`."""
        return self._evidence is not None and self._evidence.is_reached

    def open(self, server_time: ServerTime | None) -> None:
        """Open the subscription, unless it is open or has received its event.

        :param server_time: Salesforce's time, measured with the clock of this object.
        """
        if self._responses is None and (self._evidence is None or not self._evidence.has_event):
            self._evidence = EndOfStream()
            self._server_time = server_time
            self.opened_at = None if server_time is None else server_time.earliest(self._clock())
            self._responses = self._source.latest(self._topic, idle_timeout=_LOOK_SECONDS)
            self.look()

    def took(self, replay_ids: Sequence[bytes]) -> None:
        """Record events that the drain took."""
        if self._evidence is not None:
            self._evidence.reader_took(replay_ids)
            self.look()

    def answered(self, response: EventBatch) -> None:
        """Record an empty response of the drain's subscription."""
        if self._evidence is not None:
            self._evidence.reader_answered(response)
            self.look()

    def look(self) -> None:
        """Take the responses that have arrived on the second subscription."""
        while self._responses is not None and self._evidence is not None and not self._evidence.is_reached:
            try:
                response = next(self._responses, None)
            except SalesforceStreamError as error:
                log.info("%s: the subscription that looks for the end of the stream failed: %s", self._topic, error)
                self.close()
                return
            if response is None:
                return
            if self._server_time is not None:
                self.answered_at = self._server_time.latest(self._clock())
            self._evidence.reference_answered(response)
            if len(response):
                self.close()

    def discard(self) -> None:
        """Forget the evidence: the drain lost its position, and replay IDs of before prove nothing."""
        self.close()
        self._evidence, self.opened_at, self.answered_at = None, None, None

    def close(self) -> None:
        """End the second subscription."""
        responses, self._responses = self._responses, None
        if responses is not None:
            responses.close()
