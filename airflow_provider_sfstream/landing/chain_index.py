"""Index of the chain of live windows: a search reads few documents, however many windows were landed.

The index is a skip list. A hash of a window's ID determines its level: one window in 8 has level 1 or more, one in 64
level 2 or more, and so on. A window of level 1 or more begins a stretch of its level: itself and the windows before it,
up to the next window of that level. The document of a stretch lists its parts (windows at level 1, else stretches of
the level below), each with :class:`~airflow_provider_sfstream.landing.window_bounds.Bounds`, and the window before it.

The manifests remain the source of truth. A stretch follows from the manifests of its windows, which are written once,
so that all writers write the same document. Each search begins at the window that the caller names, and reads the
manifest of each window that it returns. If a document is missing or damaged, the search reads the parts instead and
writes the document. If a manifest contradicts a document, the manifest counts. So documents may be lost at any time.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

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
"""Maximum number of windows and stretches that a drain reads to extend the index; a search does the rest."""


class Search(Protocol):
    """Criteria of a search along the chain."""

    def wants(self, bounds: Bounds) -> bool:
        """Return whether a window within ``bounds`` may be a result."""
        ...

    def is_past(self, bounds: Bounds) -> bool:
        """Return whether neither a window within ``bounds`` nor one before it in the chain can be a result."""
        ...


class ChainIndex:
    """Search for live windows along the chain. It writes the documents of the stretches that it has read completely."""

    def __init__(self, catalog: LandingCatalog) -> None:
        self._catalog = catalog
        self._documents: OrderedDict[str, ChainSegment] = OrderedDict()

    def windows(self, stream: Stream, head: str, search: Search, read: set[str] | None = None) -> Iterator[Manifest]:
        """Yield the windows that ``search`` wants, from ``head`` back, newest first; a window may occur repeatedly.

        The chain ends at the first window of the stream, or at a window without a manifest.

        :param read: receives the IDs of all windows whose manifest was read.
        :raises ManifestError: if a manifest is broken, or the links run in a circle.
        :raises LandingError: if a manifest could not be read.
        """
        return _Walk(self, self._catalog, stream, search, set() if read is None else read).windows(head)

    def extend(self, stream: Stream, window_id: str) -> None:
        """Write the documents of the stretches that begin at a window, if any. Failures are only logged."""
        level = level_of(window_id)
        if level == 0:
            return
        try:
            walk = _Walk(self, self._catalog, stream, _Extension(_EXTENSION_LIMIT), set())
            list(walk.windows(window_id, only=True))
        except SalesforceStreamError as error:
            log.info("The index of the windows of %s was not extended at %s: %s", stream, window_id, error)

    def read(self, stream: Stream, level: int, newest: str) -> ChainSegment | None:
        """Return the stretch of ``level`` that begins at ``newest``, ``None`` if it has no usable document."""
        path = self._catalog.landing.chain_index_path(stream, newest, level)
        if path in self._documents:
            self._documents.move_to_end(path)
            return self._documents[path]
        try:
            text = read_if_there(self._catalog.landing.filesystem, path)
            if text is None:
                return None
            stretch = ChainSegment.from_json(text)
            if (stretch.stream, stretch.level, stretch.newest) != (stream, level, newest):
                raise ValueError("it is that of another stretch")
        except (LandingError, ValueError) as error:
            log.warning("%s is not used, and is written anew: %s. No window is lost.", path, error)
            return None
        self._remember(path, stretch)
        return stretch

    def write(self, stretch: ChainSegment) -> None:
        """Write or replace the document of a stretch. Failures are only logged."""
        path = self._catalog.landing.chain_index_path(stretch.stream, stretch.newest, stretch.level)
        try:
            with storage_errors(f"{path} could not be written"):
                replace_file(self._catalog.landing.filesystem, path, stretch.to_json().encode())
        except LandingError as error:
            log.info("%s", error)
        self._remember(path, stretch)

    def _remember(self, path: str, stretch: ChainSegment) -> None:
        self._documents[path] = stretch
        self._documents.move_to_end(path)
        if len(self._documents) > _DOCUMENTS_IN_MEMORY:
            self._documents.popitem(last=False)


class _ChainEndError(Exception):
    """End of a walk: the chain ends here, or no earlier window can be a result."""


class _ContradictionError(Exception):
    """Difference between a part of a stretch and the document of the stretch."""


_Passed = Generator[Manifest, None, tuple[Bounds, str | None]]
"""Generator that yields the wanted windows of a part of the chain; returns its bounds and the window before it."""


@dataclass(frozen=True)
class _Walk:
    index: ChainIndex
    catalog: LandingCatalog
    stream: Stream
    search: Search
    read: set[str]

    def windows(self, head: str, *, only: bool = False) -> Iterator[Manifest]:
        """Walk back from ``head``; with ``only`` no further than the stretch that begins at ``head``."""
        passed: set[str] = set()
        window_id: str | None = head
        try:
            while window_id is not None:
                self._check_new(window_id, passed)
                _, window_id = yield from self._part(level_of(window_id), window_id)
                if only:
                    return
        except _ChainEndError:
            return

    def _part(self, level: int, newest: str) -> _Passed:
        if level == 0:
            return (yield from self._window(newest))
        stretch = self.index.read(self.stream, level, newest)
        if stretch is not None:
            try:
                yield from self._wanted_of(stretch)
                return stretch.bounds, stretch.before
            except _ContradictionError as error:
                log.warning("The index of the windows of %s is written anew at %s: %s", self.stream, newest, error)
        stretch = yield from self._without_document(level, newest)
        self.index.write(stretch)
        return stretch.bounds, stretch.before

    def _without_document(self, level: int, newest: str) -> Generator[Manifest, None, ChainSegment]:
        parts: list[Part] = []
        passed: set[str] = set()
        window_id: str | None = newest
        while window_id is not None and (not parts or level_of(window_id) < level):
            self._check_new(window_id, passed)
            bounds, before = yield from self._part(level - 1, window_id)
            parts.append(Part(window_id, bounds))
            window_id = before
        if window_id is not None:
            self._check_new(window_id, passed)
        return ChainSegment(self.stream, level, tuple(parts), window_id)

    def _wanted_of(self, stretch: ChainSegment) -> Iterator[Manifest]:
        if self.search.is_past(stretch.bounds):
            raise _ChainEndError
        if not self.search.wants(stretch.bounds):
            return
        following = [*(part.newest for part in stretch.parts[1:]), stretch.before]
        for part, before in zip(stretch.parts, following, strict=True):
            if self.search.is_past(part.bounds):
                raise _ChainEndError
            if self.search.wants(part.bounds):
                found = yield from self._part(stretch.level - 1, part.newest)
                if found != (part.bounds, before):
                    raise _ContradictionError(f"{part.newest} is not as it was when the document was written")

    def _window(self, window_id: str) -> _Passed:
        manifest = self.catalog.read_manifest(self.stream, window_id)
        if manifest is None:
            self.catalog.log_end(self.stream, window_id)
            raise _ChainEndError
        self.read.add(window_id)
        bounds = Bounds.from_manifest(manifest)
        if self.search.is_past(bounds):
            raise _ChainEndError
        if self.search.wants(bounds):
            yield manifest
        return bounds, manifest.window.previous_window_id

    def _check_new(self, window_id: str, passed: set[str]) -> None:
        if window_id in passed:
            raise ManifestError(f"The windows of {self.stream} name each other in a circle at {window_id}.")
        passed.add(window_id)


@dataclass
class _Extension:
    """Search for no window, which ends after ``limit`` windows and stretches."""

    limit: int

    def wants(self, bounds: Bounds) -> bool:
        return False

    def is_past(self, bounds: Bounds) -> bool:
        self.limit -= 1
        return self.limit < 0
