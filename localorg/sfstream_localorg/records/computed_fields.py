"""Computed fields, evaluated when a record is read: formulas and roll-up summaries.

Their values change without a change event and without ``SystemModstamp``, as at Salesforce. They are read-only. Their
definitions use the names of the Metadata API's ``CustomField``. A formula is a field of the record or of its parent
(``Account.Industry``, ``Account__r.Name``), optionally times a number (``Amount__c * 1.2``). A roll-up summary is a
``sum`` or ``count`` over child records.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sfstream_localorg.records.record_store import RecordStore, StoredRecord

_TABLE = """
CREATE TABLE IF NOT EXISTS computed_field (number INTEGER PRIMARY KEY, entity TEXT NOT NULL, definition TEXT NOT NULL)
"""
_FORMULA = re.compile(r"(?:(?P<parent>\w+)\.)?(?P<field>\w+)(?:\s*\*\s*(?P<factor>-?\d+(?:\.\d+)?))?", re.ASCII)
_TYPES = ("Text", "Double", "Currency", "Boolean", "DateOnly", "DateTime")


@dataclass(frozen=True)
class ComputedField:
    """A formula field or a roll-up summary.

    :param type: type of the values: ``Text``, ``Double``, ``Currency``, ``Boolean``, ``DateOnly`` or ``DateTime``.
    :param formula: the formula, ``None`` for a roll-up summary.
    :param summary_operation: ``"sum"`` or ``"count"``.
    :param summary_foreign_key: field of the child that refers to the parent: ``Opportunity.AccountId``.
    :param summarized_field: field to sum: ``Opportunity.Amount``; ``None`` for ``"count"``.
    """

    name: str
    type: str
    formula: str | None = None
    summary_operation: str | None = None
    summary_foreign_key: str | None = None
    summarized_field: str | None = None

    @classmethod
    def from_request(cls, body: Mapping[str, Any]) -> ComputedField | None:
        """Parse a request to add a field; return ``None`` if the field is not computed.

        :raises KeyError: if an element is missing.
        :raises ValueError: if the definition is not supported.
        """
        if "formula" not in body and "summaryOperation" not in body:
            return None
        name, type_ = str(body["name"]), str(body["type"])
        if type_ not in _TYPES:
            raise ValueError(f"{name}: a computed field cannot be of type {type_}; it can be {', '.join(_TYPES)}")
        if "formula" in body:
            if not _FORMULA.fullmatch(str(body["formula"])):
                raise ValueError(f"{name}: the formula {body['formula']!r} is not one that is known here")
            return cls(name, type_, formula=str(body["formula"]))
        operation, key = str(body["summaryOperation"]), str(body["summaryForeignKey"])
        summarized = None if operation == "count" else str(body["summarizedField"])
        if operation not in ("sum", "count") or any(text.count(".") != 1 for text in (key, summarized) if text):
            raise ValueError(f"{name}: the summary is not one that is known here")
        return cls(name, type_, summary_operation=operation, summary_foreign_key=key, summarized_field=summarized)


class ComputedFields:
    """Computed fields of one org. Their definitions are stored in its database."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.executescript(_TABLE)

    def __iter__(self) -> Iterator[tuple[str, ComputedField]]:
        """Yield pairs of entity name and field, oldest first."""
        for entity, text in self._database.execute("SELECT entity, definition FROM computed_field ORDER BY number"):
            yield entity, ComputedField(**json.loads(text))

    def add(self, entity: str, field: ComputedField) -> None:
        """Store a definition."""
        with self._database:
            self._database.execute(
                "INSERT INTO computed_field (entity, definition) VALUES (?, ?)", (entity, json.dumps(asdict(field)))
            )


def with_values(
    fields: Iterable[ComputedField], records: Iterable[StoredRecord], store: RecordStore
) -> list[StoredRecord]:
    """Return records with the current values of computed fields."""
    values = {
        field.name: _summary(field, store) if field.formula is None else _formula(field, store) for field in fields
    }
    if not values:
        return list(records)
    return [
        replace(record, content=record.content | {name: value(record) for name, value in values.items()})
        for record in records
    ]


def _formula(field: ComputedField, store: RecordStore) -> Callable[[StoredRecord], Any]:
    match = _FORMULA.fullmatch(field.formula or "")
    if match is None:
        raise ValueError(f"{field.name}: not a formula: {field.formula}")
    parents: dict[str, dict[str, Any]] = {}

    def parent_of(record: StoredRecord) -> Mapping[str, Any]:
        parent = match["parent"]
        if parent is None:
            return record.content
        key = f"{parent.removesuffix('__r')}__c" if parent.endswith("__r") else f"{parent}Id"
        parent_id = record.content.get(key)
        if parent_id is None:
            return {}
        if parent_id not in parents:
            found = store.get(parent_id)
            parents[parent_id] = found.content if found is not None and not found.is_deleted else {}
        return parents[parent_id]

    def value(record: StoredRecord) -> Any:
        found = parent_of(record).get(match["field"])
        if found is None or match["factor"] is None:
            return False if found is None and field.type == "Boolean" else found
        return found * float(match["factor"])

    return value


def _summary(field: ComputedField, store: RecordStore) -> Callable[[StoredRecord], Any]:
    child, _, key = str(field.summary_foreign_key).partition(".")
    summarized = str(field.summarized_field).partition(".")[2]
    totals: dict[str, float] = defaultdict(float)
    for record in store.all(child):
        parent_id = record.content.get(key)
        if parent_id is not None:
            totals[parent_id] += 1 if field.summary_operation == "count" else record.content.get(summarized) or 0.0
    return lambda record: totals.get(record.id, 0.0)
