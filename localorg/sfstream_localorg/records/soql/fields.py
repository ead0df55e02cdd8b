"""Fields of a query: columns of its entity, or of a parent (one level). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.record_values import readable, show, stored_value
from sfstream_localorg.records.references import references

Parents = Callable[[Entity, str], StoredRecord | None]
"""Function of an entity and a record id that returns the parent record, ``None`` if it does not exist."""


def no_parents(entity: Entity, record_id: str) -> StoredRecord | None:
    """Return ``None``: the parent lookup of a query without parent fields."""
    return None


class EntityLookup(Protocol):
    """Lookup of entities by name."""

    def get(self, name: str) -> Entity | None:
        """Return the entity ``name``, ``None`` if it does not exist. The name is case-insensitive."""


class NoEntities:
    """Empty lookup, for conditions that cannot name parents."""

    def get(self, name: str) -> Entity | None:
        """Return ``None``."""
        return None


@dataclass(frozen=True)
class QueryField:
    """A column of the queried entity, or of a parent.

    :param entity: the entity that has the column; for a column of a parent, the parent's entity.
    :param relationship: name of the relationship to the parent: ``Owner``.
    :param reference: column of the queried entity with the parent's id: ``OwnerId``.
    """

    entity: Entity
    column: str
    relationship: str | None = None
    reference: str | None = None

    @property
    def name(self) -> str:
        """Name of the field in a query: ``Name``, ``Owner.Name``."""
        return self.column if self.relationship is None else f"{self.relationship}.{self.column}"

    @property
    def kind(self) -> str:
        """Type name of the column. A person's name is also compared and shown as one text."""
        return "Text" if self.column == "Name" else readable(self.entity)[self.column]

    def record(self, record: StoredRecord, parents: Parents) -> StoredRecord | None:
        """Return the record with the column: ``record`` or its parent, ``None`` if it has no parent."""
        if self.reference is None:
            return record
        parent_id = record.content.get(self.reference)
        return None if parent_id is None else parents(self.entity, parent_id)

    def value(self, record: StoredRecord, parents: Parents) -> Any:
        """Return the value in stored form, which conditions and sorting compare."""
        found = self.record(record, parents)
        return None if found is None else stored_value(self.entity, found, self.column)

    def shown(self, record: StoredRecord, parents: Parents) -> Any:
        """Return the value in the REST form."""
        found = self.record(record, parents)
        return None if found is None else show(self.entity, found, [self.column])[self.column]


def fields_of(entity: Entity, entities: EntityLookup, name: str) -> tuple[QueryField, ...]:
    """Return the fields for a name in a query: one field, or several for ``FIELDS(ALL)``.

    :raises ApiError: ``INVALID_FIELD``.
    """
    relationship, dot, column = name.partition(".")
    if not dot:
        return tuple(QueryField(entity, known) for known in columns_of(entity, [name]))
    if relationship.lower() == entity.name.lower():
        return fields_of(entity, entities, column)  # SELECT Account.Name FROM Account
    found = references(entity).get(relationship.lower())
    parent = None if found is None else entities.get(found.target)
    if found is None or parent is None:
        message = (
            f"Didn't understand relationship '{relationship}' in field path. If you are attempting to use a custom "
            "relationship, be sure to append the '__r' after the custom relationship name. Please reference your WSDL "
            "or the describe call for the appropriate names."
        )
        raise ApiError("INVALID_FIELD", message)
    if "." in column:
        raise ApiError("INVALID_FIELD", f"{name}: more than one level of parents is not modelled by the local org")
    (known,) = columns_of(parent, [column])
    return (QueryField(parent, known, found.relationship, found.column),)


def columns_of(entity: Entity, names: Iterable[str]) -> tuple[str, ...]:
    """Return columns for case-insensitive names; ``FIELDS(ALL)`` selects all columns.

    :raises ApiError: ``INVALID_FIELD``.
    """
    known = {name.lower(): name for name in readable(entity)}
    columns: list[str] = []
    for name in names:
        if name == "FIELDS(ALL)":
            columns += known.values()
        elif name.lower() in known:
            columns.append(known[name.lower()])
        else:
            raise ApiError("INVALID_FIELD", f"No such column '{name}' on entity '{entity.name}'.")
    return tuple(columns)
