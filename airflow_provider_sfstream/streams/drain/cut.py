"""Cut of a batch at the limits, so that no event beyond them is stored and the position stays exact."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_sfstream.salesforce.event_time import to_datetime
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.source import EventBatch

log = logging.getLogger(__name__)

EventTimes = Callable[[Sequence[str], Sequence[bytes]], Sequence[int | None]]
"""Event times of (schema IDs, payloads): milliseconds since the epoch, ``None`` where an event has none."""

FARTHEST_AHEAD = timedelta(days=1)
"""An event time farther ahead of Salesforce's clock than this is wrong: the publisher's clock set it."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The events of a batch to store, their payload bytes, and the limit that they meet, if any.

    ``misdated`` is the event time, in milliseconds since the epoch, of the first stored event that did not meet
    ``until`` because its time is too far in the future; ``None`` if there is none.
    """

    batch: EventBatch
    payload_bytes: int
    stop: StopReason | None
    misdated: int | None = None


def cut(
    batch: EventBatch,
    limits: DrainLimits,
    event_count: int,
    payload_bytes: int,
    event_times: EventTimes,
    *,
    now: datetime,
) -> Cut:
    """Return the part of ``batch`` to store after ``event_count`` events with ``payload_bytes`` bytes.

    An event whose time is more than :data:`FARTHEST_AHEAD` after ``now``, the present by Salesforce's clock, does not
    meet ``until``: no later drain could read past it either, and each would succeed without an event.

    If several limits are met at one event, the reason is ``until``, which means that the interval is complete.

    Events with the same replay ID are stored together, even beyond a limit: a reader that resumes after that replay ID
    receives none of them again. Salesforce creates them from one change of several records, on a channel that enriches
    events (Change Data Capture guide, "Event Enrichment Considerations").
    """
    count, stop = len(batch), None
    misdated: dict[int, int] = {}
    if limits.max_events is not None and event_count + count >= limits.max_events:
        count, stop = limits.max_events - event_count, StopReason.MAX_EVENTS
    size = sum(map(len, batch.payloads[:count]))
    if limits.max_bytes is not None and payload_bytes + size >= limits.max_bytes:
        count, size = _within_bytes(batch.payloads[:count], limits.max_bytes - payload_bytes, first=event_count == 0)
        stop = StopReason.MAX_BYTES
    if limits.end is not None:
        end, present = limits.end.timestamp() * 1_000, (now + FARTHEST_AHEAD).timestamp() * 1_000
        times = event_times(batch.schema_ids, batch.payloads)
        late = [(index, time) for index, time in enumerate(times) if time is not None and time >= end]
        until_index = next((index for index, time in late if time <= present), len(batch))
        misdated = {index: time for index, time in late if time > present}
        if until_index <= count and until_index < len(batch):
            count, stop = until_index, StopReason.UNTIL
            size = sum(map(len, batch.payloads[:count]))
    stored_count = _through_replay_id(batch.replay_ids, count)
    size += sum(map(len, batch.payloads[count:stored_count]))
    first_misdated = next((time for index, time in misdated.items() if index < stored_count), None)
    return Cut(batch if stored_count == len(batch) else batch.part(0, stored_count), size, stop, first_misdated)


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


def _through_replay_id(replay_ids: Sequence[bytes], count: int) -> int:
    """Return the number of events to store, so that all events of the last replay ID are stored."""
    while 0 < count < len(replay_ids) and replay_ids[count] == replay_ids[count - 1]:
        count += 1
    return count


def _within_bytes(payloads: Sequence[bytes], room: int, *, first: bool) -> tuple[int, int]:
    """Return the number of payloads that fit into ``room`` bytes, and their size; the ``first`` one always fits."""
    count = size = 0
    for payload in payloads:
        if size + len(payload) > room and not (first and count == 0):
            break
        count += 1
        size += len(payload)
    return count, size
