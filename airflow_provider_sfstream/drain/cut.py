"""Cut a batch where the limits say, so that nothing beyond them is stored and the position stays exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_provider_sfstream.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.reading.source import EventBatch

EventTimes = Callable[[Sequence[str], Sequence[bytes]], Sequence[int | None]]
"""Event times of (schema ids, payloads): milliseconds since the epoch, ``None`` where an event has none."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The events of a batch to store, their payload bytes, and the limit that they meet, if any."""

    batch: EventBatch
    payload_bytes: int
    stop: StopReason | None


def cut(batch: EventBatch, limits: DrainLimits, event_count: int, payload_bytes: int, event_times: EventTimes) -> Cut:
    """Return what may still be stored of ``batch`` after ``event_count`` events with ``payload_bytes`` bytes.

    Where several limits meet at one event, ``until`` is the reason: it says that the interval is complete.

    Events with one replay ID stay together, beyond a limit too: whoever goes on after that replay ID gets none of them
    again. Salesforce makes such events of one change of several records, on a channel that enriches them (Change Data
    Capture guide, "Event Enrichment Considerations").
    """
    keep, stop = len(batch), None
    if limits.max_events is not None and event_count + keep >= limits.max_events:
        keep, stop = limits.max_events - event_count, StopReason.MAX_EVENTS
    size = sum(map(len, batch.payloads[:keep]))
    if limits.max_bytes is not None and payload_bytes + size >= limits.max_bytes:
        keep, size = _within_bytes(batch.payloads[:keep], limits.max_bytes - payload_bytes, first=event_count == 0)
        stop = StopReason.MAX_BYTES
    if limits.end is not None:
        end = limits.end.timestamp() * 1_000
        times = event_times(batch.schema_ids, batch.payloads)
        past = next((index for index, time in enumerate(times) if time is not None and time >= end), len(batch))
        if past <= keep and past < len(batch):
            keep, stop = past, StopReason.UNTIL
            size = sum(map(len, batch.payloads[:keep]))
    whole = _whole(batch.replay_ids, keep)
    size += sum(map(len, batch.payloads[keep:whole]))
    return Cut(batch if whole == len(batch) else batch.part(0, whole), size, stop)


def _whole(replay_ids: Sequence[bytes], keep: int) -> int:
    """Return how many events are kept where the last replay ID's events are kept all."""
    while 0 < keep < len(replay_ids) and replay_ids[keep] == replay_ids[keep - 1]:
        keep += 1
    return keep


def _within_bytes(payloads: Sequence[bytes], room: int, *, first: bool) -> tuple[int, int]:
    """Return how many payloads fit into ``room`` bytes, and their size; one always fits when it is the ``first``."""
    keep = size = 0
    for payload in payloads:
        if size + len(payload) > room and not (first and keep == 0):
            break
        keep += 1
        size += len(payload)
    return keep, size
