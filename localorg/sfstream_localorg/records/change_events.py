"""Change events of one transaction, as Change Data Capture writes them (§3 of the protocol notes). Pure.

- CREATE and UNDELETE carry the full record, DELETE nothing; UPDATE carries the changed fields, all others null.
- ``changedFields`` names the fields of an UPDATE, ``LastModifiedDate`` among them; ``nulledFields`` those of them that
  became null; ``diffFields`` those whose value is the difference to the former text.
- The same change to several records of one entity is one event with several ``recordIds``.
- A GAP event has a header and nothing else.
- A transaction has only so many changes in events; the rest is one GAP_OVERFLOW for each entity in it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import fastavro

from sfstream_localorg.records.entity import Entity, Record
from sfstream_localorg.records.text_diffs import LONG_TEXTS, text_diff

ChangeType = Literal["CREATE", "UPDATE", "DELETE", "UNDELETE"]
OVERFLOW_RECORD_ID = "000000000000000AAA"


@dataclass(frozen=True)
class Change:
    """What happened to one record.

    :param record: its state afterwards.
    :param columns: those that an UPDATE changed.
    :param before: its state before an UPDATE.
    """

    type: ChangeType
    entity: Entity
    record_id: str
    record: Record = field(default_factory=dict)
    columns: frozenset[str] = frozenset()
    before: Record = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many changes it is towards an overflow: of an update each field counts (Salesforce's guide)."""
        return max(1, len(self.columns))

    def diffs(self, characters: int | None) -> dict[str, str]:
        """Return the texts of an UPDATE that are sent as the difference to the former text, by column.

        :param characters: the shortest text that is sent so; ``None`` for none at all.
        """
        if characters is None:
            return {}
        found = {name: self._diff(name, characters) for name in self.columns}
        return {name: diff for name, diff in found.items() if diff is not None}

    def _diff(self, column: str, characters: int) -> str | None:
        before, after = self.before.get(column), self.record.get(column)
        if self.entity.columns[column].type not in LONG_TEXTS or before is None or after is None:
            return None
        return text_diff(before, after) if len(after) >= characters else None


@dataclass(frozen=True)
class Transaction:
    """What all events of one transaction share. ``timestamp`` is in milliseconds since the epoch."""

    key: str
    timestamp: int
    number: int
    user_id: str
    origin: str


@dataclass(frozen=True)
class ChangeEvent:
    """One event, ready to be written with its entity's schema."""

    entity: Entity
    values: dict[str, Any]

    def encode(self, parsed_schema: Any) -> bytes:
        """Return the event as schemaless Avro."""
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed_schema, self.values)
        return buffer.getvalue()

    def as_gap(self) -> ChangeEvent:
        """Return the gap event that Salesforce sends in place of this one when it cannot be made."""
        header = self.values["ChangeEventHeader"]
        gap = header | _no_fields() | {"changeType": f"GAP_{header['changeType']}"}
        return ChangeEvent(self.entity, {"ChangeEventHeader": gap} | self.entity.body({}))


@dataclass(frozen=True)
class Rules:
    """How changes become events.

    :param lost: asked for each event whether a gap event goes in its place.
    :param overflow_changes: the most changes of a transaction that are sent one by one.
    :param diff_text_characters: the shortest text that may be sent as the difference to the former one; ``None`` for
        no text at all.
    """

    lost: Callable[[Entity], bool] = lambda _: False
    overflow_changes: int = 100_000
    diff_text_characters: int | None = None


def change_events(changes: Iterable[Change], transaction: Transaction, rules: Rules | None = None) -> list[ChangeEvent]:
    """Return the events of a transaction in order, identical changes merged, numbered from 1."""
    rules = rules or Rules()
    sent, overflowed = _within(changes, rules.overflow_changes)
    merged: dict[str, tuple[Entity, dict[str, Any], dict[str, Any]]] = {}
    for change in sent:
        diffs = change.diffs(rules.diff_text_characters)
        header, body = _header(change, diffs), _body(change, diffs)
        key = repr((change.entity.name, header, sorted(body.items(), key=lambda item: item[0])))
        _, first, _ = merged.setdefault(key, (change.entity, header | {"recordIds": []}, body))
        first["recordIds"].append(change.record_id)
    events = []
    for number, (entity, header, body) in enumerate(merged.values(), 1):
        event = ChangeEvent(entity, {"ChangeEventHeader": header | _shared(transaction, number)} | body)
        events.append(event.as_gap() if rules.lost(entity) else event)
    for entity in overflowed:
        events.append(overflow_event(entity, transaction, len(events) + 1))
    return events


def overflow_event(entity: Entity, transaction: Transaction, number: int = 1) -> ChangeEvent:
    """Return the event that says that an entity had more changes in one transaction than are sent one by one."""
    return _without_fields(entity, [OVERFLOW_RECORD_ID], "GAP_OVERFLOW", transaction, number)


def all_records_event(entity: Entity, transaction: Transaction, change_type: str) -> ChangeEvent:
    """Return the event that says that all records of an entity changed and not how: its record id is ``001*``.

    Salesforce sends it as an UPDATE when the type of a custom field is changed and its data is lost.

    :param change_type: ``UPDATE``, or one of a gap event.
    """
    return _without_fields(entity, [f"{entity.key_prefix}*"], change_type, transaction, 1)


def _within(changes: Iterable[Change], most: int) -> tuple[Sequence[Change], Sequence[Entity]]:
    """Return the changes that are sent one by one, and the entities of those beyond, each once."""
    sent: list[Change] = []
    overflowed: dict[str, Entity] = {}
    total = 0
    for change in changes:
        total += change.size
        if total <= most:
            sent.append(change)
        else:
            overflowed[change.entity.name] = change.entity
    return sent, list(overflowed.values())


def _without_fields(
    entity: Entity, record_ids: list[str], change_type: str, transaction: Transaction, number: int
) -> ChangeEvent:
    header = {"entityName": entity.name, "recordIds": record_ids, "changeType": change_type}
    header |= _shared(transaction, number) | _no_fields()
    return ChangeEvent(entity, {"ChangeEventHeader": header} | entity.body({}))


def _header(change: Change, diffs: Record) -> dict[str, Any]:
    header = {"entityName": change.entity.name, "changeType": change.type, **_no_fields()}
    if change.type == "UPDATE":
        header["changedFields"] = change.entity.bitmap(change.columns)
        nulled = [column for column in change.columns if change.record.get(column) is None]
        header["nulledFields"] = change.entity.bitmap(nulled)
        header["diffFields"] = change.entity.bitmap(diffs)
    return header


def _body(change: Change, diffs: Record) -> dict[str, Any]:
    if change.type == "DELETE":
        return change.entity.body({})
    return change.entity.body({**change.record, **diffs}, change.columns if change.type == "UPDATE" else None)


def _no_fields() -> dict[str, Any]:
    return {"nulledFields": [], "diffFields": [], "changedFields": []}


def _shared(transaction: Transaction, number: int) -> dict[str, Any]:
    return {
        "changeOrigin": transaction.origin,
        "transactionKey": transaction.key,
        "sequenceNumber": number,
        "commitTimestamp": transaction.timestamp,
        "commitNumber": transaction.number,
        "commitUser": transaction.user_id,
    }
