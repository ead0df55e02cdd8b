"""Fields of several parts, as change events nest them, and the names that REST and SOQL have for the parts."""

from __future__ import annotations

PERSON_NAMES = ("PersonName", "Switchable_PersonName")


def part_name(record: str, field: str, part: str) -> str:
    """Return the name that SOQL has for a part of a field.

    :param record: the name of the field's record in the schema of change events: ``Address``, ``PersonName``...
    """
    if record in PERSON_NAMES:
        return part
    if record in ("Address", "Location") and field.endswith("__c"):
        return f"{field.removesuffix('c')}{part}__s"
    if record == "Address" and field.endswith("Address"):
        return field.removesuffix("Address") + part
    return f"{field}_{part}"
