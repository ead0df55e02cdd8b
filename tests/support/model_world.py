"""In-memory model of an org with one object, its change stream, and a replica: it tests the rules of replication.

The replica uses the model of ``replica_model.py``, which other tests compare with the job's merges, and the package's
pure functions for flags, columns and refresh plans. Commit times are from several servers whose clocks differ; all
changes of one record are from the same server.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.refresh.plan import RefreshPlan, fields_of_columns, plan_dirty
from airflow_provider_sfstream.tables.replica.refresh import flag_after
from airflow_provider_sfstream.tables.replica.refresh_document import TableRefresh
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, Flag, Snapshot, StreamState, TableState
from airflow_provider_sfstream.tables.replica.table_fields import with_fields
from tests.support.replica_model import Row, apply_window, refresh_all, refresh_columns, refresh_listed

ORG, SINCE = "00D000000000001AAA", "2026-01-01T00:00:00+00:00"
_DESCRIBED = {"string": "string", "double": "double", "int": "int", "boolean": "boolean"}
_EMPTY = {"string": None, "double": None, "int": None, "boolean": False}


@dataclass
class Event:
    """One event: its operation on a record (``full``, ``patch``, ``delete``, ``gap``) or on the table (``overflow``,
    ``all_records``), and its schema: type and ``doc`` of each field."""

    operation: str
    record_id: str
    values: Row
    commit_time: float
    schema: dict[str, tuple[str, str]]
    is_damaged: bool = False


@dataclass
class Record:
    """A record of the org. Its ``stamp``, the time of the last change, has whole seconds."""

    values: Row
    stamp: int
    is_deleted: bool = False


@dataclass
class ModelOrg:
    """Org that changes its records at random. It publishes an event for a change, but some events lack the new values.

    :param hides: whether the refresh user lacks access to some of the new fields.
    """

    shape: random.Random
    time: int = 100
    schema: dict[str, tuple[str, str]] = field(default_factory=lambda: {"A": ("string", "1"), "B": ("double", "2")})
    records: dict[str, Record] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    counter: int = 2
    hides: bool = False
    hidden: set[str] = field(default_factory=set)

    def change(self) -> None:
        """Make one random change."""
        self.time += self.shape.choice((0, 0, 1, 3))
        acts = (self._create, self._update, self._update, self._update, self._delete, self._undelete, self._purge)
        self.shape.choice((*acts, *acts, self._change_schema, self._change_many))()

    def change_once_more(self) -> None:
        """Create a record with an undamaged event."""
        self._create()
        self.events[-1].is_damaged = False

    def image(self, record_id: str) -> Row | None:
        """Return the current values of a record by field, as a query does; ``None`` if it does not exist."""
        record = self.records.get(record_id)
        if record is None:
            return None
        return {**record.values, "_deleted": record.is_deleted, "_refreshed_at": record.stamp}

    def _clock(self, record_id: str) -> int:
        return self.time + 2 * (int(record_id) % 3)

    def _event(self, operation: str, record_id: str, values: Row) -> None:
        chance = self.shape.random()
        lost = operation in ("full", "patch", "delete") and chance < 0.08
        self.records[record_id].stamp = self._clock(record_id)
        event = Event("gap" if lost else operation, record_id, values, self._clock(record_id) + 0.3, dict(self.schema))
        event.is_damaged = chance > 0.97
        self.events.append(event)

    def _value(self, type_: str) -> Any:
        number = self.shape.randrange(5)
        return {"string": f"t{number}", "double": float(number), "int": number, "boolean": number % 2 == 0}[type_]

    def _some(self, *, deleted: bool) -> str | None:
        ids = [record_id for record_id, record in self.records.items() if record.is_deleted is deleted]
        return self.shape.choice(ids) if ids else None

    def _create(self) -> None:
        record_id = str(len(self.records) + self.counter * 100)
        self.counter += 1
        values = {name: self._value(type_) for name, (type_, _) in self.schema.items()}
        self.records[record_id] = Record(values, 0)
        self._event("full", record_id, dict(values))

    def _update(self, record_id: str | None = None) -> None:
        record_id = record_id or self._some(deleted=False)
        if record_id is not None and self.schema:
            name = self.shape.choice(sorted(self.schema))
            value = self._value(self.schema[name][0])
            self.records[record_id].values[name] = value
            self._event("patch", record_id, {name: value})

    def _delete(self) -> None:
        record_id = self._some(deleted=False)
        if record_id is not None:
            self.records[record_id].is_deleted = True
            self._event("delete", record_id, {})

    def _undelete(self) -> None:
        record_id = self._some(deleted=True)
        if record_id is not None:
            self.records[record_id].is_deleted = False
            self._event("full", record_id, dict(self.records[record_id].values))

    def _purge(self) -> None:
        """Remove a deleted record from the recycle bin, without an event."""
        record_id = self._some(deleted=True)
        if record_id is not None:
            del self.records[record_id]

    def _change_many(self) -> None:
        """Change many records, and publish one event without their values."""
        for record_id in sorted(self.records):
            if self.shape.random() < 0.5 and self.schema:
                name = self.shape.choice(sorted(self.schema))
                self.records[record_id].values[name] = self._value(self.schema[name][0])
                self.records[record_id].stamp = self._clock(record_id)
        operation = self.shape.choice(("overflow", "all_records"))
        self.events.append(Event(operation, "", {}, self.time + 0.3, dict(self.schema)))

    def _change_schema(self) -> None:
        """Add, delete, convert or recreate a field, then create a record, whose event has the new schema."""
        self.counter += 1
        names, chosen = sorted(self.schema), self.shape.random()
        if chosen < 0.4 or not names:
            name, type_ = f"F{self.counter}", self.shape.choice(("boolean", "string", "double"))
            self.schema[name] = (type_, str(self.counter))
            self._fill(name, lambda _: _EMPTY[type_])
            if self.hides and self.shape.random() < 0.3:
                self.hidden.add(name)
        elif chosen < 0.6:
            name = self.shape.choice(names)
            del self.schema[name]
            for record in self.records.values():
                record.values.pop(name)
        elif chosen < 0.8:
            name = self.shape.choice(names)
            type_, doc = self.schema[name]
            new = self.shape.choice(("string", "int")) if type_ == "double" else "string"
            self.schema[name] = (new, doc)
            self._fill(name, lambda value: None if value is None else int(value) if new == "int" else str(value))
        else:
            name = self.shape.choice(names)
            self.schema[name] = (self.schema[name][0], str(self.counter))
            self._fill(name, lambda _: _EMPTY[self.schema[name][0]])
        self._create()

    def _fill(self, name: str, value: Any) -> None:
        for record in self.records.values():
            record.values[name] = value(record.values.get(name))


@dataclass
class ModelReplica:
    """Replica of an org, built from windows of its stream.

    :param position: number of drained events of the stream.
    :param applied: number of applied events, including events drained again.
    """

    org: ModelOrg
    hard: bool
    position: int = 0
    applied: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    table: TableState = field(default_factory=lambda: TableState("stream"))

    def apply(self, count: int) -> None:
        """Apply the next ``count`` events as one window."""
        window = list(enumerate(self.org.events[self.position : self.position + count], self.applied + 1))
        if not window:
            return
        self.position += len(window)
        before, registry = self.table, ColumnRegistry(dict(self.table.columns))
        readable = [(number, event) for number, event in window if not event.is_damaged]
        table = self.table if before.columns else self.table.flagged(Flag("new", SINCE, 1))
        table, field_docs = replace(table, columns=registry.columns), []
        changes = []
        for number, event in readable:
            wanted = [(name, type_) for name, (type_, _) in event.schema.items()]
            column_of = dict(zip(event.schema, registry.place(wanted, reserved=()), strict=True))
            field_docs.append({column_of[name]: doc for name, (_, doc) in event.schema.items()})
            if event.operation in ("overflow", "all_records"):
                table = table.flagged(Flag(event.operation, SINCE, number))  # type: ignore[arg-type]
                continue
            values = {column_of[name]: value for name, value in event.values.items()}
            changes.append(_change(event, number, values))
        if field_docs:
            table = with_fields("Widget__c", table, before, field_docs, SINCE, window[-1][0])
        if len(readable) < len(window):
            table = table.flagged(Flag("undecodable", SINCE, window[-1][0]))
        apply_window(self.rows, changes, registry.columns, hard=self.hard)
        self.table, self.applied = table, window[-1][0]

    def move_back(self, count: int) -> None:
        """Move the position back by ``count`` events, as after a reset or with overlapping windows."""
        self.position = max(self.position - count, 0)

    def refresh(self) -> Iterator[None]:
        """Run the planned refreshes; yield after each fetched record, so that the caller can change the org."""
        self.table = replace(self.table, dirty=sum(row["_dirty"] for row in self.rows.values()))
        snapshot = Snapshot(1, None, {"stream": self._stream()}, {"T": self.table})
        for planned in plan_dirty(snapshot, None):
            yield from self._refresh(planned)

    def _refresh(self, planned: RefreshPlan) -> Iterator[None]:
        began = self._stream()
        listed = {id_: row["_sequence"] for id_, row in self.rows.items() if row["_dirty"]}
        described = {
            name: _DESCRIBED[type_] for name, (type_, _) in self.org.schema.items() if name not in self.org.hidden
        }
        visible = planned.resolve(described)
        if visible is None:
            return
        planned, fetched = visible, visible.fields(described)
        columns = (*fetched, *(name for name in planned.may_be_gone if name not in fetched))
        images: dict[str, Row] = {}
        for record_id in sorted(listed if planned.mode == "records" else self.org.records):
            image = self.org.image(record_id)
            if image is not None:
                values = {name: image.get(source) for name, source in fetched.items()}
                images[record_id] = values | {name: image[name] for name in ("_deleted", "_refreshed_at")}
            yield
        moved_on = self.applied > began.applied_sequence
        if planned.mode == "full":
            refresh_all(self.rows, images, columns, began.applied_sequence, hard=self.hard, moved_on=moved_on)
        elif planned.mode == "records":
            refresh_listed(self.rows, listed, images, columns, hard=self.hard)
        else:
            refresh_columns(self.rows, images, columns, began.applied_sequence)
        for row in self.rows.values():
            row |= dict.fromkeys(self.table.columns) | row
        refresh = TableRefresh(
            *(planned.mode, columns, (), len(images), "stream"),
            *(began.applied_sequence, began.next_sequence, began.last.window_id, SINCE),
            hidden=planned.hidden(described),
        )
        self.table = replace(self.table, flag=flag_after(self.table.flag, refresh, self._stream()))

    def _stream(self) -> StreamState:
        last = AppliedWindow(f"window-{self.applied}", "", 1, self.applied)
        return StreamState(ORG, "pubsub", "/data/ChangeEvents", "", last, None, self.applied)

    def differences(self) -> list[tuple[str, str, Any, Any]]:
        """Return differences from the org: record ID, column, org value, replica value. ``Id`` marks the whole row."""
        found: list[tuple[str, str, Any, Any]] = []
        expected = {
            record_id: record for record_id, record in self.org.records.items() if not (self.hard and record.is_deleted)
        }
        there = fields_of_columns(
            {name: self.table.columns[name] for name in self.table.fields},
            {name: _DESCRIBED[type_] for name, (type_, _) in self.org.schema.items()},
        )
        for record_id in expected.keys() | self.rows.keys():
            record, row = expected.get(record_id), self.rows.get(record_id)
            if record is None or row is None:
                if row is None or not row["_deleted"] or self.hard:
                    found.append((record_id, "Id", record, row))
                continue
            values = {name: record.values.get(there[name]) if name in there else None for name in self.table.columns}
            values["_deleted"] = record.is_deleted
            found += [
                (record_id, name, value, row.get(name)) for name, value in values.items() if row.get(name) != value
            ]
        return found

    def is_marked_outdated(self, record_id: str, column: str) -> bool:
        """Return whether the replica marks a value as possibly outdated, by a dirty row or a table flag."""
        flag, row = self.table.flag, self.rows.get(record_id)
        if row is not None and row["_dirty"]:
            return True
        return flag is not None and (flag.reason != "schema" or column in flag.columns)


def _change(event: Event, number: int, values: Row) -> Row:
    operation = event.operation
    return {
        "Id": event.record_id,
        "_sequence": number,
        "_operation": operation,
        "_dirty_reason": "gap" if operation == "gap" else None,
        "_set": frozenset() if operation in ("gap", "delete") else frozenset(values),
        "_replay_id": number,
        "_commit_time": event.commit_time,
        "_transaction_key": str(number),
        **(values if operation in ("full", "patch") else {}),
    }
