"""All probes, in the order in which they run."""

from __future__ import annotations

from live_check.probe import Probe
from live_check.probes import change_events, expired, filtered, managed, refusals, rest, streaming, streams, waits

PROBES: tuple[Probe, ...] = tuple(
    probe
    for room in (streams, refusals, managed, change_events, streaming, filtered, rest, waits, expired)
    for probe in room.PROBES
)
