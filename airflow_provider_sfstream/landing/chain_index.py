"""Index of the chain of live windows: a search reads few documents, however many windows were landed.

The index is a skip list. A hash of a window's ID determines its level: one window in 8 has level 1 or more, one in 64
level 2 or more, and so on. A window of level 1 or more begins a segment of its level: itself and the windows before it,
up to the next window of that level. The document of a segment lists its parts (windows at level 1, else segments of
the level below), each with :class:`~airflow_provider_sfstream.landing.window_bounds.Bounds`, and the window before it.

The manifests remain the source of truth. A segment follows from the manifests of its windows, which are written once,
so that all writers write the same document. Each search begins at the window that the caller names, and reads the
manifest of each window that it returns. If a document is missing or damaged, the search reads the parts instead and
writes the document. If a manifest contradicts a document, the manifest counts. So documents may be lost at any time.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import LandingError, ManifestError, SalesforceStreamError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.storage import read_if_there, replace_file, storage_errors
from airflow_provider_sfstream.landing.window_bounds import Bounds, ChainSegment, Part, level_of
from airflow_provider_sfstream.salesforce.streams import Stream

if TYPE_CHECKING:
    from airflow_provider_sfstream.landing.catalog import LandingCatalog

log = logging.getLogger(__name__)

_DOCUMENTS_IN_MEMORY = 1_000
_EXTENSION_LIMIT = 500
"""Maximum number of windows and segments that a drain reads to extend the index; a search does the rest."""


class Search:
    """Criteria of a search along the chain. This one finds no window, and so writes the whole index."""

    def wants(self, bounds: Bounds) -> bool:
        """Return whether a window within ``bounds`` may be a result."""
        return False

    def is_past(self, bounds: Bounds) -> bool:
        """Return whether neither a window within ``bounds`` nor one before it in the chain can be a result."""
        return False


class ChainIndex:
    """Search for live windows along the chain. It writes the documents of the segments that it has read completely."""

    def __init__(self, catalog: LandingCatalog) -> None:
        self._catalog = catalog
        self._documents: OrderedDict[str, ChainSegment] = OrderedDict()

    def windows(self, stream: Stream, head: str, search: Search, read: set[str] | None = None) -> Iterator[Manifest]:
        """Yield the windows that ``search`` wants, from ``head`` back, newest first; a window may occur repeatedly.

        The chain ends at the first window of the stream, or at a window without a manifest.

        :param read: receives the IDs of all windows whose manifest was read.
        :raises ManifestError: if a manifest is broken, or the links run in a circle.
        """
        return _Walk(self, self._catalog, stream, search, set() if read is None else read).windows(head)

    def extend(self, stream: Stream, window_id: str) -> None:
        """Write the documents of the segments that begin at a window, if any. Failures are only logged."""
        level = level_of(window_id)
        if level == 0:
            return
        try:
            walk = _Walk(self, self._catalog, stream, _Extension(_EXTENSION_LIMIT), set())
            list(walk.windows(window_id, first_segment_only=True))
        except SalesforceStreamError as error:
            log.info("The index of %s was not extended at window %s: %s", stream, window_id, error)

    def read(self, stream: Stream, level: int, newest: str) -> ChainSegment | None:
        """Return the segment of ``level`` that begins at ``newest``, ``None`` if it has no usable document."""
        path = self._catalog.landing.chain_index_path(stream, newest, level)
        if path in self._documents:
            self._documents.move_to_end(path)
            return self._documents[path]
        try:
            text = read_if_there(self._catalog.landing.filesystem, path)
            if text is None:
                return None
            segment = ChainSegment.from_json(text)
            if (segment.stream, segment.level, segment.newest) != (stream, level, newest):
                raise ValueError("it describes another segment")
        except (LandingError, ValueError) as error:
            log.warning("%s is ignored and will be written again: %s. No window is lost.", path, error)
            return None
        self._cache(path, segment)
        return segment

    def write(self, segment: ChainSegment) -> None:
        """Write or replace the document of a segment. Failures are only logged."""
        path = self._catalog.landing.chain_index_path(segment.stream, segment.newest, segment.level)
        try:
            with storage_errors(f"{path} could not be written"):
                replace_file(self._catalog.landing.filesystem, path, segment.to_json().encode())
        except LandingError as error:
            log.info("%s", error)
        self._cache(path, segment)

    def _cache(self, path: str, segment: ChainSegment) -> None:
        self._documents[path] = segment
        self._documents.move_to_end(path)
        if len(self._documents) > _DOCUMENTS_IN_MEMORY:
            self._documents.popitem(last=False)


class _ChainEndError(Exception):
    """End of a walk: the chain ends here, or no earlier window can be a result."""


class _ContradictionError(Exception):
    """Difference between a part of a segment and the document of the segment."""


_PartWindows = Generator[Manifest, None, tuple[Bounds, str | None]]
"""Generator that yields the wanted windows of a part of the chain; returns its bounds and the window before it."""


@dataclass(frozen=True)
class _Walk:
    index: ChainIndex
    catalog: LandingCatalog
    stream: Stream
    search: Search
    read_ids: set[str]

    def windows(self, head: str, *, first_segment_only: bool = False) -> Iterator[Manifest]:
        """Walk back from ``head``; with ``first_segment_only`` no further than the segment that begins at ``head``."""
        passed_ids: set[str] = set()
        window_id: str | None = head
        try:
            while window_id is not None:
                self._check_new(window_id, passed_ids)
                _, window_id = yield from self._part(level_of(window_id), window_id)
                if first_segment_only:
                    return
        except _ChainEndError:
            return

    def _part(self, level: int, newest: str) -> _PartWindows:
        if level == 0:
            return (yield from self._window(newest))
        segment = self.index.read(self.stream, level, newest)
        if segment is not None:
            try:
                yield from self._matching_windows(segment)
                return segment.bounds, segment.before
            except _ContradictionError as error:
                log.warning("The index of %s is written again at window %s: %s", self.stream, newest, error)
        segment = yield from self._build_segment(level, newest)
        self.index.write(segment)
        return segment.bounds, segment.before

    def _build_segment(self, level: int, newest: str) -> Generator[Manifest, None, ChainSegment]:
        parts: list[Part] = []
        passed_ids: set[str] = set()
        window_id: str | None = newest
        while window_id is not None and (not parts or level_of(window_id) < level):
            self._check_new(window_id, passed_ids)
            bounds, before = yield from self._part(level - 1, window_id)
            parts.append(Part(window_id, bounds))
            window_id = before
        # Checked before the document is written: a document must not record a cycle.
        if window_id is not None:
            self._check_new(window_id, passed_ids)
        return ChainSegment(self.stream, level, tuple(parts), window_id)

    def _matching_windows(self, segment: ChainSegment) -> Iterator[Manifest]:
        if self.search.is_past(segment.bounds):
            raise _ChainEndError
        if not self.search.wants(segment.bounds):
            return
        next_windows = [*(part.newest for part in segment.parts[1:]), segment.before]
        for part, before in zip(segment.parts, next_windows, strict=True):
            if self.search.is_past(part.bounds):
                raise _ChainEndError
            if self.search.wants(part.bounds):
                actual = yield from self._part(segment.level - 1, part.newest)
                if actual != (part.bounds, before):
                    raise _ContradictionError(f"{part.newest} differs from its entry in the document")

    def _window(self, window_id: str) -> _PartWindows:
        manifest = self.catalog.read_manifest(self.stream, window_id)
        if manifest is None:
            self.catalog.log_end(self.stream, window_id)
            raise _ChainEndError
        self.read_ids.add(window_id)
        bounds = Bounds.from_manifest(manifest)
        if self.search.is_past(bounds):
            raise _ChainEndError
        if self.search.wants(bounds):
            yield manifest
        return bounds, manifest.window.previous_window_id

    def _check_new(self, window_id: str, passed_ids: set[str]) -> None:
        if window_id in passed_ids:
            raise ManifestError(f"The chain of windows of {self.stream} contains a cycle at window {window_id}.")
        passed_ids.add(window_id)


@dataclass
class _Extension(Search):
    """Search for no window, which ends after ``limit`` windows and segments."""

    limit: int

    def is_past(self, bounds: Bounds) -> bool:
        self.limit -= 1
        return self.limit < 0
