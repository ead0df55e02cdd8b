"""Streams, the runs that drain them, replay windows, and spans of time: the keys of all records.

Sets of spans are sorted lists of disjoint, non-touching spans, all in UTC.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.topics import APIS, Api, slug


@dataclass(frozen=True)
class Stream:
    """One consumer's stream of one topic of one org: org id + API + topic + subscription."""

    org_id: str
    api: Api
    topic: str
    subscription: str = "airflow"

    def __post_init__(self) -> None:
        for name in ("org_id", "topic", "subscription"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip() or len(value) > 255:
                raise ConfigurationError(f"{name}={value!r} must be a non-empty text of at most 255 characters.")

    @property
    def key(self) -> str:
        """The stream's identity as a short key of fixed length (64 hex digits)."""
        parts = (self.org_id, self.api, self.topic, self.subscription)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def path(self) -> str:
        """The stream's folder below a landing: ``org/api/topic/subscription``, each a safe segment."""
        return "/".join((slug(self.org_id), self.api, slug(self.topic), slug(self.subscription)))

    @classmethod
    def from_path(cls, path: str) -> Stream | None:
        """Return the stream of a folder; ``None`` if its name does not contain the whole name of a stream."""
        org_id, api, topic, subscription = path.split("/")
        streams = (cls(org_id, each, f"/{topic.replace('.', '/', 1)}", subscription) for each in APIS if each == api)
        return next((stream for stream in streams if stream.path == path), None)

    def __str__(self) -> str:
        return f"{self.topic} (org {self.org_id}, {self.api}, subscription {self.subscription!r})"


@dataclass(frozen=True)
class RunIdentity:
    """The task run that creates a window. All tries of one run share all fields except ``try_number``."""

    dag_id: str
    task_id: str
    run_id: str
    run_after: datetime
    map_index: int = -1
    try_number: int = 1

    @property
    def key(self) -> str:
        """The run's identity, common to its tries, clears and re-runs (64 hex digits)."""
        parts = (self.dag_id, self.task_id, self.run_id, str(self.map_index))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def __str__(self) -> str:
        mapped = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"{self.dag_id}.{self.task_id}{mapped} run {self.run_id} try {self.try_number}"


WindowKind = Literal["live", "backfill"]


@dataclass(frozen=True)
class Gap:
    """A span of a stream that can no longer be read, found at ``detected_at``.

    The lost events follow ``after`` (last event time ``since``, if known) and precede ``resumed_at``, the first replay
    ID that could be read again (``None`` until an event is read).

    ``uncertain``: no event is known to be lost. Example: a position expired on a quiet stream of the Streaming API,
    because no response of that API proves that the stream was quiet.
    """

    after: bytes | None
    resumed_at: bytes | None
    since: datetime | None
    detected_at: datetime
    reason: str
    uncertain: bool = False


@dataclass(frozen=True)
class ReplayWindow:
    """The events after one position up to and including another, ``(after, through]``, durably landed.

    ``after`` is ``None`` if the window began at the beginning of the retained stream (or at a pinned "latest");
    ``through`` is ``None`` if there were no events and no confirmed position. Event times are the smallest and largest
    of the window's events, the smallest not after the first was received, ``None`` for an empty window.
    ``manifest_url`` is the URL of the manifest.

    All other times are Salesforce's, measured during the drain (:class:`ServerTime`); ``None`` where they could not be
    measured. ``[covered_from, covered_until)`` is the span of time that the window covers: every event that was
    published in it is in this window, or in one before it: a live one with the same ``covered_from``, or one that a
    backfill window continues, which is its ``previous_window_id``.
    ``covered_until`` is a lower bound of the moment for which Salesforce confirmed the end of the stream;
    ``covered_from`` is the beginning of that coverage. Either is ``None`` if it is not known.

    ``contact_at`` is an upper bound of the moment at which Salesforce last answered the drain: no event of the window
    was published later. An event *counts* at its event time, but not before ``counts_from``, if that is known, and not
    after it was received: each event counts at one time, in one interval. ``counts_from`` is the end of the previous
    window's reading: no event of this window was published before it, unless it was delivered too late for the run of
    the previous window; then it belongs to this one.
    """

    window_id: str
    kind: WindowKind
    after: bytes | None
    through: bytes | None
    event_count: int
    first_event_time: datetime | None
    last_event_time: datetime | None
    manifest_url: str
    run: RunIdentity
    previous_window_id: str | None = None
    gap: Gap | None = None
    covered_from: datetime | None = None
    covered_until: datetime | None = None
    contact_at: datetime | None = None
    counts_from: datetime | None = None


@dataclass(frozen=True, order=True)
class Span:
    """A span of time, ``[start, end)``, both with a time zone."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.utcoffset() is None or self.end.utcoffset() is None or not self.start < self.end:
            raise ConfigurationError(
                f"[{self.start}, {self.end}) is not a valid span: it needs a time zone, and an end after its start."
            )

    def __str__(self) -> str:
        return f"[{self.start.isoformat()}, {self.end.isoformat()})"


def window_id_for(run: RunIdentity, kind: WindowKind, after: bytes | None, fence: int = 0) -> str:
    """Return the id of the window that ``run`` creates from the position (``after``, ``fence``), equal for all tries.

    It begins with the run's UTC time, so that ids sort by time. The position is part of it: if another run moved the
    position, a try creates another window instead of overwriting one.
    """
    identity = "\0".join((run.key, kind, "" if after is None else after.hex(), str(fence)))
    stamp = run.run_after.astimezone(UTC)
    return f"{stamp:%Y%m%dT%H%M%SZ}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def span_between(start: datetime | None, end: datetime | None) -> Span | None:
    """Return ``[start, end)`` in UTC; ``None`` if an end is not known or the span is empty.

    In UTC, because Python compares two times of one local zone by their wall clocks, which repeat an hour each year.
    """
    if start is None or end is None:
        return None
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    return Span(start, end) if start < end else None


def span_of(window: ReplayWindow) -> Span | None:
    """Return the span of time that ``window`` covers, ``None`` if it is not known or empty."""
    return span_between(window.covered_from, window.covered_until)


def union(spans: Iterable[Span]) -> list[Span]:
    """Return the times that are in any of ``spans``. Adjacent spans are merged; every hole stays, even the smallest."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def clip(spans: Iterable[Span], bounds: Span) -> list[Span]:
    """Return the times that are in any of ``spans`` and in ``bounds``."""
    clipped = (span_between(max(span.start, bounds.start), min(span.end, bounds.end)) for span in spans)
    return union(span for span in clipped if span is not None)


def subtract(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """Return the times that are in any of ``spans`` and in none of ``taken``."""
    remaining = union(spans)
    for cut in union(taken):
        remaining = [
            part
            for span in remaining
            for part in (
                span_between(span.start, min(span.end, cut.start)),
                span_between(max(span.start, cut.end), span.end),
            )
            if part is not None
        ]
    return remaining


def covers(spans: Iterable[Span], span: Span) -> bool:
    """Return whether every time in ``span`` is in one of ``spans``."""
    return not subtract([span], spans)
