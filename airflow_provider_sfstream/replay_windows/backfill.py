"""Drains of parts of an interval, separate from the live windows, each as a backfill window of the run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_provider_sfstream.exceptions import ReplayIdLostError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_windows.incremental import tidy
from airflow_provider_sfstream.replay_windows.interval_plan import BusDrain
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.landing import NewWindow, land_window
from airflow_provider_sfstream.replay_windows.positions import ReadablePosition, named_at, named_at_latest
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, window_id_for
from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.source import EventSource, StartFrom

log = logging.getLogger(__name__)

_AGES_OUT_WITHIN = timedelta(hours=1)
"""Minimum time by which a replay ID must be younger than the retention, so that its refusal proves a reset."""


@dataclass
class Backfill:
    """Drains of one run for an interval. The live position is not moved.

    With ``reuse``, windows are adopted that an earlier try of the run landed. ``windows`` returns the recorded windows
    around the interval.
    """

    landed: LandedStream
    run: RunIdentity
    limits: DrainLimits
    reuse: bool
    windows: Callable[[], list[ReplayWindow]]
    now: Callable[[], datetime]

    def __post_init__(self) -> None:
        self.stream, self.catalog, self.store = self.landed.stream, self.landed.catalog, self.landed.store

    def window(self, part: BusDrain, source: EventSource) -> Manifest:
        """Land and record all events after the start of ``part``, and return the manifest."""
        manifest = self._land(part, source)
        self.store.record_backfill(self.stream, manifest.window)
        tidy(self.catalog, manifest)
        return manifest

    def _land(self, part: BusDrain, source: EventSource, *, is_broken: bool = False) -> Manifest:
        """Land all events after ``part.after``: an event that counts in the part may be anywhere after that.

        The window of a stream that ``is_broken``, because it lost events, covers no time of the part.
        """
        window_id = self._window_id(part, part.span.start if self.reuse else self.now())
        manifest = self.landed.manifest(window_id)
        if manifest is not None and self.landed.is_recorded(manifest.window):
            # It is recorded, but the plan drains the part again, because its coverage was not confirmed.
            window_id, manifest = self._window_id(part, self.now()), None
        if manifest is not None:
            log.info("Adopting backfill window %s, which an earlier try finished.", window_id)
            self.catalog.verify(manifest)
            return manifest
        position = part.position
        previous = None if position is None else self.landed.manifest(position.continued_id)
        continued = "" if previous is None else f", after window {previous.window.window_id} of {previous.window.run}"
        log.info("Draining %s of %s from the bus, as a backfill window%s.", part.span, self.stream, continued)
        new = NewWindow(
            stream=self.stream,
            run=self.run,
            window_id=window_id,
            kind="backfill",
            after=StartFrom.EARLIEST if part.after is None else part.after,
            limits=self.limits,
            on_invalid_replay="fail",
            retention=self.landed.retention,
            known_retention=self.landed.known_retention,
            previous=previous,
            previous_window_id=None if previous is None else previous.window.window_id,
            begins_at=None if position is None or previous is not None else position.contact_at,
            published_from=None if position is None else position.published_from,
            unbroken_since=self.landed.unbroken_since(),
            is_broken=is_broken,
        )
        has_start = part.after is not None and (previous is None or previous.window.covered_from is not None)
        has_proof = source.confirms_positions and not is_broken and not has_start
        proof = self._readable_position(source) if has_proof else None
        try:
            if proof is None:
                return land_window(new, source=source, catalog=self.catalog, now=self.now)
            with proof as readable:
                return land_window(replace(new, readable=readable), source=source, catalog=self.catalog, now=self.now)
        except ReplayIdLostError as error:
            if part.after is None and proof is None:
                raise
            if position is not None and not self._is_young(position.named_at):
                log.info("%s: reading %s from the earliest event instead: %s", self.stream, part.span, error)
                return self._land(BusDrain(part.span, None), source)
            # The replay ID is younger than the retention, so it did not age out: the stream was reset.
            log.warning(
                "%s: Salesforce refused a replay ID that it should still retain, so events of %s may be lost. Reading "
                "from the earliest event. %s",
                self.stream,
                part.span,
                error,
            )
            return self._land(BusDrain(part.span, None), source, is_broken=True)

    def _readable_position(self, source: EventSource) -> ReadablePosition | None:
        """Return the recorded position as evidence, ``None`` if it is missing or so old that it may age out."""
        position = self.landed.position()
        if position.replay_id is None:
            return None
        head = self.landed.manifest(position.window_id)
        windows = [*self.windows(), *([] if head is None else [head.window])]
        latest = named_at_latest(windows, position.replay_id)
        retained_from = self.now() - (self.landed.known_retention or LONG_RETENTION)
        if latest is not None and latest < retained_from + _AGES_OUT_WITHIN:
            return None
        is_young = self._is_young(named_at(windows).get(position.replay_id))
        return ReadablePosition(source, self.stream.topic, position.replay_id, may_have_aged_out=not is_young)

    def _is_young(self, time_named: datetime | None) -> bool:
        return time_named is not None and time_named >= self.now() - self.landed.retention + _AGES_OUT_WITHIN

    def _window_id(self, part: BusDrain, start: datetime) -> str:
        # Several parts of an interval can begin after one position: the time distinguishes their windows.
        return window_id_for(self.run, "backfill", part.after, int(start.timestamp() * 1_000))
