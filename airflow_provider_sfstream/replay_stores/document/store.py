"""Replay store in Airflow Variables: it needs no setup, and supports one writer for each stream."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    PositionConflictError,
    ReplayStoreCorruptError,
    ReplayStoreError,
)
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.chain_index import ChainIndex
from airflow_provider_sfstream.landing.landed_windows import Head, LandedWindows
from airflow_provider_sfstream.replay_stores.base import (
    Position,
    PositionReset,
    advanced,
    conflict_message,
    require_kind,
    require_not_at_position,
    require_reset,
)
from airflow_provider_sfstream.replay_stores.document.airflow_variables import AirflowVariables, Variables
from airflow_provider_sfstream.replay_stores.document.document import (
    PositionDocument,
    RecordedReset,
    gaps_from_json,
    gaps_to_json,
)
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream
from airflow_provider_sfstream.salesforce.topics import slug

log = logging.getLogger(__name__)

GAPS_KEPT = 50
"""Number of gaps in each Variable. The manifest of a window contains its gap permanently."""
RESETS_KEPT = 20
"""Number of audit records of resets in the Variable."""

_LONGEST_KEY = 250
_GAPS_SUFFIX = ".gaps"
_DESCRIPTION = "Written by airflow-provider-sfstream. To move a position, run ResetReplayPositionOperator."
_Entry = TypeVar("_Entry")


class DocumentReplayStore:
    """Store of each stream's position in one JSON Variable; the manifests of the landing are its windows.

    **One writer.** Variables have no compare-and-set: ``advance`` reads again right before it writes and reads back
    right after, which detects a second writer, except between those steps. Then the later write wins, the window of the
    other stays landed but is never returned, and no event is skipped. Use the table store where two runs can overlap. A
    live window counts as recorded if the links of the manifests reach it from the window that the Variable names; a
    backfill window if its manifest exists.

    Gaps that no live window recorded are in a second Variable, so that a backfill never overwrites the position of a
    concurrent live run.

    :param catalog: the landing's manifests; without it (``None``) only positions, gaps and resets can be used.
    :param variables: the storage of Variables; default: the running Airflow.
    :param clock: returns the present as an aware time.
    """

    compares_and_sets = False

    def __init__(
        self,
        catalog: LandingCatalog | None = None,
        variables: Variables | None = None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._catalog = catalog
        self._index = None if catalog is None else ChainIndex(catalog)
        self._variables = AirflowVariables() if variables is None else variables
        self._clock = clock

    def key(self, stream: Stream) -> str:
        """Return the key of the stream's Variable: ``sfstream_position``, readable topic and subscription, hash of the
        stream."""
        ending = f".{stream.key[:12]}"
        readable = f"sfstream_position.{slug(stream.topic)}.{slug(stream.subscription)}"
        return readable[: _LONGEST_KEY - len(ending) - len(_GAPS_SUFFIX)] + ending

    def read(self, stream: Stream) -> Position:
        return self._load(stream).position

    def advance(self, stream: Stream, expected: Position, window: ReplayWindow) -> Position:
        require_kind(stream, window, "live")
        document = self._load(stream)
        current = document.position
        is_expected = (current.replay_id, current.fence) == (expected.replay_id, expected.fence)
        follows = window.previous_window_id == current.window_id
        # The first window of a stream has no previous window either, and a caller may retry it after a reset.
        follows_reset = current.window_id is None and bool(document.resets)
        is_new = is_expected and follows and not follows_reset
        if not is_new and self._is_recorded(stream, document, window):
            return current
        if not is_expected:
            raise PositionConflictError(conflict_message(stream, expected, current, window))
        if not follows:
            raise ConfigurationError(
                f"{stream}: window {window.window_id} names {window.previous_window_id} as the window before it, but "
                f"the position refers to {current.window_id}. The window was not recorded and the position was not "
                "moved. Drain again from the stored position."
            )
        new_position = advanced(current, window, self._clock())
        gaps = document.gaps
        if window.gap is not None and window.gap not in gaps:
            gaps = self._bounded((*gaps, window.gap), GAPS_KEPT, "gap", self.key(stream))
        new_document = replace(document, position=new_position, run=window.run, gaps=gaps)
        self._store(self.key(stream), new_document.to_json())
        stored_position = self._load(stream).position
        # Another try of the run may have recorded the same window, at another time.
        if _identity(stored_position) != _identity(new_position):
            raise PositionConflictError(conflict_message(stream, expected, stored_position, window))
        if self._index is not None:
            self._index.extend(stream, window.window_id)
            if window.previous_window_id is None:
                self._windows(stream, new_document).begin_index()
        return stored_position

    def record_backfill(self, stream: Stream, window: ReplayWindow) -> None:
        """Check that the window's manifest, which is its record, is in the landing; record its gap.

        :raises ReplayStoreError: if the manifest does not exist.
        """
        require_kind(stream, window, "backfill")
        catalog = self._required_catalog(stream)
        manifest = catalog.read_manifest(stream, window.window_id)
        if manifest is None:
            raise ReplayStoreError(
                f"{stream}: backfill window {window.window_id} has no manifest in the landing, so it cannot be "
                "recorded. The position was not moved. Drain the window again, to the landing that this store reads."
            )
        catalog.backfills.add(manifest)  # an earlier version of this package wrote manifests without entries
        if window.gap is not None:
            self.record_gap(stream, window.gap)

    def windows_of_run(self, stream: Stream, run: RunIdentity) -> list[ReplayWindow]:
        return self._windows(stream, self._load(stream)).of_run(run)

    def windows_overlapping(self, stream: Stream, start: datetime, end: datetime) -> list[ReplayWindow]:
        return self._windows(stream, self._load(stream)).overlapping(start, end)

    def window_before(self, stream: Stream, time: datetime) -> ReplayWindow | None:
        return self._windows(stream, self._load(stream)).before(time)

    def record_gap(self, stream: Stream, gap: Gap) -> None:
        key = self.key(stream) + _GAPS_SUFFIX
        gaps = self._other_gaps(stream)
        if gap not in gaps:
            self._store(key, gaps_to_json(stream, self._bounded((*gaps, gap), GAPS_KEPT, "gap", key)))

    def gaps(self, stream: Stream) -> list[Gap]:
        """Return the most recent gaps (see :data:`GAPS_KEPT`), by the time they were detected."""
        gaps = dict.fromkeys((*self._load(stream).gaps, *self._other_gaps(stream)))
        return sorted(gaps, key=lambda gap: gap.detected_at)

    def reset(self, stream: Stream, replay_id: bytes | None, *, reason: str, updated_by: str) -> Position:
        """Set the position unconditionally, also where the Variable is corrupt."""
        require_reset(stream, replay_id, reason, updated_by)
        now = self._clock()
        try:
            document = self._load(stream)
        except ReplayStoreCorruptError as error:
            log.warning("%s: the reset replaces a position record that cannot be read. %s", stream, error)
            reason = f"{reason} (the previous value was unreadable: {error.__cause__})"
            # The fence is lost too: begin above every fence that was in use.
            document = PositionDocument(stream, Position(fence=int(now.timestamp())))
        previous = document.position
        new_position = Position(replay_id, previous.fence + 1, None, now, updated_by)
        reset = PositionReset(now, updated_by, reason, previous.replay_id, replay_id)
        record = RecordedReset(reset, previous.window_id)
        resets = self._bounded((*document.resets, record), RESETS_KEPT, "audit record of a reset", self.key(stream))
        self._store(self.key(stream), replace(document, position=new_position, run=None, resets=resets).to_json())
        return new_position

    def resets(self, stream: Stream) -> list[PositionReset]:
        """Return the most recent audit records of resets (see :data:`RESETS_KEPT`), oldest first."""
        return [recorded.reset for recorded in self._load(stream).resets]

    def forget_windows(self, stream: Stream, window_ids: Collection[str]) -> None:
        """Check that the position refers to none of them. Their records are the manifests, which the caller deletes."""
        require_not_at_position(stream, self._load(stream).position, window_ids)

    def close(self) -> None:
        """Do nothing: Variables need no open connection."""

    def _load(self, stream: Stream) -> PositionDocument:
        key = self.key(stream)
        text = self._variables.get(key)
        if text is None:
            return PositionDocument(stream)
        try:
            return PositionDocument.from_json(text, stream)
        except ValueError as error:
            remedy = (
                "Restore its previous value, or set the position with ResetReplayPositionOperator; the manifests of "
                "landed windows show each window's replay IDs."
            )
            raise self._corrupt(stream, key, error, remedy) from error

    def _other_gaps(self, stream: Stream) -> tuple[Gap, ...]:
        key = self.key(stream) + _GAPS_SUFFIX
        text = self._variables.get(key)
        try:
            return () if text is None else gaps_from_json(text, stream)
        except ValueError as error:
            remedy = "Restore its previous value, or delete it: it stores no position."
            raise self._corrupt(stream, key, error, remedy) from error

    def _store(self, key: str, text: str) -> None:
        """Write a text, and check that later reads do not return the previous text."""
        before = self._variables.get(key)
        self._variables.set(key, text, _DESCRIPTION)
        if self._variables.get(key) == before != text:
            raise ReplayStoreError(
                f"{self._variables.name(key)} was written, but a read still returns the old value. If it is a "
                "Variable, an environment variable or a secrets backend with precedence over Airflow's database also "
                "defines it: remove it there, then retry. No event is lost."
            )

    def _is_recorded(self, stream: Stream, document: PositionDocument, window: ReplayWindow) -> bool:
        current = document.position
        if current.window_id == window.window_id:
            return window.through in (None, current.replay_id)
        if self._catalog is None:
            return False
        return any(
            recorded.window_id == window.window_id and recorded.through == window.through
            for recorded in self._windows(stream, document).live_of_run(window.run)
        )

    def _windows(self, stream: Stream, document: PositionDocument) -> LandedWindows:
        heads: list[tuple[str | None, datetime | None]] = [(document.position.window_id, None)]
        heads += [(recorded.from_window_id, recorded.reset.reset_at) for recorded in reversed(document.resets)]
        chain_heads = [Head(window_id, left_at) for window_id, left_at in heads if window_id is not None]
        return LandedWindows(self._required_catalog(stream), stream, chain_heads, self._clock(), self._index)

    def _required_catalog(self, stream: Stream) -> LandingCatalog:
        if self._catalog is None:
            raise ConfigurationError(
                f"{stream}: this store reads windows from the landing, but no landing is configured. "
                "Configure the landing that the stream is drained to. Nothing was read or moved."
            )
        return self._catalog

    def _bounded(self, entries: tuple[_Entry, ...], limit: int, noun: str, key: str) -> tuple[_Entry, ...]:
        for entry in entries[:-limit]:
            log.warning(
                "%s stores at most %d; deleting the oldest %s: %s", self._variables.name(key), limit, noun, entry
            )
        return entries[-limit:]

    def _corrupt(self, stream: Stream, key: str, error: ValueError, remedy: str) -> ReplayStoreCorruptError:
        return ReplayStoreCorruptError(
            f"{stream}: {self._variables.name(key)} has no valid document of this package: {error}. Nothing was "
            f"read from Salesforce and nothing was moved. {remedy}"
        )


def _identity(position: Position) -> tuple[bytes | None, int, str | None]:
    return position.replay_id, position.fence, position.window_id
