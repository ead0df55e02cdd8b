"""The fields that a query names: columns of its entity, or of a parent, one level up. Pure."""

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
"""Return the parent of an entity that has this id, ``None`` if there is none."""


def no_parents(entity: Entity, record_id: str) -> StoredRecord | None:
    """Return ``None``: what a query without parent fields looks its parents up in."""
    return None


class EntityLookup(Protocol):
    """Where a query finds the entities that it is about."""

    def get(self, name: str) -> Entity | None:
        """Return the entity called ``name`` in any letter case, ``None`` if there is none."""


class NoEntities:
    """Where parents are not to be found, because there can be none."""

    def get(self, name: str) -> Entity | None:
        """Return ``None``."""
        return None


@dataclass(frozen=True)
class QueryField:
    """A column of the queried entity, or of a parent.

    :param entity: the one that has the column: the parent's, if it is a parent's.
    :param relationship: the name of the relationship to the parent: ``Owner``.
    :param reference: the column of the queried entity that has the parent's id: ``OwnerId``.
    """

    entity: Entity
    column: str
    relationship: str | None = None
    reference: str | None = None

    @property
    def name(self) -> str:
        """The field as a query names it: ``Name``, ``Owner.Name``."""
        return self.column if self.relationship is None else f"{self.relationship}.{self.column}"

    @property
    def kind(self) -> str:
        """The name of the column's type; a person's name, too, is compared and shown as one text."""
        return "Text" if self.column == "Name" else readable(self.entity)[self.column]

    def record(self, record: StoredRecord, parents: Parents) -> StoredRecord | None:
        """Return the record that has the column: ``record``, or its parent, ``None`` if it has none."""
        if self.reference is None:
            return record
        parent_id = record.content.get(self.reference)
        return None if parent_id is None else parents(self.entity, parent_id)

    def value(self, record: StoredRecord, parents: Parents) -> Any:
        """Return the value in stored form: what conditions and sorting compare."""
        found = self.record(record, parents)
        return None if found is None else stored_value(self.entity, found, self.column)

    def shown(self, record: StoredRecord, parents: Parents) -> Any:
        """Return the value as REST shows it."""
        found = self.record(record, parents)
        return None if found is None else show(self.entity, found, [self.column])[self.column]


def fields_of(entity: Entity, entities: EntityLookup, name: str) -> tuple[QueryField, ...]:
    """Return the field that a query names; ``FIELDS(ALL)`` names several.

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
    """Return columns by their names in any letter case; ``FIELDS(ALL)`` is all of them.

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
