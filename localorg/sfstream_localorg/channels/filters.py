"""Filter expressions of channel members. Pure.

An expression has SOQL comparisons joined by ``AND``, ``OR`` and parentheses. They compare the fields of a platform
event; or the fields of a record and, as ``ChangeEventHeader.changeType``, of the header of its change event
(Salesforce's guides to platform events and to Change Data Capture, "Filter Expression Format"). Date literals like
``TODAY`` and long texts are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.entity import Entity, Record
from sfstream_localorg.records.fields import Field
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.record_values import SYSTEM_COLUMNS
from sfstream_localorg.records.soql import no_parents, parse_where
from sfstream_localorg.records.text_diffs import LONG_TEXTS

HEADER = "ChangeEventHeader"
_PREFIX = f"{HEADER}__"
_HEADER_TYPES = {
    **dict.fromkeys(("entityName", "changeType", "changeOrigin", "transactionKey", "commitUser"), "Text"),
    **dict.fromkeys(("sequenceNumber", "commitTimestamp", "commitNumber"), "Double"),
}
_TEXT_OR_PATH = re.compile(rf"'(?:\\.|[^'\\])*'|\b{HEADER}\.", re.IGNORECASE)
_EVENT_TYPES = {
    **dict.fromkeys(("string", "text", "textarea"), "Text"),
    **dict.fromkeys(("double", "number", "int", "long"), "Double"),
    **{"datetime": "DateTime", "date": "DateOnly", "boolean": "Boolean"},
}

Matches = Callable[[Record, Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Filter:
    """A parsed filter.

    :param matches: returns whether an event meets the filter, for the values of the record (or of the platform event)
        by column and the header of the change event.
    :param columns: columns of the record that the filter compares.
    """

    matches: Matches
    columns: frozenset[str]


def filter_of_record(text: str, entity: Entity) -> Filter:
    """Parse a filter of an entity's change events.

    :raises ApiError: ``INVALID_INPUT``, if Salesforce would refuse the expression.
    """
    header = tuple(Field(_PREFIX + name, kind) for name, kind in _HEADER_TYPES.items())
    return _filter(text, Entity(entity.event_name, "", (*entity.fields, *header)))


def filter_of_event(text: str, name: str, fields: Sequence[Mapping[str, Any]]) -> Filter:
    """Parse a filter of a platform event.

    :param fields: the event's custom fields, as defined by the user.
    :raises ApiError: ``INVALID_INPUT``, if Salesforce would refuse the expression.
    """
    known = tuple(Field(str(one["name"]), _EVENT_TYPES[str(one["type"]).lower()]) for one in fields)
    system = (Field("CreatedDate", "DateTime"), Field("CreatedById", "EntityId"))
    return _filter(text, Entity(name, "", (*system, *known)))


def _filter(text: str, entity: Entity) -> Filter:
    try:
        # In SOQL a path leads to a parent record; here it leads to the header, so the header's fields become columns.
        flat = _TEXT_OR_PATH.sub(lambda match: match[0] if match[0][0] == "'" else _PREFIX, text)
        condition, columns = parse_where(flat, entity)
    except ApiError as error:
        raise _refused(error.message.replace(_PREFIX, f"{HEADER}.")) from None
    long = {name for name in columns if name in entity.columns and entity.columns[name].type in LONG_TEXTS}
    if wrong := sorted(long | (columns & set(SYSTEM_COLUMNS))):
        raise _refused(f"The field {wrong[0]} isn't supported in a filter expression.")

    def matches(record: Record, header: Mapping[str, Any]) -> bool:
        content = {**record, **{_PREFIX + name: header.get(name) for name in _HEADER_TYPES}}
        return condition.matches(StoredRecord("", entity.name, content, 0), no_parents)

    return Filter(matches, frozenset(name for name in columns if not name.startswith(_PREFIX)))


def _refused(message: str) -> ApiError:
    return ApiError("INVALID_INPUT", f"The filterExpression field is invalid: {message}", fields=("FilterExpression",))
