"""Change events of one transaction, in the form of Change Data Capture (§3 of the protocol notes). Pure.

- CREATE and UNDELETE carry the full record, DELETE no fields. UPDATE carries the changed fields; all others are null.
- ``changedFields`` selects the changed fields of an UPDATE, including ``LastModifiedDate``; ``nulledFields`` the fields
  that became null; ``diffFields`` the fields whose value is the difference to the previous text.
- The same change to several records of one entity is one event with several ``recordIds``.
- A GAP event has only a header.
- The number of changes in one transaction is limited; further changes become one GAP_OVERFLOW event for each entity.
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
    """Change of one record.

    :param record: the record after the change.
    :param columns: columns that an UPDATE changed.
    :param before: the record before an UPDATE.
    """

    type: ChangeType
    entity: Entity
    record_id: str
    record: Record = field(default_factory=dict)
    columns: frozenset[str] = frozenset()
    before: Record = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of changes for the overflow limit; each field of an update counts (Salesforce's guide)."""
        return max(1, len(self.columns))

    def diffs(self, characters: int | None) -> dict[str, str]:
        """Return the differences to the previous texts of an UPDATE, by column, where the event carries a difference.

        :param characters: minimum length of a text that is sent as a difference; ``None`` for never.
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
    """Common header values of the events of one transaction. ``timestamp`` is in milliseconds since the epoch."""

    key: str
    timestamp: int
    number: int
    user_id: str
    origin: str


@dataclass(frozen=True)
class ChangeEvent:
    """A change event with its decoded values."""

    entity: Entity
    values: dict[str, Any]

    def encode(self, parsed_schema: Any) -> bytes:
        """Encode the event as schemaless Avro."""
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed_schema, self.values)
        return buffer.getvalue()

    def as_gap(self) -> ChangeEvent:
        """Return the gap event that Salesforce sends if it cannot create this event."""
        header = self.values["ChangeEventHeader"]
        gap = header | _empty_bitmaps() | {"changeType": f"GAP_{header['changeType']}"}
        return ChangeEvent(self.entity, {"ChangeEventHeader": gap} | self.entity.body({}))


@dataclass(frozen=True)
class Rules:
    """Rules for the conversion of changes to events.

    :param lost: returns for each event whether a gap event replaces it.
    :param overflow_changes: maximum number of changes of a transaction that are sent individually.
    :param diff_text_characters: minimum length of a text that may be sent as the difference to the previous text;
        ``None`` for never.
    """

    lost: Callable[[Entity], bool] = lambda _: False
    overflow_changes: int = 100_000
    diff_text_characters: int | None = None


def change_events(changes: Iterable[Change], transaction: Transaction, rules: Rules | None = None) -> list[ChangeEvent]:
    """Return the events of a transaction in order, numbered from 1, with identical changes merged."""
    rules = rules or Rules()
    sent, overflowed = _split_overflow(changes, rules.overflow_changes)
    merged: dict[str, tuple[Entity, dict[str, Any], dict[str, Any]]] = {}
    for change in sent:
        diffs = change.diffs(rules.diff_text_characters)
        header, body = _header(change, diffs), _body(change, diffs)
        key = repr((change.entity.name, header, sorted(body.items(), key=lambda item: item[0])))
        _, first, _ = merged.setdefault(key, (change.entity, header | {"recordIds": []}, body))
        first["recordIds"].append(change.record_id)
    events = []
    for number, (entity, header, body) in enumerate(merged.values(), 1):
        event = ChangeEvent(entity, {"ChangeEventHeader": header | _transaction_header(transaction, number)} | body)
        events.append(event.as_gap() if rules.lost(entity) else event)
    for entity in overflowed:
        events.append(overflow_event(entity, transaction, len(events) + 1))
    return events


def overflow_event(entity: Entity, transaction: Transaction, number: int = 1) -> ChangeEvent:
    """Return the GAP_OVERFLOW event of an entity with more changes in one transaction than are sent individually."""
    return _header_only_event(entity, [OVERFLOW_RECORD_ID], "GAP_OVERFLOW", transaction, number)


def all_records_event(entity: Entity, transaction: Transaction, change_type: str) -> ChangeEvent:
    """Return the event for an unspecified change of all records of an entity. Its record id is ``001*``.

    Salesforce sends it with ``UPDATE`` when the type of a custom field is changed and its data is lost.

    :param change_type: ``UPDATE``, or the change type of a gap event.
    """
    return _header_only_event(entity, [f"{entity.key_prefix}*"], change_type, transaction, 1)


def _split_overflow(changes: Iterable[Change], most: int) -> tuple[Sequence[Change], Sequence[Entity]]:
    """Split changes into those sent individually, and the distinct entities of the changes beyond ``most``."""
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


def _header_only_event(
    entity: Entity, record_ids: list[str], change_type: str, transaction: Transaction, number: int
) -> ChangeEvent:
    header = {"entityName": entity.name, "recordIds": record_ids, "changeType": change_type}
    header |= _transaction_header(transaction, number) | _empty_bitmaps()
    return ChangeEvent(entity, {"ChangeEventHeader": header} | entity.body({}))


def _header(change: Change, diffs: Record) -> dict[str, Any]:
    header = {"entityName": change.entity.name, "changeType": change.type, **_empty_bitmaps()}
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


def _empty_bitmaps() -> dict[str, Any]:
    return {"nulledFields": [], "diffFields": [], "changedFields": []}


def _transaction_header(transaction: Transaction, number: int) -> dict[str, Any]:
    return {
        "changeOrigin": transaction.origin,
        "transactionKey": transaction.key,
        "sequenceNumber": number,
        "commitTimestamp": transaction.timestamp,
        "commitNumber": transaction.number,
        "commitUser": transaction.user_id,
    }
