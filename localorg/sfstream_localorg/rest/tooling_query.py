"""Objects of the Tooling API and their queries.

As at Salesforce, a query can select ``Metadata`` and ``FullName`` only if it finds at most one record, and cannot
filter by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.record_values import readable, show
from sfstream_localorg.records.soql import Query, parse
from sfstream_localorg.rest.calls import Call

_ONE_ROW_FIELDS = {"Metadata", "FullName"}


@dataclass(frozen=True)
class ToolingObject:
    """An object type of the Tooling API.

    :param entity: its fields, from :func:`tooling_entity`.
    :param first_version: the first API version with this type.
    """

    entity: Entity
    first_version: int

    def is_in(self, version: str) -> bool:
        """Return whether an API version (``62.0``) has this type."""
        return int(version.partition(".")[0]) >= self.first_version

    def require(self, call: Call) -> None:
        """Check that the API version has this type and the user may see it.

        :raises ApiError: ``NOT_FOUND``.
        """
        if not self.is_in(call.version) or not call.org.knobs.view_setup:
            raise not_found()

    def shown(self, record: StoredRecord, columns: Sequence[str] | None = None, *, base: str) -> dict[str, Any]:
        """Return columns of a record in the REST form; all columns for ``None``.

        :param base: base path of the API version.
        """
        name = self.entity.name
        attributes = {"type": name, "url": f"{base}/tooling/sobjects/{name}/{record.id}"}
        return {"attributes": attributes, **show(self.entity, record, columns or readable(self.entity))}


def tooling_entity(name: str, key_prefix: str, **fields: str) -> Entity:
    """Return an entity for the type names of its fields."""
    return Entity(name, key_prefix, tuple(Field(*one) for one in fields.items()), has_change_events=False)


Records = Mapping[str, Callable[[], Sequence[StoredRecord]]]


class _ToolingEntities:
    """Lookup of object types of the Tooling API by name."""

    def __init__(self, objects: Sequence[ToolingObject]) -> None:
        self._entities = {one.entity.name.lower(): one.entity for one in objects}

    def get(self, name: str) -> Entity | None:
        return self._entities.get(name.lower())


def answer_query(text: str, objects: Sequence[ToolingObject], records: Records, *, base: str) -> dict[str, Any]:
    """Execute a query and return the response.

    :param objects: object types of the API version.
    :param records: functions that return all records of a type, by type name.
    :param base: base path of the API version.
    :raises ApiError: if the query is invalid.
    """
    query = parsed_query(text, objects)
    (queried,) = (one for one in objects if one.entity is query.entity)
    found = query.select(records[queried.entity.name]())
    if _ONE_ROW_FIELDS & set(query.columns) and len(found) > 1:
        message = (
            "When retrieving results with Metadata or FullName fields, the query qualifications must specify no more "
            f"than one row for retrieval. Result size: {len(found)}"
        )
        raise ApiError("MALFORMED_QUERY", message)
    return {
        "size": len(found),
        "totalSize": len(found),
        "done": True,
        "queryLocator": None,
        "entityTypeName": queried.entity.name,
        "records": [queried.shown(one, query.columns, base=base) for one in found if query.columns],
    }


def parsed_query(text: str, objects: Sequence[ToolingObject]) -> Query:
    """Parse and validate a query.

    :raises ApiError: if the query is invalid.
    """
    query = parse(text, _ToolingEntities(objects))
    _check_filters(query)
    return query


def _check_filters(query: Query) -> None:
    if query.counts:
        raise ApiError("MALFORMED_QUERY", "COUNT of a field is not modelled by the local org in tooling queries")
    looked_at = query.compared | {field.column for field, _ in query.order}
    for column in sorted(_ONE_ROW_FIELDS & looked_at):
        raise ApiError("INVALID_FIELD", f"field '{column}' can not be filtered or sorted in a query call")
