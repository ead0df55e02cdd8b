"""Landed change events as a run of the ``replica`` job applies them to its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules
from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow
from airflow_provider_sfstream.tables.rows.event_batches import WindowReference
from airflow_provider_sfstream.tables.runner.engine import Frame


@dataclass(frozen=True)
class LandedChanges:
    """Landed events to apply.

    :param rows: those to apply, with the number of their window.
    :param span: the sequence of the last event before them, and that of the last of them.
    :param seen: by schema id, the sequences of the first and the last event of these windows that has it.
    :param first_sequences: for each window the sequence of its first event.
    :param refused: why schemas cannot be used, by id.
    :param rules: which fields may not be stored as they come.
    """

    rows: Frame
    span: tuple[int, int]
    seen: Mapping[str | None, tuple[int, int]]
    windows: tuple[LandedWindow, ...]
    first_sequences: tuple[int, ...]
    refused: Mapping[str, str]
    rules: FieldRules = NO_RULES

    @property
    def references(self) -> tuple[WindowReference, ...]:
        """The windows as the quarantine names them."""
        has_rules = bool(self.rules)
        return tuple(
            WindowReference(window.window_id, window.org_id, window.topic, has_rules=has_rules)
            for window in self.windows
        )

    def begun(self) -> dict[str, int]:
        """Return the ordinal of the first event to apply, by window id, where that is not the window's first one."""
        ordinals = {
            window.window_id: self.span[0] + 1 - first
            for window, first in zip(self.windows, self.first_sequences, strict=True)
        }
        return {window_id: ordinal for window_id, ordinal in ordinals.items() if ordinal > 0}

    def newest_last(self, schema_ids: Iterable[str]) -> list[str]:
        """Return those of these schemas that events to apply have, that of the last event at the end."""
        (start, end), seen = self.span, self.seen
        used = [id_ for id_ in schema_ids if id_ in seen and seen[id_][1] > start and seen[id_][0] <= end]
        return sorted(used, key=lambda id_: seen[id_][1])

    def earliest(self) -> datetime:
        """Return a time before which none of the changes was committed."""
        dates = [window.event_dates() for window in self.windows]
        if any(span is None for span in dates):
            return datetime.fromtimestamp(0, UTC)
        return datetime.combine(min(first for first, _ in filter(None, dates)), datetime.min.time(), UTC)

    def since(self) -> str:
        """Return the time of the first event (ISO 8601, UTC)."""
        times = [window.first_event_time for window in self.windows if window.first_event_time is not None]
        return min(times, default=datetime.now(UTC)).astimezone(UTC).isoformat()
