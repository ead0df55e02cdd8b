"""Warning about events that are dated in the future."""

from __future__ import annotations

import logging

from airflow_provider_sfstream.salesforce.event_time import to_datetime
from airflow_provider_sfstream.streams.drain.limits import Cut

log = logging.getLogger(__name__)


class MisdatedEventWarning:
    """Warning of a drain about stored events that are too far in the future to meet ``until``, logged once."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._is_logged = False

    def stored(self, part: Cut) -> None:
        """Log the warning if ``part``, which was stored, is the first with a misdated event."""
        if part.misdated is None or self._is_logged:
            return
        self._is_logged = True
        time = to_datetime(part.misdated)
        log.warning(
            "%s: an event has the event time %s, more than a day ahead of the present: its publisher's clock is wrong. "
            "The event was landed and did not end the drain at 'until'. Correct that clock.",
            self._topic,
            f"{part.misdated} ms (after the year 9999)" if time is None else time.isoformat(),
        )
