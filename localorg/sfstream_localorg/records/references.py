"""Reference fields of entities and the objects they refer to. Pure.

A lookup field added without ``referenceTo`` has no defined target, so a query cannot follow it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfstream_localorg.records.entity import Entity

_TARGETS = {
    **dict.fromkeys(("OwnerId", "CreatedById", "LastModifiedById"), "User"),
    **dict.fromkeys(("AccountId", "ParentId", "Account__c"), "Account"),
    **dict.fromkeys(("ContactId", "ReportsToId", "PersonContactId"), "Contact"),
}


@dataclass(frozen=True)
class Reference:
    """A reference field: its column (``OwnerId``), its relationship name (``Owner``) and its target object."""

    column: str
    relationship: str
    target: str


def references(entity: Entity) -> dict[str, Reference]:
    """Return the references of an entity by relationship name in lower case."""
    targets = _TARGETS | {field.name: field.reference_to for field in entity.fields if field.reference_to}
    named = [column for column in entity.columns if column in targets]
    found = [Reference(column, _relationship(column), targets[column]) for column in named]
    return {one.relationship.lower(): one for one in found}


def _relationship(column: str) -> str:
    return f"{column.removesuffix('__c')}__r" if column.endswith("__c") else column.removesuffix("Id")
