"""The claims of green runs, each compared with the log of the bus.

Claims are about the time of the bus, whatever clocks the workers had: an event was published *in* a span or an interval
if its time on the bus lies in it. A moment of contact lies less than a minute after an answer that came.

Only a gap accounts for lost events. But a reset that nobody can notice is no fault of a run: what it took away is not
counted where no position from before it is recorded that would be young enough to be read.
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
"""How long an answer takes at most, with the exactness of Salesforce's time."""


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
    _results: dict[Span, set[BusEvent]] = field(default_factory=dict)
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
        return f"{event.place} of {world.time.true(event.published):%d %H:%M:%S.%f}"

    def of_window(self, manifest: Manifest) -> None:
        """Compare what the manifest of a drain that has just ended says of the end."""
        world, through = self.world, manifest.window.through
        if manifest.stop_reason != "caught_up":
            return
        if world.streaming:
            self._claim("streaming", [manifest.window.window_id], "nothing confirms the end of a stream")
        if world.source is None or world.source.opened_at is None or through is None:
            return
        opened_at = world.source.opened_at
        first = max(place_of(through), world.bus.earliest(opened_at))  # what aged out is told by a gap
        ahead = world.bus.after(first, opened_at)
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
        if self.world.streaming:
            self._claim("streaming", [] if end is None else [end], f"window {window.window_id} covers no time")
        if start is None or end is None or not start < end:
            return
        held = self._events_of(chain)
        what = f"window {window.window_id} has all of [{start:%d %H:%M:%S}, {end:%d %H:%M:%S})"
        self._claim("covered", self._missing(start, end, held), what)

    def _missing(self, start: datetime, end: datetime, held: set[BusEvent]) -> list[BusEvent]:
        """Return the events that were published in a span, are not ``held``, and that no gap accounts for."""
        gaps = self._gaps()
        return [
            event
            for event in self._published(start, end)
            if event not in held
            and not any(self._tells_of(gap, event) for gap in gaps)
            and not self._taken_unnoticed(event)
        ]

    def _published(self, start: datetime | None, end: datetime) -> list[BusEvent]:
        """Return the events that were published in a span, so far."""
        world, true = self.world, self.world.time.true
        return [
            event
            for event in world.bus.events
            if event.published <= world.time.seconds
            and (start is None or start <= true(event.published))
            and true(event.published) < end
        ]

    def _taken_unnoticed(self, event: BusEvent) -> bool:
        """Return whether a reset of the stream took the event away, and no recorded position would show that."""
        bus = self.world.bus
        if event.era == bus.era:
            return False
        kept_since = self.world.time.seconds - bus.retention
        places = [place_of(w.through) for w in self.world.recorded() if w.kind == "live" and w.through is not None]
        return not any(place[0] < bus.era and seconds_of(place) > kept_since for place in places)

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
        # By Salesforce's clock, or by a worker's where Salesforce's time could not be had.
        shown = [self.world.time.shown(event.published, skew) for skew in (0.0, *self.world.time.skews)]
        return min(shown) <= gap.detected_at + timedelta(minutes=10)

    def _of_chain(self, live: list[ReplayWindow]) -> None:
        landed = [row.event for window in live if window.event_count for row in self.world.rows(window)]
        self._claim("chain", [b for a, b in pairwise(landed) if not a < b], "the order is kept")
        held, gaps = set(landed), self._gaps()
        between = [event for event in self.world.bus.events if landed and landed[0] < event < landed[-1]]
        skipped = [
            event for event in between if event not in held and not any(self._tells_of(gap, event) for gap in gaps)
        ]
        self.lost |= set(skipped)
        self._claim("chain", skipped, "nothing is left out of the live windows without a gap")

    def _of_position(self, live: list[ReplayWindow]) -> None:
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
                and not any(self._tells_of(gap, event) for gap in gaps)
                and not self._taken_unnoticed(event)
            ]
            ahead += [confirmed] if confirmed > world.time.true(world.time.seconds) else []
            self._claim("position", ahead, f"the position was the end of the stream at {confirmed:%d %H:%M:%S}")

    def of_interval(self, outcome: IntervalOutcome, *, live: bool) -> None:
        """Compare what a green interval run says of its interval."""
        world, interval = self.world, outcome.interval
        if live:
            self.intervals.append(interval)
        self._of_result(outcome)
        if outcome.confirmed_at is None:
            return
        if world.streaming:
            self._claim("streaming", [outcome.confirmed_at], f"{interval} is complete")
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
            if not any(self._is_in(event, span) for span in outcome.missing)
        ]
        wrong = [event for event in published if event not in held or (event in counting and not given[event])]
        self._claim("interval", wrong, f"{interval} is complete")

    def _of_result(self, outcome: IntervalOutcome) -> None:
        """Compare the events that count in an interval with those of the other intervals' results."""
        world, interval = self.world, outcome.interval
        self._results[interval] = events = world.result(outcome)
        margin = timedelta(seconds=2)
        around = Span(interval.start - margin, interval.end + margin)
        foreign = [event for event in events if event.is_timed_right and not self._is_in(event, around)]
        self._claim("own", foreign, f"the result of {interval} has its own events only")
        for other, others in self._results.items():
            if other.end <= interval.start or interval.end <= other.start:
                # An event dated outside of when it was published counts in live and in backfill windows differently.
                twice = {event for event in events & others if event.is_timed_right}
                self._claim("own", twice, f"no event counts in {interval} and in {other}")

    def _is_in(self, event: BusEvent, span: Span) -> bool:
        return span.start <= self.world.time.true(event.published) < span.end

    def of_end(self, began: float) -> None:
        """Compare the position with the end of the stream, after a green run in fine weather that ``began`` then."""
        world, position = self.world, self.world.store.read(self.world.stream)
        if position.replay_id is None:
            return
        left, gaps = world.bus.after(place_of(position.replay_id), began), self._gaps()
        left = [event for event in left if not any(self._tells_of(gap, event) for gap in gaps)]
        self.lost |= set(left)
        self._claim("chain", left, "the last run has read everything that was published before it")

    def of_table(self, *, intervals: bool) -> None:
        """Compare, at the end, what Spark has loaded with the live windows: all that counts, each event once."""
        loaded = self.world.table.rows()
        twice = [event for event, count in loaded.items() if count > 1]
        self.twice |= set(twice)
        self._claim("table", twice, "each event is loaded once")
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
        self._claim("table", lost, "what landed and counts is loaded")
