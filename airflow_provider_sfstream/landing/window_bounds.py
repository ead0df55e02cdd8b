"""Time bounds of windows, with which a search skips windows; and the documents of the index of a chain: segments of
live windows, each with the bounds of its times. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.landing.documents import from_document, to_document
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream

Hull = tuple[datetime | None, datetime]
"""First and last time of a window, for :func:`overlaps`; ``None``: no first time is recorded."""


def overlaps(window: ReplayWindow, start: datetime, end: datetime) -> bool:
    """Return whether the window covers a part of ``[start, end)``, or holds an event that may count in it."""
    covered_from, covered_until = window.covered_from, window.covered_until
    if covered_from is not None and covered_until is not None and max(covered_from, start) < min(covered_until, end):
        return True
    if window.event_count == 0:
        return False
    if window.contact_at is not None:
        return window.contact_at >= start and (window.counts_from is None or window.counts_from < end)
    first, last = window.first_event_time, window.last_event_time
    return first is not None and last is not None and first < end and last >= start


def hull_of(window: ReplayWindow) -> Hull | None:
    """Return bounds that include every span that :func:`overlaps` accepts for the window; ``None`` if there is none."""
    hulls: list[Hull] = []
    covered_from, covered_until = window.covered_from, window.covered_until
    if covered_from is not None and covered_until is not None and covered_from < covered_until:
        hulls.append((covered_from, covered_until))
    if window.event_count and window.contact_at is not None:
        hulls.append((window.counts_from, window.contact_at))
    elif window.event_count and window.first_event_time is not None and window.last_event_time is not None:
        hulls.append((window.first_event_time, window.last_event_time))
    return _common_hull(hulls)


def end_of(window: ReplayWindow) -> datetime | None:
    """Return the end time of the window, ``None`` if it is not recorded or no replay ID exists to resume from."""
    return None if window.through is None else window.contact_at or window.last_event_time


def end_before(window: ReplayWindow, time: datetime) -> datetime | None:
    """Return the end time of the window, ``None`` if it is not before ``time``, or the window has no replay ID."""
    end = end_of(window)
    if end is None or end > time or (end == time and window.contact_at is None):
        return None
    return end


_OLDEST_EVENT = timedelta(days=7)
"""Age at the end of the drain beyond which an event has a wrong date: Salesforce retains events for 72 hours, or longer
than documented."""


def event_hours(window: ReplayWindow) -> list[str]:
    """Return the hours from the first to the last event time of the window, as partition keys in UTC.

    Wrong dates are limited: a date after the drain to its end, one a week before it to ``counts_from``. Events without
    a known time may be of any hour between these two.
    """
    first, last = window.first_event_time, window.last_event_time
    end = window.contact_at or last
    if window.event_count == 0 or end is None:
        return []
    oldest = end - _OLDEST_EVENT
    begin = max(window.counts_from or oldest, oldest)
    first = begin if first is None or first < oldest else min(first, end)
    last = max(first, end if last is None else min(last, end))
    hour = _utc(first).replace(minute=0, second=0, microsecond=0)
    return [hour_key(hour + timedelta(hours=n)) for n in range((_utc(last) - hour) // timedelta(hours=1) + 1)]


def hour_key(time: datetime) -> str:
    """Return the partition key of a time in the format that Airflow's mappers of times read; keys sort by time."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


@dataclass(frozen=True)
class Bounds:
    """Bounds of the times of one window, or of several.

    :param finished: end of the last of them: the latest of the worker's, scheduler's and Salesforce's times.
    :param due: the first and the last time that a run of them was due.
    :param hull: bounds of their times, see :func:`hull_of`.
    :param ends: the first and the last time that one of them ended, see :func:`end_of`.
    """

    finished: datetime
    due: tuple[datetime, datetime]
    hull: Hull | None
    ends: tuple[datetime, datetime] | None

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Bounds:
        window = manifest.window
        due, hull, end = window.run.run_after, hull_of(window), end_of(window)
        # A worker's clock may be hours slow; the scheduler's and Salesforce's times of the window correct that.
        finished = max(manifest.finished_at, due, window.contact_at or due)
        return cls(
            finished=_utc(finished),
            due=(_utc(due), _utc(due)),
            hull=None if hull is None else (hull[0] and _utc(hull[0]), _utc(hull[1])),
            ends=None if end is None else (_utc(end), _utc(end)),
        )

    @classmethod
    def around(cls, bounds: Iterable[Bounds]) -> Bounds:
        """Return the common bounds of all of ``bounds``, which must not be empty."""
        return reduce(_common_bounds, bounds)

    def meet(self, start: datetime, end: datetime) -> bool:
        """Return whether :func:`overlaps` may accept one of the windows for ``[start, end)``."""
        return self.hull is not None and self.hull[1] >= start and (self.hull[0] is None or self.hull[0] < end)


def _common_bounds(first: Bounds, second: Bounds) -> Bounds:
    hulls = [hull for hull in (first.hull, second.hull) if hull is not None]
    ends = [end for pair in (first.ends, second.ends) if pair is not None for end in pair]
    return Bounds(
        finished=max(first.finished, second.finished),
        due=(min(first.due[0], second.due[0]), max(first.due[1], second.due[1])),
        hull=_common_hull(hulls),
        ends=(min(ends), max(ends)) if ends else None,
    )


def _common_hull(hulls: list[Hull]) -> Hull | None:
    if not hulls:
        return None
    begins = [begin for begin, _ in hulls if begin is not None]
    return min(begins) if len(begins) == len(hulls) else None, max(end for _, end in hulls)


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


FORMAT, VERSION = "sfstream-window-index", 1

_BITS = 3
"""Bits per level: one window in ``2**_BITS`` has level 1 or more, one in ``2**(2 * _BITS)`` level 2 or more."""
_HIGHEST_LEVEL = 8


@dataclass(frozen=True)
class Part:
    """Part of a segment, from the window ``newest`` back to the next part."""

    newest: str
    bounds: Bounds


@dataclass(frozen=True)
class ChainSegment:
    """Segment of the chain of live windows, newest first. ``before``: the window before it, ``None`` at the first."""

    stream: Stream
    level: int
    parts: tuple[Part, ...]
    before: str | None

    @property
    def newest(self) -> str:
        """Return the window that the segment begins at."""
        return self.parts[0].newest

    @property
    def bounds(self) -> Bounds:
        """Return the common bounds of all of its windows."""
        return Bounds.around(part.bounds for part in self.parts)

    def to_json(self) -> str:
        """Return the document. Equal segments have equal documents."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            **to_document(self),
            "parts": [{"newest": part.newest, **to_document(part.bounds)} for part in self.parts],
        }
        return json.dumps({**content, "sha256": _digest(content)}, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> ChainSegment:
        """Return the segment in a document; raise ``ValueError`` if it is incomplete, or another document."""
        try:
            content: dict[str, Any] = json.loads(text)
            digest = content.pop("sha256")
            if (content["format"], content["version"], digest) != (FORMAT, VERSION, _digest(content)):
                raise ValueError(f"expected an unchanged document of format {FORMAT}, version {VERSION}")
            del content["format"], content["version"]
            content["parts"] = [{"newest": part.pop("newest"), "bounds": part} for part in content["parts"]]
            if not content["parts"]:
                raise ValueError("the segment has no parts")
            return from_document(cls, content)
        except (KeyError, TypeError, AttributeError, RecursionError, SalesforceStreamError) as error:
            raise ValueError(f"a field is missing or has a wrong type ({type(error).__name__}: {error})") from error


def level_of(window_id: str) -> int:
    """Return the level of a window in the index; most have level 0, which begins no segment."""
    number = int.from_bytes(hashlib.sha256(window_id.encode()).digest()[:8])
    zeros = (number & -number).bit_length() - 1 if number else 64
    return min(zeros // _BITS, _HIGHEST_LEVEL)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
