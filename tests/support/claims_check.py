"""Comparison of the claims of successful runs with the log of the bus.

Claims are about the time of the bus, independent of the clocks of the workers: an event was published *in* a span or an
interval if its publication time on the bus is in it. A contact time is less than a minute after a received response.

Only a recorded gap accounts for lost events. There is one exception: a run cannot notice a reset of the stream if no
position from before the reset is recorded, or if all of them are expired. Events that such a reset deleted are not
counted as lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_windows.interval import IntervalOutcome
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, Span
from airflow_provider_sfstream.tables.delta.landed_windows import reading_order
from tests.support.claims_bus import BusEvent, place_of, seconds_of
from tests.support.claims_world import World

_ANSWER_TIME = timedelta(minutes=1)
"""Longest time of a response, including the resolution of Salesforce's time."""


def _continued(window: ReplayWindow, recorded: list[ReplayWindow]) -> list[ReplayWindow]:
    """Return a backfill window, and the recorded windows that it continues."""
    before = [each for each in recorded if each.window_id == window.previous_window_id]
    return [window, *(each for earlier in before for each in _continued(earlier, recorded))]


@dataclass
class Claims:
    """Counts of the compared claims by kind, and the false claims with kind and text."""

    world: World
    checked: Counter[str] = field(default_factory=Counter)
    false_claims: list[tuple[str, str]] = field(default_factory=list)
    lost: set[BusEvent] = field(default_factory=set)
    duplicates: set[BusEvent] = field(default_factory=set)
    intervals: list[Span] = field(default_factory=list)
    green_runs: set[str] = field(default_factory=set)
    _results: dict[Span, set[BusEvent]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def _claim(self, kind: str, wrong: Iterable[Any], what: str) -> None:
        self.checked[kind] += 1
        events = list(wrong)
        if events:
            shown = ", ".join(map(self._shown, events[:3]))
            self.false_claims.append((kind, f"{what}: {len(events)} counterexamples, for example {shown}"))

    def _shown(self, event: Any) -> str:
        if not isinstance(event, BusEvent):
            return str(event)
        world = self.world
        return f"{event.place} of {world.time.true(event.published):%d %H:%M:%S.%f}"

    def check_window(self, manifest: Manifest) -> None:
        """Check the stop reason in the manifest of a drain that has just ended."""
        world, through = self.world, manifest.window.through
        if manifest.stop_reason != "caught_up":
            return
        if world.streaming:
            self._claim("streaming", [manifest.window.window_id], "the Streaming API confirms no end of stream")
        if world.source is None or world.source.opened_at is None or through is None:
            return
        opened_at = world.source.opened_at
        first = max(place_of(through), world.bus.earliest(opened_at))  # a gap accounts for expired events
        ahead = world.bus.after(first, opened_at)
        self._claim("caught_up", ahead, f"window {manifest.window.window_id}: through was the end of the stream")

    def check_store(self) -> None:
        """Check the records of the store: the coverage of each new window, the order of live windows, the position."""
        recorded = self.world.recorded()
        live = [window for window in recorded if window.kind == "live"]
        for number, window in enumerate(recorded):
            if window.window_id not in self._seen:
                self._seen.add(window.window_id)
                chain = recorded[: number + 1] if window.kind == "live" else _continued(window, recorded)
                self._check_coverage(window, chain)
        self._check_live_windows(live)
        self._check_position(live)

    def _check_coverage(self, window: ReplayWindow, chain: list[ReplayWindow]) -> None:
        start, end = window.covered_from, window.covered_until
        if self.world.streaming:
            self._claim("streaming", [] if end is None else [end], f"window {window.window_id} claims no coverage")
        if start is None or end is None or not start < end:
            return
        held = self._events_of(chain)
        what = f"window {window.window_id} has all of [{start:%d %H:%M:%S}, {end:%d %H:%M:%S})"
        self._claim("covered", self._missing(start, end, held), what)

    def _missing(self, start: datetime, end: datetime, held: set[BusEvent]) -> list[BusEvent]:
        """Return the events that were published in a span, are not in ``held``, and are in no recorded gap."""
        gaps = self._gaps()
        return [
            event
            for event in self._published(start, end)
            if event not in held
            and not any(self._accounts_for(gap, event) for gap in gaps)
            and not self._was_deleted_unnoticed(event)
        ]

    def _published(self, start: datetime | None, end: datetime) -> list[BusEvent]:
        """Return the events that were published in a span, without future events."""
        world, true = self.world, self.world.time.true
        return [
            event
            for event in world.bus.events
            if event.published <= world.time.seconds
            and (start is None or start <= true(event.published))
            and true(event.published) < end
        ]

    def _was_deleted_unnoticed(self, event: BusEvent) -> bool:
        """Return whether a reset deleted the event and no recorded position can reveal that reset."""
        bus = self.world.bus
        if event.era == bus.era:
            return False
        retained_since = self.world.time.seconds - bus.retention
        places = [place_of(w.through) for w in self.world.recorded() if w.kind == "live" and w.through is not None]
        return not any(place[0] < bus.era and seconds_of(place) > retained_since for place in places)

    def _events_of(self, windows: Iterable[ReplayWindow]) -> set[BusEvent]:
        return {row.event for window in windows if window.event_count for row in self.world.rows(window)}

    def _gaps(self) -> list[Gap]:
        return [gap for gap in self.world.store.gaps(self.world.stream) if gap.after is not None]

    def _accounts_for(self, gap: Gap, event: BusEvent) -> bool:
        """Return whether a recorded gap accounts for the loss of an event."""
        assert gap.after is not None
        if event.place <= place_of(gap.after):
            return False
        if gap.resumed_at is not None:
            return event.place < place_of(gap.resumed_at)
        # The gap's time is Salesforce's or, if that was not available, a worker's.
        shown = [self.world.time.shown(event.published, skew) for skew in (0.0, *self.world.time.skews)]
        return min(shown) <= gap.detected_at + timedelta(minutes=10)

    def _check_live_windows(self, live: list[ReplayWindow]) -> None:
        landed = [row.event for window in live if window.event_count for row in self.world.rows(window)]
        self._claim("chain", [b for a, b in pairwise(landed) if not a < b], "live windows have events in stream order")
        held, gaps = set(landed), self._gaps()
        between = [event for event in self.world.bus.events if landed and landed[0] < event < landed[-1]]
        skipped = [
            event for event in between if event not in held and not any(self._accounts_for(gap, event) for gap in gaps)
        ]
        self.lost |= set(skipped)
        self._claim("chain", skipped, "live windows skip no event without a gap")

    def _check_position(self, live: list[ReplayWindow]) -> None:
        world, position = self.world, self.world.store.read(self.world.stream)
        contact, confirmed = position.contact_at, position.confirmed_at
        if contact is not None:
            late = not any(timedelta(0) <= contact - world.time.true(at) < _ANSWER_TIME for at in world.answers)
            self._claim("position", [contact] if late else [], "the server answered at contact_at")
        if confirmed is None:
            return
        if world.streaming:
            self._claim("streaming", [confirmed], "the position was confirmed")
        if position.replay_id is not None and position.window_id is not None:
            place, gaps = place_of(position.replay_id), self._gaps()
            ahead: list[Any] = [
                event
                for event in self._published(None, confirmed)
                if event.place > place
                and not any(self._accounts_for(gap, event) for gap in gaps)
                and not self._was_deleted_unnoticed(event)
            ]
            ahead += [confirmed] if confirmed > world.time.true(world.time.seconds) else []
            self._claim("position", ahead, f"the position was the end of the stream at {confirmed:%d %H:%M:%S}")

    def check_interval(self, outcome: IntervalOutcome, *, live: bool) -> None:
        """Check the claims of a successful interval run."""
        world, interval = self.world, outcome.interval
        if live:
            self.intervals.append(interval)
        self._check_result(outcome)
        if outcome.confirmed_at is None:
            return
        if world.streaming:
            self._claim("streaming", [outcome.confirmed_at], f"{interval} is complete")
        windows = {window.window_id: window for window in world.recorded()}
        read = {each.manifest.window.window_id: each.manifest.window for each in outcome.windows}
        held = self._events_of((windows | read).values())
        loaded = world.table.rows()
        # The live window of an event decides when it counts. A backfill window decides only if there is no live one.
        deciding = {id_: window for id_, window in windows.items() if window.kind == "live"} | read
        counts_at = {
            row.event: row.counts_at
            for window in sorted(deciding.values(), key=reading_order, reverse=True)
            if window.event_count
            for row in world.rows(window)
        }
        counting = {event for event, time in counts_at.items() if interval.start <= time < interval.end}
        published = [
            event
            for event in self._missing(interval.start, interval.end, set())
            if not any(self._is_in(event, span) for span in outcome.missing)
        ]
        wrong = [event for event in published if event not in held or (event in counting and not loaded[event])]
        self._claim("interval", wrong, f"{interval} is complete")

    def _check_result(self, outcome: IntervalOutcome) -> None:
        """Check that the events of an interval's result were published in it and are in no other interval's result."""
        world, interval = self.world, outcome.interval
        self._results[interval] = events = world.result(outcome)
        margin = timedelta(seconds=2)
        around = Span(interval.start - margin, interval.end + margin)
        foreign = [event for event in events if event.has_correct_event_time and not self._is_in(event, around)]
        self._claim("own", foreign, f"the result of {interval} has its own events only")
        for other, others in self._results.items():
            if other.end <= interval.start or interval.end <= other.start:
                # An event with a wrong event time can count at different times in live and in backfill windows.
                duplicates = {event for event in events & others if event.has_correct_event_time}
                self._claim("own", duplicates, f"no event counts in {interval} and in {other}")

    def _is_in(self, event: BusEvent, span: Span) -> bool:
        return span.start <= self.world.time.true(event.published) < span.end

    def check_end_of_stream(self, began: float) -> None:
        """Check that the position covers all events published before ``began``, the start of a run without faults."""
        world, position = self.world, self.world.store.read(self.world.stream)
        if position.replay_id is None:
            return
        left, gaps = world.bus.after(place_of(position.replay_id), began), self._gaps()
        left = [event for event in left if not any(self._accounts_for(gap, event) for gap in gaps)]
        self.lost |= set(left)
        self._claim("chain", left, "the last run has read all events that were published before it")

    def check_table(self, *, intervals: bool) -> None:
        """Check that the table has each event of the live windows that counts, and each of them once."""
        loaded = self.world.table.rows()
        duplicates = [event for event, count in loaded.items() if count > 1]
        self.duplicates |= set(duplicates)
        self._claim("table", duplicates, "the table has each event once")
        due = {
            row.event: f"{window.run.run_id}, where it counts at {row.counts_at:%d %H:%M:%S}"
            for window in self.world.recorded()
            if window.kind == "live" and window.event_count
            for row in self.world.rows(window)
            if (
                any(span.start <= row.counts_at < span.end for span in self.intervals)
                if intervals
                else window.run.key in self.green_runs
            )
        }
        missing = sorted(due.keys() - loaded.keys())
        self.lost |= set(missing)
        lost = [f"{self._shown(event)} of the window of {due[event]}" for event in missing]
        self._claim("table", lost, "the table has each landed event that counts")
