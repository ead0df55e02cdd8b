"""Conversion of rows of Bulk API 2.0 ingest jobs to operations on records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.change_events import ChangeType
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.record_values import readable
from sfstream_localorg.records.sobjects import Operation, SObjects
from sfstream_localorg.records.upserts import upserts
from sfstream_localorg.records.values import from_json

OPERATIONS = ("insert", "update", "upsert", "delete", "hardDelete")
_CHANGE_TYPES: dict[str, ChangeType] = {
    "insert": "CREATE",
    "update": "UPDATE",
    **dict.fromkeys(("delete", "hardDelete"), "DELETE"),
}
_NULL = "#N/A"
_BOOLEANS = {
    **dict.fromkeys(("yes", "y", "true", "on", "1"), True),
    **dict.fromkeys(("no", "n", "false", "off", "0"), False),
}


@dataclass(frozen=True)
class RowReader:
    """Converter of the rows of one job.

    :param operation: one of ``OPERATIONS``.
    :param external_id: external ID field of an upsert, or ``Id``; ``None`` for the other operations.
    :param header: uploaded field names.
    :raises ValueError: if the header is invalid for the operation. The text is Salesforce's, if it is known.
    """

    entity: Entity
    operation: str
    external_id: str | None
    header: Sequence[str]

    def __post_init__(self) -> None:
        names = [name.lower() for name in self.header]
        if self.operation in ("delete", "hardDelete") and names != ["id"]:
            raise ValueError(f"InvalidBatch : The '{self.operation}' batch must contain only ids.")
        known = {name.lower() for name in readable(self.entity)}
        for name in self.header:
            if name.lower() not in known:
                hint = " (relationships are not modelled by the local org)" if "." in name else ""
                raise ValueError(f"InvalidBatch : Field name not found : {name}{hint}")
        wanted = "Id" if self.operation == "update" else self.external_id
        # An upsert by Id may omit the column; then all its records are new.
        if wanted is not None and wanted.lower() not in names and (self.operation, wanted) != ("upsert", "Id"):
            raise ValueError(f"InvalidBatch : Field name not found : {wanted}")
        if len(set(names)) < len(names):
            raise ValueError("InvalidBatch : a field is named twice (not modelled by the local org)")

    def operations(self, sobjects: SObjects, rows: Sequence[Sequence[str]]) -> list[Operation | ApiError]:
        """Return the operation or the error of each row."""
        values = [self._values(row) for row in rows]
        return operations_of(sobjects, self.entity, self.operation, self.external_id, values)

    def record_id(self, row: Sequence[str]) -> str:
        """Return the record id in a row, empty if the row has none."""
        return next((cell for name, cell in zip(self.header, row, strict=True) if name.lower() == "id"), "")

    def _values(self, row: Sequence[str]) -> dict[str, Any] | ApiError:
        """Return the values of a row as JSON values. Empty cells are omitted; ``#N/A`` is null."""
        columns = {name.lower(): column for name, column in self.entity.columns.items()}
        values: dict[str, Any] = {}
        for name, cell in zip(self.header, row, strict=True):
            if cell == "":
                continue
            column = columns.get(name.lower())
            value: Any = None if cell == _NULL else cell
            if column is not None and column.type == "Boolean":
                value = _BOOLEANS.get(cell.lower(), value)
            if column is not None:
                try:
                    from_json(column.name, column.type, value)
                except ApiError as error:
                    return _not_of_type(error, column.name, cell)
            values[name] = value
        return values


def operations_of(
    sobjects: SObjects,
    entity: Entity,
    operation: str,
    external_id: str | None,
    records: Sequence[dict[str, Any] | ApiError],
) -> list[Operation | ApiError]:
    """Return the operation or the error of each record of a job.

    :param operation: one of ``OPERATIONS``.
    :param external_id: external ID field of an upsert; ``None`` for the other operations.
    :param records: JSON values; an error is returned unchanged.
    """
    if external_id is not None:
        return upserts(sobjects, entity, external_id, records)
    change_type = _CHANGE_TYPES[operation]
    return [one if isinstance(one, ApiError) else _operation(entity, change_type, one) for one in records]


def _operation(entity: Entity, change_type: ChangeType, values: dict[str, Any]) -> Operation | ApiError:
    if change_type == "CREATE":
        return Operation(change_type, entity, None, values)
    given = next((value for name, value in values.items() if name.lower() == "id"), None)
    if not given:
        article = "an update" if change_type == "UPDATE" else "a delete"
        return ApiError("MISSING_ARGUMENT", f"Id not specified in {article} call")
    others = {name: value for name, value in values.items() if name.lower() != "id"}
    try:
        return Operation(change_type, entity, from_json("Id", "EntityId", given), others)
    except ApiError as error:
        return error


def _not_of_type(error: ApiError, column: str, cell: str) -> ApiError:
    if error.code != "JSON_PARSER_ERROR":
        return error
    message = f"{column}: value not of required type: {cell}"
    return ApiError("INVALID_TYPE_ON_FIELD_IN_RECORD", message, fields=(column,))
