"""sObject type: its fields, its Avro change-event schema, and the conversion of records to event bodies and bitmaps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sfstream_localorg.records.bitmaps import bitmap
from sfstream_localorg.records.computed_fields import ComputedField
from sfstream_localorg.records.fields import Column, Field

Record = Mapping[str, Any]
"""Values of a record by column name: text, float, int, bool, or milliseconds since the epoch (or since midnight)."""

CHANGE_TYPES = (
    *("CREATE", "UPDATE", "DELETE", "UNDELETE"),
    *("GAP_CREATE", "GAP_UPDATE", "GAP_DELETE", "GAP_UNDELETE"),
    *("GAP_OVERFLOW", "SNAPSHOT"),
)
_TEXTS: dict[str, Any] = {"type": "array", "items": "string"}
_HEADER: dict[str, Any] = {
    "name": "ChangeEventHeader",
    "type": {
        "type": "record",
        "name": "ChangeEventHeader",
        "fields": [
            {"name": "entityName", "type": "string"},
            {"name": "recordIds", "type": _TEXTS},
            {"name": "changeType", "type": {"type": "enum", "name": "ChangeType", "symbols": list(CHANGE_TYPES)}},
            {"name": "changeOrigin", "type": "string"},
            {"name": "transactionKey", "type": "string"},
            {"name": "sequenceNumber", "type": "int"},
            {"name": "commitTimestamp", "type": "long"},
            {"name": "commitNumber", "type": "long"},
            {"name": "commitUser", "type": "string"},
            {"name": "nulledFields", "type": _TEXTS},
            {"name": "diffFields", "type": _TEXTS},
            {"name": "changedFields", "type": _TEXTS},
        ],
    },
    "doc": "Data:ComplexValueType",
}


@dataclass(frozen=True)
class Entity:
    """An sObject type.

    :param key_prefix: the first three characters of its record ids.
    :param fields: fields in the order of the change event, where position 0 is the header.
    :param required: columns that a new record must have.
    :param initial: default values of a new record, by column.
    :param has_change_events: whether the entity has change events.
    :param computed: computed fields by name; change events do not carry them.
    """

    name: str
    key_prefix: str
    fields: tuple[Field, ...]
    required: tuple[str, ...] = ()
    initial: tuple[tuple[str, Any], ...] = ()
    has_change_events: bool = True
    computed: Mapping[str, ComputedField] = field(default_factory=dict, hash=False)

    @property
    def event_name(self) -> str:
        """API name of its change event: ``AccountChangeEvent``, ``Shipment__ChangeEvent``."""
        return self.name.removesuffix("c") + "ChangeEvent" if self.name.endswith("__c") else f"{self.name}ChangeEvent"

    @property
    def topic(self) -> str:
        """Topic of its change events."""
        return f"/data/{self.event_name}"

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Columns of a change event, by their names in REST."""
        return {column.name: column for at, field in enumerate(self.fields, 1) for column in field.columns(at)}

    @cached_property
    def compounds(self) -> dict[str, tuple[Field, tuple[str, ...]]]:
        """Compound fields by name, with the column names of their parts."""
        return {
            field.name: (field, tuple(column.name for column in field.columns(at) if column.part is not None))
            for at, field in enumerate(self.fields, 1)
            if field.compound
        }

    def with_field(self, field: Field) -> Entity:
        """Return the entity with an additional field at the end.

        :raises ValueError: if the entity already has a column with that name.
        """
        self._check_new({column.name for column in field.columns(0)} | {field.name})
        return replace(self, fields=(*self.fields, field))

    def with_computed(self, field: ComputedField) -> Entity:
        """Return the entity with an additional computed field.

        :raises ValueError: if the entity already has a column with that name.
        """
        self._check_new({field.name})
        return replace(self, computed={**self.computed, field.name: field})

    def schema(self) -> dict[str, Any]:
        """Return the Avro schema of its change event."""
        defined: set[str] = set()
        fields = [_HEADER, *(field.avro(self.name, defined) for field in self.fields)]
        return {"type": "record", "name": self.event_name, "namespace": "com.sforce.eventbus", "fields": fields}

    def body(self, record: Record, columns: Collection[str] | None = None) -> dict[str, Any]:
        """Return the fields of a change event without the header. With ``columns``, all other columns are null."""
        kept = {name: value for name, value in record.items() if columns is None or name in columns}
        return {field.name: self._value(field, kept) for field in self.fields}

    def bitmap(self, columns: Collection[str]) -> list[str]:
        """Return the bitmaps that select these columns."""
        top: set[int] = set()
        nested: dict[int, set[int]] = {}
        for column in (self.columns[name] for name in columns):
            if column.part is None:
                top.add(column.position)
            else:
                nested.setdefault(column.position, set()).add(column.part)
        return bitmap(top, nested)

    def _check_new(self, names: set[str]) -> None:
        taken = {*self.columns, *(one.name for one in self.fields), *self.computed, "Id", "IsDeleted", "SystemModstamp"}
        if names & taken:
            raise ValueError(f"{self.name} already has {', '.join(sorted(names & taken))}")

    def _value(self, field: Field, record: Record) -> Any:
        if field.compound is None:
            return record.get(field.name)
        values = [record.get(name) for name in self.compounds[field.name][1]]
        if all(value is None for value in values):
            return record.get(field.name) if field.compound.or_text else None
        return {part: value for (part, _), value in zip(field.compound.parts, values, strict=True)}
