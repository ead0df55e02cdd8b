"""Evidence that a stream was not reset: Salesforce still reads a recorded position that is younger than the retention.

From the earliest event on, a drain cannot notice that the events before it were lost with a reset.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from airflow_provider_sfstream.exceptions import ReplayIdLostError, SalesforceStreamError
from airflow_provider_sfstream.streams.source import EventSource, Responses

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05


class ReadablePosition:
    """An ordinary subscription at a recorded position, for one event, beside the drain.

    Its silence is no evidence. A context manager, which opens the subscription and ends it.

    :param replay_id: the recorded position.
    :param may_have_aged_out: whether its age is not known: then its refusal is no evidence of a reset.
    :raises ReplayIdLostError: when it is opened, or later: Salesforce refuses the position, which cannot have aged out.
    """

    def __init__(self, source: EventSource, topic: str, replay_id: bytes, *, may_have_aged_out: bool) -> None:
        self._topic = topic
        self._may_have_aged_out = may_have_aged_out
        self._responses: Responses = source.subscribe(topic, replay_id, limit=1, idle_timeout=_LOOK_SECONDS)
        self._is_read: bool | None = None

    def __enter__(self) -> Self:
        self._look()  # opened now, so that it is answered during the drain
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._responses.close()

    def is_read(self, seconds: float) -> bool:
        """Return whether Salesforce reads the position: whether a response arrives within ``seconds``.

        :raises ReplayIdLostError: Salesforce refuses it, and it cannot have aged out.
        """
        waited = 0.0
        while self._is_read is None and waited < seconds:
            self._look()
            waited += _LOOK_SECONDS
        return bool(self._is_read)

    def _look(self) -> None:
        """Take one response. A fault, or an end without a response, is no evidence."""
        try:
            self._is_read = None if next(self._responses) is None else True
        except (SalesforceStreamError, StopIteration) as error:
            if isinstance(error, ReplayIdLostError) and not self._may_have_aged_out:
                raise
            log.info("%s: it is not known whether the recorded position can be read: %s", self._topic, error)
            self._is_read = False
