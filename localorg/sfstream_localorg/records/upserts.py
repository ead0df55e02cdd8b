"""Upserts by an external ID or by record id: creation or update of each record of a request.

An external ID need not be unique. A value that several records have is an error and updates none of them.
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
    """Return the external ID field ``name``, or ``Id``. The name is case-insensitive.

    :raises ApiError: ``NOT_FOUND`` if the entity has no external ID field with this name.
    """
    known = ["Id", *(field.name for field in entity.fields if field.external_id)]
    column = next((one for one in known if one.lower() == name.lower()), None)
    if column is None:
        raise not_found(f"Provided external ID field does not exist or is not accessible: {name}")
    return column


def matching(sobjects: SObjects, entity: Entity, column: str, value: Any) -> list[StoredRecord]:
    """Return the records, without deleted ones, with a value in an external ID field, sorted by id.

    :param value: value from JSON or a URL.
    :raises ApiError: if the value is not of the field's type.
    """
    return sobjects.find(entity, column, [from_json(column, entity.columns[column].type, value)])


def upserts(
    sobjects: SObjects, entity: Entity, column: str, records: Sequence[Mapping[str, Any] | ApiError]
) -> list[Operation | ApiError]:
    """Return the operation for each record: create it, update the existing record, or an error.

    :param column: result of :func:`external_id_column`.
    :param records: JSON values; an error is returned unchanged.
    """
    parts = [_UpsertRecord.of(entity, column, record) for record in records]
    found: dict[Any, list[str]] = defaultdict(list)
    values = [part.value for part in parts if isinstance(part, _UpsertRecord) and part.value is not None]
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


class _UpsertRecord:
    """One record of a request: its value in the external ID column, and its other values."""

    def __init__(self, value: Any, others: dict[str, Any]) -> None:
        self.value = value
        self._other_values = others

    @classmethod
    def of(cls, entity: Entity, column: str, record: Mapping[str, Any] | ApiError) -> _UpsertRecord | ApiError:
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
        """Return the operation, for the ids of existing records."""
        if len(ids) > 1:
            message = f"{column}: more than one record found for external id field: [{', '.join(ids)}]"
            return ApiError("DUPLICATE_EXTERNAL_ID", message)
        if ids:
            return Operation("UPDATE", entity, ids[0], self._other_values)
        new = self._other_values if self.value is None else {**self._other_values, column: self.value}
        return Operation("CREATE", entity, None, new)


def _key(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value
