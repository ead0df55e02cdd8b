"""The claims of green runs, each compared with the log of the bus.

Whose clock a claim is about. Spans, intervals and moments are told by workers' clocks. An event was published *in*
one if its time on the bus lies in it by every clock that a worker of the scenario had so far: with one clock that is
exact; where clocks jump between runs by up to an hour, nobody can say more. Claims about the order of the stream, and
about what was the end of it when a subscription was opened, need no clock. A moment of contact is compared with the
answers that came, by the same rule.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from airflow_provider_sfstream.protocol.manifest import Manifest
from airflow_provider_sfstream.protocol.streams import Gap, ReplayWindow, Span
from airflow_provider_sfstream.runs.interval import IntervalOutcome
from airflow_provider_sfstream.spark.storage.landed_windows import reading_order
from tests.support.claims_bus import BusEvent, place_of
from tests.support.claims_world import World

KINDS = ("caught_up", "covered", "interval", "chain", "position", "table")


@dataclass
class Claims:
    """How many claims were compared, and which were false."""

    world: World
    checked: Counter[str] = field(default_factory=Counter)
    false: list[tuple[str, str]] = field(default_factory=list)
    lost: set[BusEvent] = field(default_factory=set)
    twice: set[BusEvent] = field(default_factory=set)
    intervals: list[Span] = field(default_factory=list)
    green_runs: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)

    def _claim(self, kind: str, wrong: Iterable[Any], what: str) -> None:
        self.checked[kind] += 1
        events = list(wrong)
        if events:
            shown = ", ".join(map(self._shown, events[:3]))
            self.false.append((kind, f"{what}: {len(events)} not so, such as {shown}"))

    def _shown(self, event: Any) -> str:
        if not isinstance(event, BusEvent):
            return str(event)
        world = self.world
        return f"{event.place} of {world.time.shown(event.published, world.time.skew):%d %H:%M:%S.%f}"

    def of_window(self, manifest: Manifest) -> None:
        """Compare what the manifest of a drain that has just ended says of the end."""
        world, through = self.world, manifest.window.through
        if manifest.stop_reason != "caught_up" or world.source is None or through is None:
            return
        first = max(place_of(through), world.bus.earliest(world.source.opened_at))  # what aged out is told by a gap
        ahead = world.bus.after(first, world.source.opened_at)
        self._claim("caught_up", ahead, f"window {manifest.window.window_id}: through was the end of the stream")

    def of_store(self) -> None:
        """Compare what the store says: of each new window what it covers, of the chain its order, of the position."""
        recorded = self.world.recorded()
        live = [window for window in recorded if window.kind == "live"]
        for number, window in enumerate(recorded):
            if window.window_id not in self._seen:
                self._seen.add(window.window_id)
                self._of_span(window, recorded[: number + 1] if window.kind == "live" else [window])
        self._of_chain(live)
        self._of_position(live)

    def _of_span(self, window: ReplayWindow, chain: list[ReplayWindow]) -> None:
        start, end = window.covered_from, window.covered_until
        if start is None or end is None or not start < end:
            return
        held = self._events_of(chain)
        what = f"window {window.window_id} has all of [{start:%d %H:%M:%S}, {end:%d %H:%M:%S})"
        self._claim("covered", self._missing(start, end, held), what)

    def _missing(self, start: datetime, end: datetime, held: set[BusEvent]) -> list[BusEvent]:
        """Return the events that were published in a span and are not ``held``. Nobody can know of those that a
        reset of the stream took away before they were read."""
        world = self.world
        return [
            event
            for event in world.bus.events
            if event.published <= world.time.seconds
            and event.era == world.bus.era
            and event not in held
            and world.time.on_all_clocks(event.published, start, end)
            and not any(self._tells_of(gap, event) for gap in self._gaps())
        ]

    def _events_of(self, windows: Iterable[ReplayWindow]) -> set[BusEvent]:
        return {row.event for window in windows if window.event_count for row in self.world.rows(window)}

    def _gaps(self) -> list[Gap]:
        return [gap for gap in self.world.store.gaps(self.world.stream) if gap.after is not None]

    def _tells_of(self, gap: Gap, event: BusEvent) -> bool:
        """Return whether a recorded gap says that the event is lost."""
        assert gap.after is not None
        if event.place <= place_of(gap.after):
            return False
        if gap.resumed_at is not None:
            return event.place < place_of(gap.resumed_at)
        shown = [self.world.time.shown(event.published, skew) for skew in self.world.time.skews]
        return min(shown) <= gap.detected_at + timedelta(minutes=10)

    def _of_chain(self, live: list[ReplayWindow]) -> None:
        landed = [row.event for window in live if window.event_count for row in self.world.rows(window)]
        self._claim("chain", [b for a, b in pairwise(landed) if not a < b], "the order is kept")
        held, gaps = set(landed), self._gaps()
        between = [event for event in self.world.bus.events if landed and landed[0] < event < landed[-1]]
        skipped = [
            event
            for event in between
            if event not in held
            and not any(self._tells_of(gap, event) for gap in gaps)
            and not self._taken_by_a_reset(event, landed)
        ]
        self.lost |= set(skipped)
        self._claim("chain", skipped, "nothing is left out of the live windows without a gap")

    def _taken_by_a_reset(self, event: BusEvent, landed: list[BusEvent]) -> bool:
        """Return whether a reset of the stream took the event away, and the position before it had aged out besides:
        then nobody can know that there was a reset."""
        place = bisect(landed, event)
        before, after = landed[place - 1], landed[place]
        return event.era < after.era and after.published - before.published > self.world.bus.retention

    def _of_position(self, live: list[ReplayWindow]) -> None:
        world, position = self.world, self.world.store.read(self.world.stream)
        contact, confirmed = position.contact_at, position.confirmed_at
        if contact is not None:
            came = [world.time.shown(at, skew) for at in world.answers for skew in world.time.skews]
            late = not any(timedelta(0) <= contact - at < timedelta(seconds=1) for at in came)
            self._claim("position", [contact] if late else [], "the server answered at contact_at")
        if confirmed is not None and position.replay_id is not None and position.window_id is not None:
            ahead = [
                event
                for event in world.bus.after(place_of(position.replay_id), world.time.seconds)
                if world.time.on_all_clocks(event.published, None, confirmed)
                and event.era == world.bus.era
                and not any(self._tells_of(gap, event) for gap in self._gaps())
            ]
            self._claim("position", ahead, f"the position was the end of the stream at {confirmed:%d %H:%M:%S}")

    def of_interval(self, outcome: IntervalOutcome, *, live: bool) -> None:
        """Compare what a green interval run says of its interval."""
        world, interval = self.world, outcome.interval
        if live:
            self.intervals.append(interval)
        if outcome.confirmed_at is None:
            return
        windows = {window.window_id: window for window in world.recorded()}
        read = {each.manifest.window.window_id: each.manifest.window for each in outcome.windows}
        held = self._events_of((windows | read).values())
        given = world.table.rows()
        # An event counts as the live window that has it says, and only without one as a backfill window does.
        telling = {id_: window for id_, window in windows.items() if window.kind == "live"} | read
        counts_at = {
            row.event: row.counts_at
            for window in sorted(telling.values(), key=reading_order, reverse=True)
            if window.event_count
            for row in world.rows(window)
        }
        counting = {event for event, time in counts_at.items() if interval.start <= time < interval.end}
        published = [
            event
            for event in self._missing(interval.start, interval.end, set())
            if not any(self._maybe_in(event, span) for span in outcome.missing)
        ]
        wrong = [event for event in published if event not in held or (event in counting and not given[event])]
        self._claim("interval", wrong, f"{interval} is complete")

    def _maybe_in(self, event: BusEvent, span: Span) -> bool:
        shown = [self.world.time.shown(event.published, skew) for skew in self.world.time.skews]
        return min(shown) < span.end and max(shown) >= span.start

    def of_table(self, *, intervals: bool) -> None:
        """Compare, at the end, what Spark has loaded with the live windows: all that counts, each event once."""
        loaded = self.world.table.rows()
        twice = [event for event, count in loaded.items() if count > 1]
        self.twice |= set(twice)
        self._claim("table", twice, "each event is loaded once")
        due = {
            row.event
            for window in self.world.recorded()
            if window.kind == "live" and window.event_count
            for row in self.world.rows(window)
            if (
                any(span.start <= row.counts_at < span.end for span in self.intervals)
                if intervals
                else window.run.key in self.green_runs
            )
        }
        lost = sorted(due - set(loaded))
        self.lost |= set(lost)
        self._claim("table", lost, "what landed and counts is loaded")
