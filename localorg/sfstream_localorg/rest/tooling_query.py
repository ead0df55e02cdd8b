"""Tooling queries of ManagedEventSubscription. Pure.

``Metadata`` and ``FullName`` can be selected only by a query that finds one record, and not filtered, as in Salesforce.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.managed.settings import OBJECT
from sfstream_localorg.managed.subscriptions import KEY_PREFIX, ManagedRecord
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.record_values import readable, show
from sfstream_localorg.records.soql import Query, parse

_FIELDS = (
    *(("DeveloperName", "Text"), ("MasterLabel", "Text"), ("Language", "StaticEnum"), ("NamespacePrefix", "Text")),
    *(("ManageableState", "StaticEnum"), ("Version", "Text"), ("FullName", "Text"), ("Metadata", "Text")),
    *(("CreatedDate", "CreatedDate"), ("CreatedById", "EntityId")),
    *(("LastModifiedDate", "DateTime"), ("LastModifiedById", "EntityId")),
)
_ENTITY = Entity(OBJECT, KEY_PREFIX, tuple(Field(name, kind) for name, kind in _FIELDS), has_change_events=False)
_ONE_ROW = {"Metadata", "FullName"}


class _ToolingEntities:
    """The objects of the Tooling API, as a query looks them up."""

    def __init__(self, *entities: Entity) -> None:
        self._entities = {entity.name.lower(): entity for entity in entities}

    def get(self, name: str) -> Entity | None:
        return self._entities.get(name.lower())


def columns_of() -> tuple[str, ...]:
    """Return every field of the object."""
    return tuple(readable(_ENTITY))


def run(text: str, records: Sequence[ManagedRecord] | None, *, base: str, user_id: str) -> dict[str, Any]:
    """Return the answer to a query.

    :param records: all there are; ``None`` if the API version does not have the object.
    :param base: the path of the API version.
    :raises ApiError: if the query cannot be answered.
    """
    query = parse(text, _ToolingEntities() if records is None else _ToolingEntities(_ENTITY))
    _check_filters(query)
    rows = {record.id: record for record in records or ()}
    found = query.select([_stored(record, user_id) for record in rows.values()])
    if _ONE_ROW & set(query.columns) and len(found) > 1:
        message = (
            "When retrieving results with Metadata or FullName fields, the query qualifications must specify no more "
            f"than one row for retrieval. Result size: {len(found)}"
        )
        raise ApiError("MALFORMED_QUERY", message)
    shown_rows = [shown(rows[one.id], query.columns, base=base, user_id=user_id) for one in found if query.columns]
    return {
        "size": len(found),
        "totalSize": len(found),
        "done": True,
        "queryLocator": None,
        "entityTypeName": OBJECT,
        "records": shown_rows,
    }


def shown(record: ManagedRecord, columns: Sequence[str], *, base: str, user_id: str) -> dict[str, Any]:
    """Return columns of a record as REST shows them."""
    attributes = {"type": OBJECT, "url": f"{base}/tooling/sobjects/{OBJECT}/{record.id}"}
    return {"attributes": attributes, **show(_ENTITY, _stored(record, user_id), columns)}


def _check_filters(query: Query) -> None:
    if query.counts:
        raise ApiError("MALFORMED_QUERY", "COUNT of a field is not modelled by the local org in tooling queries")
    looked_at = query.compared | {field.column for field, _ in query.order}
    for column in sorted(_ONE_ROW & looked_at):
        raise ApiError("INVALID_FIELD", f"field '{column}' can not be filtered or sorted in a query call")


def _stored(record: ManagedRecord, user_id: str) -> StoredRecord:
    created, changed = int(record.created_at * 1000), int(record.changed_at * 1000)
    content = {
        "DeveloperName": record.developer_name,
        "MasterLabel": record.settings.label,
        "Language": "en_US",
        "ManageableState": "unmanaged",
        "Version": record.settings.version,
        "FullName": record.developer_name,
        "Metadata": record.settings.as_metadata(),
        "CreatedDate": created,
        "CreatedById": user_id,
        "LastModifiedDate": changed,
        "LastModifiedById": user_id,
    }
    return StoredRecord(record.id, OBJECT, content, changed)
