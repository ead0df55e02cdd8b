"""Result of a query at one time, which all its pages show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.soql import Query, parse
from sfstream_localorg.rest.own_records import OWN_ENTITIES, own_record

if TYPE_CHECKING:
    from sfstream_localorg.org import Org


@dataclass(frozen=True)
class QueryResult:
    """A query, its records, and their parents by entity and by id."""

    query: Query
    records: Sequence[StoredRecord]
    parent_records: Mapping[str, Mapping[str, StoredRecord]]

    def parents(self, entity: Entity, record_id: str) -> StoredRecord | None:
        """Return a parent at the time of the query, ``None`` if it did not exist."""
        return self.parent_records[entity.name].get(record_id)

    def counts(self) -> dict[str, int]:
        """Return the values of ``COUNT(field)`` by alias."""
        return self.query.counted(self.records, self.parents)


def query_result(org: Org, text: str, *, include_deleted: bool) -> QueryResult:
    """Execute a query.

    :raises ApiError: ``MALFORMED_QUERY``, ``INVALID_TYPE`` or ``INVALID_FIELD``.
    """
    source = _QuerySource(org)
    query = parse(text, source, now=org.now())
    parents = {entity.name: {record.id: record for record in source.all(entity)} for entity in query.parents}
    found = QueryResult(query, (), parents)
    records = query.select(source.all(query.entity, include_deleted=include_deleted), found.parents)
    return QueryResult(query, records, parents)


class _QuerySource:
    """Source of queries: the org's records and its built-in records."""

    def __init__(self, org: Org) -> None:
        self._org = org

    def get(self, name: str) -> Entity | None:
        return OWN_ENTITIES.get(name.lower()) or self._org.sobjects.entities.get(name)

    def all(self, entity: Entity, *, include_deleted: bool = False) -> list[StoredRecord]:
        if entity.name.lower() in OWN_ENTITIES:
            return [own_record(self._org, entity)]
        return self._org.sobjects.all(entity, include_deleted=include_deleted)
