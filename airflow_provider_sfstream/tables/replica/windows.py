"""Selection of the windows that a replica must process, from requested and processed windows. Performs no I/O.

The live windows of a stream form a chain: each names the previous one. A replica follows that chain without omissions.
So windows may be requested in any order and repeatedly: processed windows are skipped, and windows between are added.
Backfill windows are skipped too, because the chain contains, or will contain, their events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_provider_sfstream.exceptions import ConfigurationError, ManifestError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_to_text
from airflow_provider_sfstream.salesforce.streams import ReplayWindow
from airflow_provider_sfstream.tables.delta.landed_windows import manifest_url_of
from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from airflow_provider_sfstream.tables.quarantine import replica_partition
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, StreamState
from airflow_provider_sfstream.tables.rows.event_batches import WindowReference
from airflow_provider_sfstream.tables.runner.engine import Frame

log = logging.getLogger(__name__)

ReadManifest = Callable[[str], Manifest]
OlderWindows = Callable[[], Iterable[Sequence[str]]]
AT_THE_END = ("caught_up", "idle")
"""Stop reasons of a drain that did not split a transaction: confirmed end of stream, or no event for a while."""


@dataclass(frozen=True)
class UnappliedWindow:
    """Window to process. ``breaks``: events before it are missing, or may be."""

    manifest: Manifest
    breaks: bool = False


def stream_key(manifest: Manifest) -> str:
    """Return the name of a window's stream in a snapshot."""
    return "|".join(vars(manifest.stream).values())


def check_windows(manifests: Iterable[Manifest]) -> None:
    """Raise a ``ConfigurationError`` if events of a window lack data that an update needs, or are not change events."""
    for manifest in manifests:
        topic, window_id = manifest.stream.topic, manifest.window.window_id
        if manifest.payload_encoding != "avro":
            raise ConfigurationError(
                f"Window {window_id} of {topic} was drained over the Streaming API, whose change events "
                "do not list the fields that became null. Drain the topic with api='pubsub'. Nothing was written."
            )
        if not topic.startswith("/data/"):
            raise ConfigurationError(
                f"{topic} has no change events, which a replica requires. Use a topic such as "
                "/data/AccountChangeEvent or /data/ChangeEvents. Nothing was written."
            )


def new_windows(
    given_windows: Iterable[Manifest], state: StreamState | None, read: ReadManifest, older: OlderWindows = tuple
) -> list[UnappliedWindow]:
    """Return the windows to process, in the order of the stream, so that the replica has all of ``given_windows``.

    :param state: progress of the replica; ``None`` if it has no window of the stream yet. It then starts with the first
        of ``given_windows``.
    :param older: reads the IDs of windows processed before those that the state names, in lists, the newest list first.
        Called only for a window that does not follow the last one.
    :raises ManifestError: if a window between cannot be read, or two windows follow the same one.
    """
    live = {each.window.window_id: each for each in given_windows if each.window.kind == "live"}
    chain = _Chain(state, live, read, older)
    for window_id in sorted(live):
        chain.reach(live[window_id])
    return chain.added


class _Chain:
    """Windows that a replica has, and windows to add to it."""

    def __init__(
        self, state: StreamState | None, given_windows: dict[str, Manifest], read: ReadManifest, older: OlderWindows
    ) -> None:
        self.added: list[UnappliedWindow] = []
        self._state, self._windows_by_name, self._read, self._read_older = state, given_windows, read, older
        self._chain_ids = set(state.recent) if state else set()
        self._last_id = state.last.window_id if state else None

    def reach(self, manifest: Manifest) -> None:
        """Add the missing windows up to that of ``manifest``."""
        window = manifest.window
        if window.window_id in self._chain_ids or (self._seems_old(window) and self._is_behind(window)):
            log.info("Skipped window %s, which was applied before.", window.window_id)
            return
        path, ids = [manifest], {window.window_id}
        while (before := self._previous(path[-1])) is not None:
            if before.window.window_id in ids:
                raise ManifestError(f"The chain of windows before {window.window_id} has a cycle. Nothing was written.")
            path.append(before)
            ids.add(before.window.window_id)
        # The time in an ID may be wrong, so a window that does not continue the chain may be an old one.
        follows = self._last_id is not None and path[-1].window.previous_window_id == self._last_id
        if not follows and not self._seems_old(window) and self._is_behind(window):
            log.info("Skipped window %s, which was applied before.", window.window_id)
            return
        for missing in reversed(path):
            self.added.append(UnappliedWindow(missing, self._breaks(missing.window)))
            self._chain_ids.add(missing.window.window_id)
            self._last_id = missing.window.window_id

    def _previous(self, manifest: Manifest) -> Manifest | None:
        """Return the window before that of ``manifest`` that must be added first, ``None`` if there is none."""
        window_id, name = manifest.window.window_id, manifest.window.previous_window_id
        if name is None or name == self._last_id:
            return None
        if name in self._chain_ids:
            raise ManifestError(
                f"Window {window_id} follows {name}, but the replica has applied another window that follows "
                "it. Only one of the two belongs to the stream; the replay store names it. Nothing was written."
            )
        if name in self._windows_by_name:
            return self._windows_by_name[name]
        return None if self._last_id is None else self._read(manifest_url_of(manifest, name))

    def _breaks(self, window: ReplayWindow) -> bool:
        if window.gap is not None:
            return True
        if self._last_id is None or window.previous_window_id == self._last_id:
            return False
        # A new chain starts: a user set the position, or the replay store was replaced.
        last = self.added[-1].manifest.window if self.added else None
        through = self._state and self._state.through if last is None else replay_id_to_text(last.through)
        return through is None or replay_id_to_text(window.after) != through

    def _seems_old(self, window: ReplayWindow) -> bool:
        """Return whether the window's ID, which begins with a time, is before those that the state names. This only
        decides where to search first, since a clock may have been wrong."""
        return self._state is not None and window.window_id < self._state.recent[0]

    def _is_behind(self, window: ReplayWindow) -> bool:
        """Return whether the window precedes those that the state names."""
        if self._state is None:
            return False
        oldest_id = self._state.recent[0]
        for page in self._read_older():
            if window.window_id in page:
                return True
            oldest_id = page[0]
        # Search before the first window that the replica has processed.
        oldest = manifest_url_of(self._read(self._state.last.manifest_url), oldest_id)
        visited: set[str] = set()
        try:
            before = self._read(oldest)
            while (name := before.window.previous_window_id) is not None and name not in visited:
                if name == window.window_id:
                    return True
                visited.add(name)
                before = self._read(manifest_url_of(before, name))
        except ManifestError:
            pass  # removed since: earlier windows cannot be found
        return False


def numbered(windows: Iterable[ReplayWindow], first_sequence: int) -> list[AppliedWindow]:
    """Return windows with the sequence number of the first event of each."""
    applied = []
    for window in windows:
        applied.append(AppliedWindow(window.window_id, window.manifest_url, first_sequence, window.event_count))
        first_sequence += window.event_count
    return applied


@dataclass(frozen=True)
class SeenSchema:
    """Events of one schema: their number, and the sequence numbers of the first and the last of them."""

    count: int
    first: int
    last: int


@dataclass(frozen=True)
class LandedChanges:
    """Landed events to apply.

    :param span: sequence number of the last event before them, and of the last of them.
    :param seen: events of these windows by schema ID.
    :param first_sequences: sequence number of the first event of each window.
    :param refused: reasons why schemas cannot be used, by ID.
    """

    rows: Frame
    span: tuple[int, int]
    seen: Mapping[str | None, SeenSchema]
    windows: tuple[Manifest, ...]
    first_sequences: tuple[int, ...]
    refused: Mapping[str, str]
    rules: FieldRules = NO_RULES
    batch_bytes: int = BATCH_BYTES

    @property
    def references(self) -> tuple[WindowReference, ...]:
        """Windows as the quarantine names them: the same run, repeated, has the same partitions."""
        ordinals = [max(0, self.span[0] + 1 - first) for first in self.first_sequences]
        return tuple(
            WindowReference(
                replica_partition(manifest.window.window_id, ordinal),
                manifest.stream.org_id,
                manifest.stream.topic,
                has_rules=bool(self.rules),
            )
            for manifest, ordinal in zip(self.windows, ordinals, strict=True)
        )

    def newest_last(self, schema_ids: Iterable[str]) -> list[str]:
        """Return the schemas of ``schema_ids`` that events to apply have, that of the last event at the end."""
        (start, end), seen = self.span, self.seen
        used = [id_ for id_ in schema_ids if id_ in seen and seen[id_].last > start and seen[id_].first <= end]
        return sorted(used, key=lambda id_: seen[id_].last)

    def count(self, schema_ids: Iterable[str]) -> int:
        """Return the number of events of these windows that have one of these schemas."""
        return sum(self.seen[id_].count for id_ in schema_ids if id_ in self.seen)

    def since(self) -> str:
        """Return the time of the first event (ISO 8601, UTC); the current time if no window has a time."""
        times = (manifest.window.first_event_time for manifest in self.windows)
        return min((time for time in times if time is not None), default=datetime.now(UTC)).astimezone(UTC).isoformat()
