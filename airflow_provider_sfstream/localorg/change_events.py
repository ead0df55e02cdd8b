"""Change events of one transaction, as Change Data Capture writes them (§3 of the protocol notes). Pure.

- CREATE and UNDELETE carry the full record, DELETE nothing; UPDATE carries the changed fields, all others null.
- ``changedFields`` names the fields of an UPDATE, ``LastModifiedDate`` among them; ``nulledFields`` those of them that
  became null. ``diffFields`` stays empty: the local org sends long texts whole.
- The same change to several records of one entity is one event with several ``recordIds``.
- A GAP event has a header and nothing else.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import fastavro

from airflow_provider_sfstream.localorg.entity import Entity, Record

ChangeType = Literal["CREATE", "UPDATE", "DELETE", "UNDELETE"]
OVERFLOW_RECORD_ID = "000000000000000AAA"


@dataclass(frozen=True)
class Change:
    """What happened to one record. ``record`` is its state afterwards; ``columns`` those that an UPDATE changed."""

    type: ChangeType
    entity: Entity
    record_id: str
    record: Record = field(default_factory=dict)
    columns: frozenset[str] = frozenset()


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
        gap = header | {"changeType": f"GAP_{header['changeType']}", "nulledFields": [], "changedFields": []}
        return ChangeEvent(self.entity, {"ChangeEventHeader": gap} | self.entity.body({}))


def change_events(
    changes: Iterable[Change], transaction: Transaction, *, lost: Callable[[Entity], bool] = lambda _: False
) -> list[ChangeEvent]:
    """Return the events of a transaction in order, identical changes merged, numbered from 1.

    :param lost: asked for each event whether a gap event goes in its place.
    """
    merged: dict[str, tuple[Entity, dict[str, Any], dict[str, Any]]] = {}
    for change in changes:
        header, body = _header(change), _body(change)
        key = repr((change.entity.name, header, sorted(body.items(), key=lambda item: item[0])))
        _, first, _ = merged.setdefault(key, (change.entity, header | {"recordIds": []}, body))
        first["recordIds"].append(change.record_id)
    events = []
    for number, (entity, header, body) in enumerate(merged.values(), 1):
        event = ChangeEvent(entity, {"ChangeEventHeader": header | _shared(transaction, number)} | body)
        events.append(event.as_gap() if lost(entity) else event)
    return events


def overflow_event(entity: Entity, transaction: Transaction) -> ChangeEvent:
    """Return the event that says that an entity had more changes in one transaction than are sent one by one."""
    header = {
        "entityName": entity.name,
        "recordIds": [OVERFLOW_RECORD_ID],
        "changeType": "GAP_OVERFLOW",
        **_shared(transaction, 1),
        **_no_fields(),
    }
    return ChangeEvent(entity, {"ChangeEventHeader": header} | entity.body({}))


def _header(change: Change) -> dict[str, Any]:
    header = {"entityName": change.entity.name, "changeType": change.type, **_no_fields()}
    if change.type == "UPDATE":
        header["changedFields"] = change.entity.bitmap(change.columns)
        nulled = [column for column in change.columns if change.record.get(column) is None]
        header["nulledFields"] = change.entity.bitmap(nulled)
    return header


def _body(change: Change) -> dict[str, Any]:
    if change.type == "DELETE":
        return change.entity.body({})
    return change.entity.body(change.record, change.columns if change.type == "UPDATE" else None)


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
