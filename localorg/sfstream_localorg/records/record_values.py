"""Validation of record values, and the REST form of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.values import from_json, to_json

READ_ONLY = frozenset({"CreatedDate", "CreatedById", "LastModifiedDate", "LastModifiedById"})
_NAME_PARTS = ("Salutation", "FirstName", "LastName")
SYSTEM_COLUMNS = {"Id": "EntityId", "IsDeleted": "Boolean", "SystemModstamp": "DateTime"}
"""Columns of all records in REST that change events do not carry."""


def accept(entity: Entity, values: Mapping[str, Any], *, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Validate the values of a request, and return them by column in stored form.

    :param before: the record that the values change.
    :raises ApiError: for an unknown or read-only column, or a value of the wrong type.
    """
    columns = {name.lower(): column for name, column in entity.columns.items()}
    accepted: dict[str, Any] = {}
    for name, value in values.items():
        if name.lower() == "attributes":
            continue
        column = columns.get(name.lower())
        if column is None and name.lower() not in _readable_names(entity):
            raise ApiError("INVALID_FIELD", f"No such column '{name}' on sobject of type {entity.name}")
        if column is None or column.name in READ_ONLY:
            raise _not_writable(name)
        accepted[column.name] = from_json(column.name, column.type, value)
    _check_name(entity, {**(before or {}), **accepted}, accepted)
    return accepted


def defaults(entity: Entity, user_id: str) -> dict[str, Any]:
    """Return the default values of a new record: false for checkboxes, the user as its owner, and the entity's own."""
    content: dict[str, Any] = {name: False for name, column in entity.columns.items() if column.type == "Boolean"}
    return content | ({"OwnerId": user_id} if "OwnerId" in entity.columns else {}) | dict(entity.initial)


def check_required(entity: Entity, content: Mapping[str, Any]) -> None:
    """Check the required columns of a record. A person account requires a last name, not a name.

    :raises ApiError: ``REQUIRED_FIELD_MISSING``.
    """
    person = _switchable(entity) and _is_person(entity, content)
    required = ("LastName",) if person else entity.required
    absent = tuple(name for name in required if content.get(name) is None)
    if absent:
        message = f"Required fields are missing: [{', '.join(absent)}]"
        raise ApiError("REQUIRED_FIELD_MISSING", message, fields=absent)


def readable(entity: Entity) -> dict[str, str]:
    """Return the type names of all REST columns by column, including compound and computed fields."""
    columns = {name: column.type for name, column in entity.columns.items()}
    compound = {name: field.type for name, (field, _) in entity.compounds.items()}
    computed = {name: field.type for name, field in entity.computed.items()}
    return {**SYSTEM_COLUMNS, **compound, **columns, **computed}


def show(entity: Entity, record: StoredRecord, names: Iterable[str]) -> dict[str, Any]:
    """Return columns of a record in the REST form.

    :param names: names of the columns, keys of :func:`readable`.
    """
    return {name: _json_value(entity, record, name) for name in names}


def stored_value(entity: Entity, record: StoredRecord, name: str) -> Any:
    """Return one column in stored form, which conditions and sorting compare."""
    if name in SYSTEM_COLUMNS:
        return {"Id": record.id, "IsDeleted": record.is_deleted, "SystemModstamp": record.system_modstamp}[name]
    if name == "Name" and _is_person(entity, record.content):
        parts = (record.content.get("FirstName"), record.content.get("LastName"))
        return " ".join(part for part in parts if part)
    column = entity.columns.get(name)
    # A checkbox is never null: records created before the field was added show false, without a change event.
    return record.content.get(name, False if column and column.type == "Boolean" else None)


def _json_value(entity: Entity, record: StoredRecord, name: str) -> Any:
    if name in entity.compounds and name != "Name":
        return _compound(entity, record, name)
    column = entity.columns.get(name) or entity.computed.get(name)
    kind = column.type if column else SYSTEM_COLUMNS.get(name, "Text")
    return to_json(kind, stored_value(entity, record, name))


def _compound(entity: Entity, record: StoredRecord, name: str) -> dict[str, Any] | None:
    field, columns = entity.compounds[name]
    values = [record.content.get(column) for column in columns]
    parts = field.compound.parts if field.compound else ()
    shown = {part[0].lower() + part[1:]: value for (part, _), value in zip(parts, values, strict=True)}
    return shown if any(value is not None for value in values) else None


def _readable_names(entity: Entity) -> set[str]:
    return {name.lower() for name in readable(entity)}


def _check_name(entity: Entity, content: Mapping[str, Any], accepted: Mapping[str, Any]) -> None:
    """Refuse a name together with parts of a name: an account is a business or a person, and this never changes."""
    if _switchable(entity) and _is_person(entity, content) and content.get("Name") is not None:
        raise _not_writable(next(name for name in ("Name", *_NAME_PARTS) if name in accepted))


def _switchable(entity: Entity) -> bool:
    return any(field.compound and field.compound.or_text for field, _ in entity.compounds.values())


def _is_person(entity: Entity, content: Mapping[str, Any]) -> bool:
    return "LastName" in entity.columns and any(content.get(name) is not None for name in _NAME_PARTS)


def _not_writable(name: str) -> ApiError:
    return ApiError(
        "INVALID_FIELD_FOR_INSERT_UPDATE",
        f"Unable to create/update fields: {name}. Please check the security settings of this field and verify that "
        "it is read/write for your profile or permission set.",
        fields=(name,),
    )
