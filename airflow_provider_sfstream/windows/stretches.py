"""Which stretch of time a drained window answers for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_provider_sfstream.drain.drain import DrainResult
from airflow_provider_sfstream.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.drain.source import StartFrom
from airflow_provider_sfstream.protocol.streams import ReplayWindow, Stream
from airflow_provider_sfstream.protocol.topics import retention


@dataclass(frozen=True)
class Drained:
    """What is known of a drain that has ended: how it began, what it met, and when it ran.

    ``begins_at`` is the time that its start is known to lie before, if it was chosen for that.
    """

    stream: Stream
    start: bytes | StartFrom
    limits: DrainLimits
    result: DrainResult
    first_event_time: datetime | None
    last_event_time: datetime | None
    started_at: datetime
    finished_at: datetime
    begins_at: datetime | None = None


def covered_stretch(drained: Drained, previous: ReplayWindow | None) -> tuple[datetime | None, datetime | None]:
    """Return ``covered_from`` and ``covered_until`` of the window that was drained; see :class:`ReplayWindow`.

    Claims no more than the drain has seen. The end is where an event past ``until`` was met; or, caught up, the time at
    which the drain began, since everything published before it has come; or the last event. The beginning is the end
    of the window before; or as far back as Salesforce keeps events; or, where neither holds (``LATEST``, a replay ID
    from elsewhere, after a gap), the first event.

    :param previous: the window that ended where this one begins, if that is known.
    """
    begin = _begin(drained, previous)
    end = _end(drained)
    if previous is not None and previous.covered_until is not None and drained.result.gap is None:
        end = previous.covered_until if end is None else max(end, previous.covered_until)
    return (begin, end) if begin is not None and end is not None and begin < end else (None, end)


def _begin(drained: Drained, previous: ReplayWindow | None) -> datetime | None:
    if drained.result.gap is not None:
        return drained.first_event_time
    if drained.begins_at is not None:
        return drained.begins_at
    if drained.start is StartFrom.EARLIEST:
        return drained.started_at - retention(drained.stream.topic)
    if previous is not None and previous.covered_until is not None:
        return previous.covered_until
    return drained.first_event_time


def _end(drained: Drained) -> datetime | None:
    if drained.result.stop_reason is StopReason.UNTIL:
        return drained.limits.end
    if drained.result.stop_reason is not StopReason.CAUGHT_UP:
        return drained.last_event_time
    if drained.start in (StartFrom.LATEST, StartFrom.COMMITTED):
        # Pinned after the drain began; what it saw since is that nothing else came.
        return drained.finished_at
    seen = (drained.started_at, drained.limits.stay_until, drained.last_event_time)
    return max(time for time in seen if time is not None)
