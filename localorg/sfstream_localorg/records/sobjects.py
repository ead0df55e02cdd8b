"""Create, update, delete and undelete records, and publish a change event for each change.

Records and their change events are written in one SQLite transaction, so neither exists without the other, even after
a killed process.

Not modelled: validation rules, picklist values, referential integrity, cascading deletes, sharing, triggers, and
fields that Salesforce derives from others (``Opportunity.IsClosed``). An update without a change publishes no event.
"""

from __future__ import annotations

import random
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sfstream_localorg.bus.event_bus import BusEvent, EventBus
from sfstream_localorg.bus.schemas import SchemaRegistry
from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.identifiers import numbered
from sfstream_localorg.records.change_events import (
    Change,
    ChangeEvent,
    ChangeType,
    Rules,
    Transaction,
    all_records_event,
    change_events,
    overflow_event,
)
from sfstream_localorg.records.computed_fields import with_values
from sfstream_localorg.records.entities import Entities
from sfstream_localorg.records.entity import Entity, Record
from sfstream_localorg.records.record_store import RecordStore, StoredRecord
from sfstream_localorg.records.record_values import accept, check_required, defaults, stored_value

_FIRST_COMMIT_NUMBER = 2**53
"""Real commit numbers may exceed the largest exact integer of JavaScript; here they always do."""


@dataclass(frozen=True)
class Operation:
    """Requested change of one record. ``record_id`` is ``None`` for a new record; ``values`` are JSON values."""

    type: ChangeType
    entity: Entity
    record_id: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


class RecordWatcher(Protocol):
    """Observer of record changes. The Streaming API implements it, because records define its channels and events."""

    def check(self, record: StoredRecord, others: Iterable[StoredRecord]) -> None:
        """Validate a record before it is written.

        :param others: the other records of the same transaction.
        :raises ApiError: if the record is invalid.
        """

    def events(self, changes: Sequence[Change], timestamp: int) -> list[BusEvent]:
        """Return the events to publish in addition to change events.

        :param timestamp: time of the transaction in milliseconds since the epoch.
        """

    def written(self, records: Iterable[StoredRecord]) -> None:
        """Process records after they were written."""


class SObjects:
    """All records of one org.

    :param database: the connection of the bus.
    :param clock: returns the time in seconds since the epoch.
    :param event_bytes: returns the maximum size of an event; a larger change becomes a GAP event, as at Salesforce.
    :param overflow_changes: see :class:`~sfstream_localorg.records.change_events.Rules`.
    :param diff_text_characters: see :class:`~sfstream_localorg.records.change_events.Rules`.
    :param watcher: validates each record before it is written, and is notified afterwards.
    :param rng: selects the changes that become GAP events, if :attr:`gap_percent` is not zero.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        bus: EventBus,
        schemas: SchemaRegistry,
        entities: Entities,
        *,
        clock: Callable[[], float],
        event_bytes: Callable[[], int],
        overflow_changes: Callable[[], int] = lambda: 100_000,
        diff_text_characters: Callable[[], int | None] = lambda: None,
        watcher: RecordWatcher | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.entities = entities
        self.gap_percent: dict[str, float] = {}
        self._bus = bus
        self._schemas = schemas
        self._clock = clock
        self._event_bytes = event_bytes
        self._overflow_changes = overflow_changes
        self._diff_text_characters = diff_text_characters
        self._watcher = watcher
        self._rng = rng or random.Random()  # noqa: S311 - chance, not secrets
        self._store = RecordStore(database)

    def get(self, entity: Entity, record_id: str) -> StoredRecord:
        """Return a record.

        :raises ApiError: status 404 with ``NOT_FOUND``, or with ``ENTITY_IS_DELETED`` for a deleted record.
        """
        stored = self._store.get(record_id)
        if stored is None or stored.entity != entity.name:
            raise not_found()
        if stored.is_deleted:
            raise ApiError("ENTITY_IS_DELETED", "entity is deleted", status=404)
        (shown,) = with_values(entity.computed.values(), [stored], self._store)
        return shown

    def content(self, record_id: str) -> Record | None:
        """Return the values of a record by column, without computed fields; ``None`` if it never existed.

        For a deleted record, these are the last values.
        """
        stored = self._store.get(record_id)
        return None if stored is None else stored.content

    def all(self, entity: Entity, *, include_deleted: bool = False) -> list[StoredRecord]:
        """Return the records of an entity, sorted by id."""
        records = self._store.all(entity.name, include_deleted=include_deleted)
        return with_values(entity.computed.values(), records, self._store)

    def find(self, entity: Entity, column: str, values: Sequence[str | float]) -> list[StoredRecord]:
        """Return records, without deleted ones, with a column in ``values`` (case-insensitive), sorted by id."""
        return self._store.find(entity.name, column, values)

    def commit(
        self, operations: Sequence[Operation], *, user_id: str, origin: str, all_or_none: bool = True
    ) -> list[str | ApiError]:
        """Execute operations in one transaction; return the record id or the error of each.

        :param origin: ``changeOrigin`` of the events.
        :param all_or_none: whether one error rolls back all operations. Otherwise the valid ones are committed.
        """
        work = _PendingTransaction(self._store, int(self._clock() * 1000), user_id, self._watcher)
        results: list[str | ApiError] = []
        for operation in operations:
            try:
                results.append(work.do(operation))
            except ApiError as error:
                results.append(error)
        if all_or_none and any(isinstance(result, ApiError) for result in results):
            return [result if isinstance(result, ApiError) else rolled_back() for result in results]
        if work.changes:
            transaction = self._transaction(work.now, user_id, origin)
            captured = [change for change in work.changes if change.entity.has_change_events]
            rules = Rules(self._becomes_gap, self._overflow_changes(), self._diff_text_characters())
            self._publish(change_events(captured, transaction, rules), transaction, work)
        return results

    def remove(self, record_ids: Iterable[str]) -> None:
        """Remove deleted records from the database, like emptying the recycle bin. This publishes no event."""
        self._store.remove(record_ids)

    def lose_changes(self, entity: Entity, percent: float, seed: int | None = None) -> None:
        """Replace this percentage of an entity's later change events with GAP events.

        :param seed: seed of the random choice, which makes it repeatable for all entities.
        """
        self.gap_percent[entity.name] = percent
        if seed is not None:
            self._rng = random.Random(seed)  # noqa: S311 - chance, not secrets

    def overflow(self, entity: Entity, *, user_id: str) -> bytes:
        """Publish a GAP_OVERFLOW event, as for more than 100,000 changes in one transaction; return its replay ID."""
        return self._publish_single(user_id, lambda transaction: overflow_event(entity, transaction))

    def all_changed(self, entity: Entity, change_type: str, *, user_id: str) -> bytes:
        """Publish an event about all records of an entity (``001*``) without changing them; return its replay ID.

        :param change_type: ``UPDATE``, as after a lossy change of a field's type, or the change type of a gap event.
        """
        return self._publish_single(user_id, lambda transaction: all_records_event(entity, transaction, change_type))

    def _publish_single(self, user_id: str, event: Callable[[Transaction], ChangeEvent]) -> bytes:
        transaction = self._transaction(int(self._clock() * 1000), user_id, "")
        (replay_id,) = self._publish([event(transaction)], transaction, None)
        return replay_id

    def _transaction(self, now: int, user_id: str, origin: str) -> Transaction:
        number = self._store.counter("commit", _FIRST_COMMIT_NUMBER) + 1
        return Transaction(str(uuid.uuid4()), now, number, user_id, origin)

    def _becomes_gap(self, entity: Entity) -> bool:
        return self._rng.random() * 100 < self.gap_percent.get(entity.name, 0)

    def _publish(
        self, events: Sequence[ChangeEvent], transaction: Transaction, work: _PendingTransaction | None
    ) -> list[bytes]:
        def write() -> None:
            self._store.set_counter("commit", transaction.number)
            if work is not None:
                work.write()

        published = [self._bus_event(event) for event in events]
        if work is not None and self._watcher is not None:
            published += self._watcher.events(work.changes, work.now)
        replay_ids = self._bus.publish(published, within_transaction=write)
        if work is not None and self._watcher is not None:
            self._watcher.written(work.records)
        return replay_ids

    def _bus_event(self, event: ChangeEvent) -> BusEvent:
        schema_id = self._schemas.latest(event.entity.event_name) or ""
        schema = self._schemas.parsed(schema_id)
        payload = event.encode(schema)
        if len(payload) > self._event_bytes():
            payload = event.as_gap().encode(schema)
        # Change events have no event id (§3.1), and the bus adds their channels.
        return BusEvent(event.entity.topic, schema_id, payload)


class _PendingTransaction:
    """The changes of one transaction before it is committed."""

    def __init__(self, store: RecordStore, now: int, user_id: str, watcher: RecordWatcher | None) -> None:
        self.now = now
        self.changes: list[Change] = []
        self._store = store
        self._user_id = user_id
        self._watcher = watcher
        self._second = now // 1000 * 1000
        self._records: dict[str, StoredRecord] = {}
        self._counters: dict[str, int] = {}

    @property
    def records(self) -> list[StoredRecord]:
        """Records to write."""
        return list(self._records.values())

    def do(self, operation: Operation) -> str:
        """Add an operation and return the id of its record.

        :raises ApiError: if the operation is refused; the transaction is unchanged.
        """
        if operation.type == "CREATE":
            return self._create(operation.entity, operation.values)
        stored = self._stored(operation)
        if operation.type == "UPDATE":
            self._update(operation.entity, stored, operation.values)
        else:
            is_deleted = operation.type == "DELETE"
            self._add_change(
                operation, StoredRecord(stored.id, stored.entity, stored.content, self._second, is_deleted)
            )
        return stored.id

    def write(self) -> None:
        """Write records and counters. The caller commits."""
        self._store.write(self.records)
        for name, value in self._counters.items():
            self._store.set_counter(name, value)

    def _stored(self, operation: Operation) -> StoredRecord:
        record_id = operation.record_id or ""
        if record_id in self._records:
            raise ApiError("INVALID_ID_FIELD", f"duplicate id in list: {record_id}")
        stored = self._store.get(record_id)
        if stored is None or stored.entity != operation.entity.name:
            raise not_found()
        if operation.type == "UNDELETE":
            if not stored.is_deleted:
                raise ApiError("UNDELETE_FAILED", "Entity is not in the recycle bin")
        elif stored.is_deleted:
            raise ApiError("ENTITY_IS_DELETED", "entity is deleted", status=404)
        return stored

    def _create(self, entity: Entity, values: Mapping[str, Any]) -> str:
        content = defaults(entity, self._user_id) | accept(entity, values)
        check_required(entity, content)
        number = self._counters.get(entity.name) or self._store.counter(entity.name, 0)
        self._counters[entity.name] = number + 1
        record_id = numbered(entity.key_prefix, number + 1)
        if entity.name.endswith("__c") and content.get("Name") is None:
            content["Name"] = record_id  # as Salesforce does for text names of custom objects
        content |= {"CreatedDate": self._second, "CreatedById": self._user_id}
        content |= {"LastModifiedDate": self._second, "LastModifiedById": self._user_id}
        operation = Operation("CREATE", entity, record_id)
        self._add_change(operation, StoredRecord(record_id, entity.name, content, self._second))
        return record_id

    def _update(self, entity: Entity, stored: StoredRecord, values: Mapping[str, Any]) -> None:
        accepted = accept(entity, values, before=stored.content)
        changed = {name for name, value in accepted.items() if stored_value(entity, stored, name) != value}
        content = stored.content | accepted
        check_required(entity, content)
        if not changed:
            return
        changed.add("LastModifiedDate")
        if stored.content.get("LastModifiedById") != self._user_id:
            changed.add("LastModifiedById")
        content |= {"LastModifiedDate": self._second, "LastModifiedById": self._user_id}
        operation = Operation("UPDATE", entity, stored.id)
        record = StoredRecord(stored.id, entity.name, content, self._second)
        self._add_change(operation, record, frozenset(changed), stored.content)

    def _add_change(
        self,
        operation: Operation,
        record: StoredRecord,
        columns: frozenset[str] = frozenset(),
        before: Mapping[str, Any] | None = None,
    ) -> None:
        if self._watcher is not None:
            self._watcher.check(record, self.records)
        self._records[record.id] = record
        self.changes.append(Change(operation.type, operation.entity, record.id, record.content, columns, before or {}))


def rolled_back() -> ApiError:
    """Return the error of a valid operation that was rolled back because another one failed."""
    return ApiError(
        "ALL_OR_NONE_OPERATION_ROLLED_BACK",
        "Record rolled back because not all records were valid and the request was using AllOrNone header",
    )
