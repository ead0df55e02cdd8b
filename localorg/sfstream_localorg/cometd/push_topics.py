"""PushTopics: a SOQL query; changes of records that match it become events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sfstream_localorg.bus.event_bus import BusEvent
from sfstream_localorg.cometd.payloads import iso_moment, json_event
from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.change_events import Change
from sfstream_localorg.records.entities import Entities
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.record_values import readable, show, stored_value
from sfstream_localorg.records.soql import Query, parse
from sfstream_localorg.records.soql.conditions import Negation, parts

LONGEST_NAME = 25
LONGEST_QUERY = 1300
NOTIFY_FOR_FIELDS = ("All", "Referenced", "Select", "Where")
_OPERATIONS = {"CREATE": "created", "UPDATE": "updated", "DELETE": "deleted", "UNDELETE": "undeleted"}
_MOMENTS = ("DateTime", "CreatedDate")


@dataclass(frozen=True)
class PushTopic:
    """A parsed PushTopic record. ``types`` are the event types that it publishes."""

    name: str
    query: Query
    notify_for_fields: str
    types: frozenset[str]

    @property
    def channel(self) -> str:
        """The channel that clients subscribe to."""
        return f"/topic/{self.name}"

    @classmethod
    def from_record(cls, content: Mapping[str, Any], entities: Entities) -> PushTopic:
        """Parse a PushTopic record.

        :raises ApiError: if the name is too long, the query is invalid for a PushTopic, or ``NotifyForFields`` is
            unknown.
        """
        name, notify = str(content["Name"]), content.get("NotifyForFields")
        if len(name) > LONGEST_NAME:
            message = f"Topic Name: data value too large: {name} (max length={LONGEST_NAME})"
            raise ApiError("STRING_TOO_LONG", message, fields=("Name",))
        if notify not in NOTIFY_FOR_FIELDS:
            message = f"Notify For Fields: bad value for restricted picklist field: {notify}"
            raise ApiError("INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST", message, fields=("NotifyForFields",))
        types = {event for event in _OPERATIONS.values() if content.get(f"NotifyForOperation{_operation_name(event)}")}
        return cls(name, _query(str(content["Query"]), entities), notify, frozenset(types))

    def event(self, change: Change, timestamp: int) -> BusEvent | None:
        """Return the event for a change of a record, ``None`` if the PushTopic publishes none for it.

        :param timestamp: milliseconds since the epoch.
        """
        event_type = _OPERATIONS[change.type]
        record = StoredRecord(change.record_id, change.entity.name, dict(change.record), timestamp // 1000 * 1000)
        if event_type not in self.types or change.entity.name != self.query.entity.name:
            return None
        if not self.query.matches(record) or not self._notifies(change):
            return None
        columns = ("Id",) if change.type == "DELETE" else self.query.columns
        body = {name: _column_json(change, record, name) for name in columns}
        return BusEvent(self.channel, "", json_event(iso_moment(timestamp), type=event_type, sobject=body))

    def _notifies(self, change: Change) -> bool:
        if change.type != "UPDATE" or self.notify_for_fields == "All":
            return True
        selected, compared = set(self.query.columns), set(self.query.compared)
        watched = {"Select": selected, "Where": compared, "Referenced": selected | compared}[self.notify_for_fields]
        return bool(watched & change.columns)


def _operation_name(event_type: str) -> str:
    return event_type.removesuffix("d").capitalize()


def _query(text: str, entities: Entities) -> Query:
    try:
        query = parse(text, entities)
    except ApiError as error:
        raise _bad_query(error.message, error.code) from None
    if len(text) > LONGEST_QUERY:
        message = f"SOQL Query: data value too large (max length={LONGEST_QUERY})"
        raise ApiError("STRING_TOO_LONG", message, fields=("Query",))
    if not query.entity.has_change_events:
        raise _bad_query(f"The entity {query.entity.name} is not supported")
    if query.counts:
        raise _bad_query("Aggregate queries are not supported")
    if query.parents:
        raise _bad_query("relationships are not supported")
    if any(isinstance(part, Negation) for part in parts(query.condition)):
        raise _bad_query("'NOT' is not supported")
    if "Id" not in query.columns:
        raise _bad_query("The Id field must be in the SELECT clause")
    if query.order or query.limit is not None or query.offset:
        raise _bad_query("ORDER BY, LIMIT and OFFSET are not supported")
    return query


def _bad_query(reason: str, code: str = "INVALID_FIELD") -> ApiError:
    return ApiError(code, f"Invalid SOQL query of a PushTopic: {reason}", fields=("Query",))


def _column_json(change: Change, record: StoredRecord, name: str) -> Any:
    if readable(change.entity)[name] in _MOMENTS:
        moment = stored_value(change.entity, record, name)
        return None if moment is None else iso_moment(moment)
    return show(change.entity, record, [name])[name]
