"""One stream's part of a run: from its new windows to the new state of every table that their events change."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.privacy.field_rules import NO_SUCH_FIELD, Coverage, unmet
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_to_text
from airflow_provider_sfstream.tables.event_log.table_plans import Schemas, read_schemas
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE, Quarantine
from airflow_provider_sfstream.tables.replica.change_blocks import apply_changes
from airflow_provider_sfstream.tables.replica.delta_sink import DeltaSink
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, Flag, Snapshot, StreamState, TableState
from airflow_provider_sfstream.tables.replica.table_fields import under_rules
from airflow_provider_sfstream.tables.replica.transactions import SEEN, last_transaction, seen_sequences
from airflow_provider_sfstream.tables.replica.windows import (
    AT_THE_END,
    LandedChanges,
    SeenSchema,
    UnappliedWindow,
    numbered,
    stream_key,
)
from airflow_provider_sfstream.tables.rows.hidden_values import coverage_of, hidden_columns
from airflow_provider_sfstream.tables.rows.replica_columns import entity_of, replica_columns
from airflow_provider_sfstream.tables.runner.engine import Frame

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.delta.landed_windows import TextFiles
    from airflow_provider_sfstream.tables.replica.config import ReplicaConfig, ReplicaMetrics
    from airflow_provider_sfstream.tables.replica.windows import ReadManifest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Landed:
    """Window with rows, and the sequence numbers of its events."""

    manifest: Manifest
    place: AppliedWindow


@dataclass(frozen=True)
class _Survey:
    """Content of the landed rows: the events of each schema, the last event's sequence number and replay ID (hex), and
    the sequence number of the last repeated event, up to which all events were applied before."""

    seen: dict[str | None, SeenSchema]
    last: tuple[int, str]
    repeated_through: int | None


class StreamRun:
    """Application of new windows of one stream.

    :param new: the windows, in the order of the stream, starting after the last window of ``snapshot``.
    :param read: reads the manifest of another window.
    """

    def __init__(
        self,
        sink: DeltaSink,
        quarantine: Quarantine,
        snapshot: Snapshot,
        new: Sequence[UnappliedWindow],
        read: ReadManifest,
        config: ReplicaConfig,
    ) -> None:
        self._sink, self._quarantine = sink, quarantine
        self._snapshot, self._new, self._read, self._config = snapshot, new, read, config
        self._key = stream_key(new[0].manifest)
        before_first = AppliedWindow("", "", first_sequence=1, event_count=0)
        stream = vars(new[0].manifest.stream)
        self._state = snapshot.streams.get(self._key) or StreamState(**stream, last=before_first, through=None)

    def run(self, metrics: ReplicaMetrics) -> Snapshot:
        """Return the next snapshot."""
        new_windows = [unapplied.manifest for unapplied in self._new]
        before, newest = self._state, new_windows[-1]
        places = numbered((manifest.window for manifest in new_windows), before.next_sequence)
        new = [item for item in map(_Landed, new_windows, places) if item.manifest.window.event_count]
        metrics.windows += [place.window_id for place in places]
        metrics.events += sum(place.event_count for place in places)
        changed: dict[str, TableState] = {}
        start = end = before.applied_sequence
        applied_id, transaction = before.applied_replay_id, before.held_transaction
        if (before.held or new) and not self._extends_held(new, newest):
            with_rows = [*(_Landed(self._read(place.manifest_url), place) for place in before.held), *new]
            rows = self._rows(with_rows)
            survey = self._survey(rows, with_rows)
            start = max(start, survey.repeated_through or 0)
            windows = [item.manifest for item in with_rows]
            schemas = _event_schemas(self._sink.engine.landing, windows)
            through, transaction = self._end(with_rows, schemas, start, newest, survey)
            end = start
            if through is not None:
                end, applied_id = through
                changes = LandedChanges(
                    rows=rows,
                    span=(start, end),
                    seen=survey.seen,
                    first_sequences=_first_sequences(with_rows),
                    windows=tuple(windows),
                    refused=schemas.refused,
                    rules=self._config.rules,
                    batch_bytes=self._config.batch_bytes,
                )
                changed = self._apply(changes, schemas, metrics)
        changed = self._flag_breaks(changed, places, start)
        state = replace(
            before,
            last=places[-1],
            through=replay_id_to_text(newest.window.through),
            applied_sequence=end,
            applied_replay_id=applied_id,
            held=tuple(each for each in (*before.held, *(item.place for item in new)) if each.last_sequence > end),
            held_transaction=transaction,
            recent=(*before.recent, *(place.window_id for place in places)),
        )
        return self._snapshot.next({self._key: state}, changed, datetime.now(UTC))

    def _rows(self, landed: Sequence[_Landed]) -> Frame:
        return self._sink.engine.landed_rows([each.manifest for each in landed], verify=self._config.verify_files)

    def _survey(self, rows: Frame, landed: Sequence[_Landed]) -> _Survey:
        """Read the narrow columns once; check the numbers of rows against the manifests."""
        applied = bytes.fromhex(self._state.applied_replay_id or "")
        counted: Counter[int] = Counter()
        seen: dict[str | None, SeenSchema] = {}
        narrow = rows.select("schema_id", "window", "ordinal", "replay_id")
        lines = narrow.map_batches(seen_sequences(applied, _first_sequences(landed)), SEEN).collect()
        for row in lines:
            counted[row["window"]] += row["rows"]
            former = seen.get(row["schema_id"], SeenSchema(0, row["first"], row["last"]))
            seen[row["schema_id"]] = SeenSchema(
                former.count + row["rows"], min(former.first, row["first"]), max(former.last, row["last"])
            )
        for number, item in enumerate(landed):
            if counted[number] != item.place.event_count:
                raise ConfigurationError(
                    f"Window {item.place.window_id}: its files have {counted[number]} rows, but its manifest records "
                    f"{item.place.event_count} events. The files were changed after landing. Nothing was published."
                )
        last = max((row["last"], bytes(row["last_id"]).hex()) for row in lines)
        repeated = (row["again"] for row in lines if row["again"] is not None)
        return _Survey(seen, last, max(repeated, default=None))

    def _extends_held(self, new: Sequence[_Landed], newest: Manifest) -> bool:
        """Return whether new windows only extend the transaction that several windows hold back. Nothing can be applied
        then, and a transaction of many windows would take quadratic time if each run read all of them again."""
        state = self._state
        if len(state.held) < 2 or newest.stop_reason in AT_THE_END:
            return False
        if not new:
            return True
        survey = self._survey(self._rows(new), new)
        if survey.repeated_through is not None:
            return False
        schemas = _event_schemas(self._sink.engine.landing, [item.manifest for item in new])
        through, transaction = self._end(new, schemas, state.applied_sequence, newest, survey)
        return through is None and transaction in (None, state.held_transaction)

    def _end(
        self, landed: Sequence[_Landed], schemas: Schemas, start: int, newest: Manifest, survey: _Survey
    ) -> tuple[tuple[int, str] | None, str | None]:
        """Return sequence number and replay ID of the last event to apply (``None``: none after ``start``), and the key
        of the transaction after it. It is the last landed event, if no limit ended the drain."""
        if newest.stop_reason in AT_THE_END:
            return survey.last if survey.last[0] > start else None, None
        later = (item for item in reversed(landed) if item.place.last_sequence > start)
        unapplied = ((self._rows([item]), item.place.first_sequence, start) for item in later)
        return last_transaction(unapplied, schemas.usable())

    def _apply(self, changes: LandedChanges, schemas: Schemas, metrics: ReplicaMetrics) -> dict[str, TableState]:
        """Apply events to their tables; return the tables that changed."""
        tables = self._tables_of(schemas, changes)
        self._warn_of_unmet(tables)
        applied, quarantined, without_schema = apply_changes(self._sink, tables, changes, self._quarantine.location)
        changed: dict[str, TableState] = {}
        for name, (table, result) in applied.items():
            changed[name], of_table = table, metrics.of_table(name)
            of_table.rows += result.rows
            of_table.deleted += result.deleted
        if without_schema:  # the table of these events is not known
            changed = self._flag_all(changed, Flag("undecodable", changes.since(), changes.span[1]))
        self._quarantine.replace({window.partition for window in changes.references}, quarantined)
        if count := sum(file.rows for file in quarantined):
            log.warning("%d events could not be read. They were written to %s.", count, QUARANTINE_TABLE)
            metrics.quarantined += count
        return changed

    def _tables_of(self, schemas: Schemas, changes: LandedChanges) -> dict[str, tuple[TableState, dict[str, str]]]:
        """Return the tables that events are for, each with their schemas by ID, that of the last event at the end.

        :raises ConfigurationError: if a table belongs to another stream, or has values that the field protection rules
            forbid.
        """
        tables: dict[str, tuple[TableState, dict[str, str]]] = {}
        for name, ids in schemas.tables.items():
            used = {id_: ids[id_] for id_ in changes.newest_last(ids)}
            if not used:
                continue
            table = self._snapshot.tables.get(name)
            if table is None:
                flag = Flag("new", changes.since(), changes.span[0])
                table = TableState(self._key, flag=flag, deletes=self._config.deletes or "soft")
            if table.stream != self._key:
                raise ConfigurationError(
                    f"The replica table {name} belongs to the stream {table.stream}, these windows to {self._key}. "
                    "Events of two streams have no common order: set a separate output_url for each. Nothing was "
                    "published."
                )
            table = under_rules(name, table, self._config.rules, used.values())
            if self._config.history and table.history is None:
                table = replace(table, history=-1)
            tables[name] = (table, used)
        self._sink.check({name: table for name, (table, _) in tables.items()})
        return tables

    def _warn_of_unmet(self, tables: Mapping[str, tuple[TableState, Mapping[str, str]]]) -> None:
        coverages: list[Coverage] = []
        for name, (table, ids) in tables.items() if self._config.rules else ():
            coverages.append(coverage_of(self._config.rules, name, ids.values()))
            # Each lookup records in the coverage which rules match a field; the results are not needed.
            for text in ids.values():
                hidden_columns(coverages[-1], text)
            for column in table.computed.columns:
                coverages[-1].treatment_of((column,))
        if missing := unmet(self._config.rules, coverages) if coverages else []:
            log.warning(NO_SUCH_FIELD, ", ".join(missing))

    def _flag_breaks(
        self, changed: dict[str, TableState], places: Sequence[AppliedWindow], start: int
    ) -> dict[str, TableState]:
        """Flag every table of the stream if events before a window are missing. New tables are flagged already."""
        for unapplied, place in zip(self._new, places, strict=True):
            # If the applied events are repeated after the break, no event is missing.
            if unapplied.breaks and place.first_sequence > start and self._state.recent:
                since = unapplied.manifest.window.first_event_time or datetime.now(UTC)
                log.warning(
                    "Events before window %s are missing. Flagged all tables of %s.", place.window_id, self._key
                )
                flag = Flag("gap", since.astimezone(UTC).isoformat(), place.first_sequence)
                changed = self._flag_all(changed, flag)
        return changed

    def _flag_all(self, changed: dict[str, TableState], flag: Flag) -> dict[str, TableState]:
        tables = {name: table for name, table in self._snapshot.tables.items() if table.stream == self._key} | changed
        return {name: table.flagged(flag) for name, table in tables.items()}


def _first_sequences(landed: Sequence[_Landed]) -> tuple[int, ...]:
    return tuple(each.place.first_sequence for each in landed)


def _event_schemas(files: TextFiles, windows: Iterable[Manifest]) -> Schemas:
    """Return the schemas of change events of windows, by replica table and ID."""
    landed = read_schemas(files, windows)
    schemas = Schemas(refused=landed.refused)
    for schema_id, text in sorted(pair for ids in landed.tables.values() for pair in ids.items()):
        try:
            replica_columns(text)
            schemas.tables.setdefault(entity_of(json.loads(text)), {})[schema_id] = text
        except ValueError as error:
            schemas.refused[schema_id] = f"schema {schema_id} cannot be used: {error}"
    return schemas
