"""Validated query, which can be evaluated for records. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.soql.conditions import Comparison, Condition, comparable, compared, parts
from sfstream_localorg.records.soql.fields import Parents, QueryField, no_parents


@dataclass(frozen=True)
class Count:
    """``COUNT(field)`` and its alias in the response."""

    field: QueryField
    alias: str


@dataclass(frozen=True)
class Query:
    """A query validated against its entity.

    :param fields: selected fields; empty for ``COUNT()`` and for counts of fields.
    :param counts: counts of fields; a query with counts has one row.
    :param order: fields to sort by, each with true for descending order.
    """

    entity: Entity
    fields: tuple[QueryField, ...]
    counts: tuple[Count, ...]
    condition: Condition
    order: tuple[tuple[QueryField, bool], ...]
    limit: int | None
    offset: int

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the selected fields; a field of a parent has its relationship (``Owner.Name``)."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def compared(self) -> frozenset[str]:
        """Names of the fields that the conditions compare."""
        return compared(self.condition)

    @cached_property
    def parents(self) -> tuple[Entity, ...]:
        """Entities of the parents that the query reads."""
        fields = [*self.fields, *(count.field for count in self.counts), *(field for field, _ in self.order)]
        fields += [part.field for part in parts(self.condition) if isinstance(part, Comparison)]
        return tuple({field.entity.name: field.entity for field in fields if field.reference}.values())

    def matches(self, record: StoredRecord, parents: Parents = no_parents) -> bool:
        """Return whether a record meets the conditions."""
        return self.condition.matches(record, parents)

    def select(self, records: Iterable[StoredRecord], parents: Parents = no_parents) -> list[StoredRecord]:
        """Return the matching records, sorted with nulls first and limited as the query defines."""
        found = [record for record in records if self.matches(record, parents)]
        for field, descending in reversed(self.order):
            keyed = [(_sort_key(field.value(record, parents)), record) for record in found]
            keyed.sort(key=lambda pair: pair[0], reverse=descending)
            found = [record for _, record in keyed]
        end = None if self.limit is None else self.offset + self.limit
        return found[self.offset : end]

    def counted(self, records: Iterable[StoredRecord], parents: Parents = no_parents) -> dict[str, int]:
        """Return the number of records with a value in each counted field, by alias."""
        found = list(records)
        return {
            count.alias: sum(count.field.value(record, parents) is not None for record in found)
            for count in self.counts
        }


def _sort_key(value: Any) -> tuple[bool, Any]:
    return (value is not None, comparable(value))
