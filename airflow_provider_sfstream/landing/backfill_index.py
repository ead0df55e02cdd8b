"""Index of backfill windows by day: files named after the times of a window, in the folder of its last day.

The index of the chain cannot have them: no live window names one, and concurrent runs land them.
An entry is written before the manifest of its window, so that every manifest has an entry. A search reads the manifest
of each window that it returns: an entry alone is no window. Manifests of earlier versions of this package have no
entries. A search that finds no mark of a complete index reads all manifests once, writes their entries, then the mark.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import LandingError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.storage import list_folder, newest_days, replace_file, storage_errors
from airflow_provider_sfstream.landing.window_bounds import Bounds, Hull
from airflow_provider_sfstream.salesforce.streams import Stream

if TYPE_CHECKING:
    from airflow_provider_sfstream.landing.location import Landing

log = logging.getLogger(__name__)

BACKFILL_REACH = timedelta(days=5)
"""Longest duration of an ordinary backfill window: Salesforce retains events for 72 hours, the rest is for grace and
clocks. Longer windows have a separate folder, which every search lists."""

_LONG = "long"
_MARK = "complete.json"
_NO_TIME = "any"
_NAME = re.compile(r"([0-9TZ]{16}|any)_([0-9TZ]{16})_([0-9TZ]{16}|any)_([A-Za-z0-9][A-Za-z0-9_-]{7,110})\.json")


@dataclass(frozen=True)
class Entry:
    """A backfill window that may exist, with bounds of its times in whole seconds (see :class:`Bounds`).

    ``end`` is ``None`` if the window has no replay ID to resume from.
    """

    window_id: str
    hull: Hull
    end: datetime | None

    @property
    def name(self) -> str:
        begin, last = self.hull
        return f"{_stamp(begin)}_{_stamp(last)}_{_stamp(self.end)}_{self.window_id}.json"

    @property
    def folder(self) -> str:
        """Return the folder of its file, relative to that of the index."""
        begin, last = self.hull
        is_long = begin is None or last - begin > BACKFILL_REACH
        return _LONG if is_long else f"{last.year:04}/{last:%m/%d}"

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Entry | None:
        """Return the entry of a window, ``None`` if it has no time to search by."""
        bounds = Bounds.from_manifest(manifest)
        ends = [] if bounds.ends is None else [bounds.ends[0]]
        if bounds.hull is None and not ends:
            return None
        begin, last = bounds.hull or (ends[0], ends[0])
        begin = None if begin is None else _second(min([begin, *ends]))
        last = _second(max([last, *ends]))
        return cls(manifest.window.window_id, (begin, last), _second(ends[0]) if ends else None)

    @classmethod
    def named(cls, name: str) -> Entry | None:
        """Return the entry whose file is called ``name``, ``None`` if it is not the name of an entry."""
        match = _NAME.fullmatch(name)
        try:
            last = _time(match[2]) if match else None
            return Entry(match[4], (_time(match[1]), last), _time(match[3])) if match and last else None
        except ValueError:
            return None

    def may_meet(self, start: datetime, end: datetime) -> bool:
        """Return whether the times of the window may overlap ``[start, end)``."""
        begin, last = self.hull  # whole seconds: the time itself may be almost a second later
        return last + timedelta(seconds=1) > start and (begin is None or begin < end)

    def may_end_before(self, time: datetime, after: datetime | None) -> bool:
        """Return whether the window may end before ``time``, and not before ``after``."""
        return self.end is not None and self.end <= time and (after is None or self.end + timedelta(seconds=1) > after)


class BackfillIndex:
    """Entries of the backfill windows of a landing.

    Every method but :meth:`is_complete` raises :class:`LandingError` if the storage cannot be used.
    """

    def __init__(self, landing: Landing) -> None:
        self._landing = landing

    def add(self, manifest: Manifest) -> None:
        """Write the entry of a backfill window, before its manifest."""
        entry, stream = Entry.from_manifest(manifest), manifest.stream
        if entry is None:  # a window without any time matches no search by time
            return
        path = f"{self._landing.backfill_index_folder(stream)}/{entry.folder}/{entry.name}"
        with storage_errors(f"The index entry of window {entry.window_id} of {stream} could not be written"):
            text = json.dumps({"window_id": entry.window_id, "manifest_url": manifest.window.manifest_url}, indent=1)
            replace_file(self._landing.filesystem, path, text.encode())

    def meeting(self, stream: Stream, start: datetime, end: datetime) -> list[str]:
        """Return the sorted IDs of the windows whose times may overlap ``[start, end)``."""
        days = self._newest_days(stream, _utc_day(start), _utc_day(end + BACKFILL_REACH))
        folders = [*(folder for _, folder in days), self._folder(stream, _LONG)]
        entries = [entry for folder in folders for entry in self._entries(stream, folder)]
        return sorted({entry.window_id for entry in entries if entry.may_meet(start, end)})

    def ending_before(self, stream: Stream, time: datetime) -> Iterator[tuple[date | None, list[Entry]]]:
        """Yield the windows that may end before ``time``, by their last day, the newest day first.

        The first item has the windows without a certain day (``None``).
        """
        days = self._newest_days(stream, date.min, _utc_day(time + BACKFILL_REACH))
        for day, folder in chain([(None, self._folder(stream, _LONG))], days):
            yield day, [entry for entry in self._entries(stream, folder) if entry.may_end_before(time, None)]

    def remove(self, stream: Stream, window_ids: Collection[str]) -> None:
        """Remove the entries of removed windows. Lists all days that have entries."""
        removed = frozenset(window_ids)
        days = [folder for _, folder in self._newest_days(stream, date.min, date.max)]
        for folder in (self._folder(stream, _LONG), *days):
            for entry in self._entries(stream, folder):
                if entry.window_id not in removed:
                    continue
                with (
                    storage_errors(f"The index entry of window {entry.window_id} of {stream} could not be removed"),
                    suppress(FileNotFoundError),
                ):
                    self._landing.filesystem.rm_file(f"{folder}/{entry.name}")

    def is_complete(self, stream: Stream) -> bool:
        """Return whether each backfill window has an entry."""
        try:
            with storage_errors(f"The index of {stream} could not be read"):
                return bool(self._landing.filesystem.exists(self._folder(stream, _MARK)))
        except LandingError as error:
            log.info("%s", error)
            return False

    def mark_complete(self, stream: Stream) -> None:
        """Record that each backfill window has an entry."""
        with storage_errors(f"The mark of a complete index of {stream} could not be written"):
            replace_file(self._landing.filesystem, self._folder(stream, _MARK), b'{"version": 1}')

    def _entries(self, stream: Stream, folder: str) -> list[Entry]:
        with storage_errors(f"The index of backfill windows of {stream} could not be listed"):
            entries = map(Entry.named, list_folder(self._landing.filesystem, folder))
            return [entry for entry in entries if entry is not None]

    def _newest_days(self, stream: Stream, first: date, last: date) -> Iterator[tuple[date, str]]:
        with storage_errors(f"The index of backfill windows of {stream} could not be listed"):
            yield from newest_days(self._landing.filesystem, self._landing.backfill_index_folder(stream), first, last)

    def _folder(self, stream: Stream, name: str) -> str:
        return f"{self._landing.backfill_index_folder(stream)}/{name}"


def _second(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=0)


def _stamp(time: datetime | None) -> str:
    return _NO_TIME if time is None else f"{time.year:04}{time:%m%dT%H%M%SZ}"


def _time(stamp: str) -> datetime | None:
    if stamp == _NO_TIME:
        return None
    return datetime.strptime(stamp, "%Y%m%dT%H%M%S%z")


def _utc_day(time: datetime) -> date:
    return time.astimezone(UTC).date()
