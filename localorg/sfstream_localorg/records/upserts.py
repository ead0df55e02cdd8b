"""Upserts: which records of a request are new, by an external ID or by their record id.

An external ID need not be unique: a value that several records have updates none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.record_values import stored_value
from sfstream_localorg.records.sobjects import Operation, SObjects
from sfstream_localorg.records.values import from_json


def external_id_column(entity: Entity, name: str) -> str:
    """Return the external ID field called ``name`` in any letter case, or ``Id``.

    :raises ApiError: ``NOT_FOUND`` if the entity has no such field, or it is no external ID.
    """
    known = ["Id", *(field.name for field in entity.fields if field.external_id)]
    column = next((one for one in known if one.lower() == name.lower()), None)
    if column is None:
        raise not_found(f"Provided external ID field does not exist or is not accessible: {name}")
    return column


def matching(sobjects: SObjects, entity: Entity, column: str, value: Any) -> list[StoredRecord]:
    """Return the records, deleted ones aside, that have a value in an external ID field, by id.

    :param value: as JSON or a URL gave it.
    :raises ApiError: if it is not one of the field's type.
    """
    return sobjects.find(entity, column, [from_json(column, entity.columns[column].type, value)])


def upserts(
    sobjects: SObjects, entity: Entity, column: str, records: Sequence[Mapping[str, Any] | ApiError]
) -> list[Operation | ApiError]:
    """Return what to do with each record: create it, update the one that there is, or refuse it.

    :param column: what :func:`external_id_column` returned.
    :param records: values as JSON gave them; an error is passed on.
    """
    parts = [_Part.of(entity, column, record) for record in records]
    found: dict[Any, list[str]] = defaultdict(list)
    values = [part.value for part in parts if isinstance(part, _Part) and part.value is not None]
    if column != "Id":
        for record in sobjects.find(entity, column, values):
            found[_key(stored_value(entity, record, column))].append(record.id)
    operations: list[Operation | ApiError] = []
    seen: set[Any] = set()
    for part in parts:
        if isinstance(part, ApiError):
            operations.append(part)
        elif column == "Id":
            operations.append(part.operation(entity, column, [part.value] if part.value else []))
        elif _key(part.value) in seen:
            message = f"Duplicate external id specified: {part.value}"
            operations.append(ApiError("DUPLICATE_VALUE", message, fields=(column,)))
        else:
            seen.add(_key(part.value))
            operations.append(part.operation(entity, column, found[_key(part.value)]))
    return operations


class _Part:
    """One record of a request: the value it is known by, and the others."""

    def __init__(self, value: Any, others: dict[str, Any]) -> None:
        self.value = value
        self._others = others

    @classmethod
    def of(cls, entity: Entity, column: str, record: Mapping[str, Any] | ApiError) -> _Part | ApiError:
        if isinstance(record, ApiError):
            return record
        given = next((value for name, value in record.items() if name.lower() == column.lower()), None)
        others = {name: value for name, value in record.items() if name.lower() not in (column.lower(), "attributes")}
        kind = "EntityId" if column == "Id" else entity.columns[column].type
        try:
            value = from_json(column, kind, given)
        except ApiError as error:
            return error
        if value is None and column != "Id":
            return ApiError("MISSING_ARGUMENT", f"{column} not specified")
        return cls(value, others)

    def operation(self, entity: Entity, column: str, ids: Sequence[str]) -> Operation | ApiError:
        """Return what to do, given the records that there are."""
        if len(ids) > 1:
            message = f"{column}: more than one record found for external id field: [{', '.join(ids)}]"
            return ApiError("DUPLICATE_EXTERNAL_ID", message)
        if ids:
            return Operation("UPDATE", entity, ids[0], self._others)
        new = self._others if self.value is None else {**self._others, column: self.value}
        return Operation("CREATE", entity, None, new)


def _key(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value
