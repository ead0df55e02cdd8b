"""Custom channels, with members, filters and enriched fields, and the client of their records on the Tooling API.

Source of the protocol facts: ``PlatformEventChannel`` and ``PlatformEventChannelMember`` of the Tooling API reference;
"Change Event Filters" and "Enrich Change Events with Extra Fields" of the Change Data Capture guide.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_sfstream.exceptions import ConfigurationError, TopicNotFoundError
from airflow_provider_sfstream.salesforce.rest.tooling import ToolingRecordsClient, soql_text

FIRST_API_VERSION = 56
"""The first API version with filters (Metadata API guide, "PlatformEventChannelMember")."""

ChannelType = Literal["data", "event"]

_SUFFIX = "__chn"
_CHANNEL_NAME = re.compile(rf"[A-Za-z](?:_?[A-Za-z0-9])*{_SUFFIX}")
_ENTITY = re.compile(r"[A-Za-z](?:_{0,2}[A-Za-z0-9])*")
_FIELD = re.compile(r"[A-Za-z](?:_{0,2}[A-Za-z0-9])*")
_LONGEST_NAME = 80
_DIGITS_OF_HASH = 8
_NOTHING = "Nothing was contacted."
_CHANNEL = "PlatformEventChannel"
_MEMBER = "PlatformEventChannelMember"
_MEMBERS = "the members of the org's channels"


@dataclass(frozen=True)
class ChannelMember:
    """A member of a channel.

    :param entity: the selected entity: ``AccountChangeEvent``, ``Shipment__ChangeEvent``, ``Order__e``.
    :param filter: expression that selects its events; ``None`` for all events.
    :param enriched_fields: fields that its update and delete events contain besides the changed fields.
    """

    entity: str
    filter: str | None = None
    enriched_fields: tuple[str, ...] = ()

    def equals(self, other: ChannelMember) -> bool:
        """Return whether another member delivers the same events: the order of enriched fields does not matter."""
        own_fields, other_fields = ({name.lower() for name in member.enriched_fields} for member in (self, other))
        return (self.entity, self.filter) == (other.entity, other.filter) and own_fields == other_fields

    def as_dict(self) -> dict[str, Any]:
        """Return the member as a JSON object."""
        return {"entity": self.entity, "filter": self.filter, "enriched_fields": list(self.enriched_fields)}

    def __str__(self) -> str:
        filtered = f" where {self.filter}" if self.filter else ""
        enriched = f" with {', '.join(self.enriched_fields)}" if self.enriched_fields else ""
        return f"{self.entity}{filtered}{enriched}"


def channel_name(text: object) -> str:
    """Return the full name of a custom channel: ``Sales__chn``."""
    if text == "ChangeEvents":
        raise ConfigurationError(
            "ChangeEvents is the standard channel: it cannot be created or deleted, and its members are selected "
            f"in Setup, under Change Data Capture. Use a custom channel, for example Sales__chn. {_NOTHING}"
        )
    short = text.removesuffix(_SUFFIX) if isinstance(text, str) else ""
    if not isinstance(text, str) or not _CHANNEL_NAME.fullmatch(text) or len(short) > _LONGEST_NAME:
        raise ConfigurationError(
            f"channel={text!r} is not the full name of a custom channel (example: Sales__chn): at most {_LONGEST_NAME} "
            f"letters, digits and single underscores, beginning with a letter, and {_SUFFIX}. {_NOTHING}"
        )
    return text


def members_of(
    members: Sequence[str],
    filters: Mapping[str, str] | None = None,
    enriched_fields: Mapping[str, Sequence[str]] | None = None,
) -> tuple[ChannelMember, ...]:
    """Return the members of a channel, in the given order.

    :param members: their selected entities: all change events, or all platform events.
    """
    entities = _names("members", members)
    invalid = [name for name in entities if not _ENTITY.fullmatch(name) or name.endswith((_SUFFIX, "__c"))]
    if invalid or not entities:
        reason = f"{invalid[0]!r} is not a selected entity" if invalid else "the list is empty"
        raise ConfigurationError(
            f"members={members!r}: {reason}. List at least one change event (AccountChangeEvent, "
            "Shipment__ChangeEvent) or platform event (Order__e): the members determine the type of the channel. "
            f"{_NOTHING}"
        )
    if len({type_of(name) for name in entities}) > 1:
        raise ConfigurationError(
            f"members={list(entities)!r}: a channel contains change events or platform events, never both. {_NOTHING}"
        )
    filters, enriched_fields = _by_entity("filters", filters), _by_entity("enriched_fields", enriched_fields)
    for argument, settings in (("filters", filters), ("enriched_fields", enriched_fields)):
        if unknown := [name for name in settings if name not in entities]:
            raise ConfigurationError(f"{argument} contains {unknown[0]!r}, which is not a member. {_NOTHING}")
    return tuple(_member(name, filters.get(name), enriched_fields.get(name)) for name in entities)


def type_of(entity: str) -> ChannelType:
    """Return the type of the channels that can have an entity as a member."""
    return "data" if entity.endswith("ChangeEvent") else "event"


def topic_of(channel: str, channel_type: str) -> str:
    """Return the topic to subscribe to: ``/data/Sales__chn``."""
    return f"/{channel_type}/{channel}"


def member_name(channel: str, entity: str) -> str:
    """Return the full name for a new member: ``Sales_chn_AccountChangeEvent``.

    Salesforce requires single underscores and at most 80 characters: a longer name is cut, and ends with a hash of the
    whole name.
    """
    name = f"{channel}_{entity}".replace("__", "_")
    if len(name) <= _LONGEST_NAME:
        return name
    digits = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS_OF_HASH]
    return f"{name[: _LONGEST_NAME - _DIGITS_OF_HASH - 1].rstrip('_')}_{digits}"


def _member(entity: str, expression: object, fields: object) -> ChannelMember:
    if expression is not None and (not isinstance(expression, str) or not expression.strip()):
        raise ConfigurationError(
            f"filters[{entity!r}] must be an expression, for example \"Industry = 'Energy'\"; omit it for all events. "
            f"{_NOTHING}"
        )
    names = _names(f"enriched_fields[{entity!r}]", () if fields is None else fields)
    if invalid := [name for name in names if not _FIELD.fullmatch(name)]:
        raise ConfigurationError(f"enriched_fields[{entity!r}]: {invalid[0]!r} is not the name of a field. {_NOTHING}")
    if names and type_of(entity) == "event":
        raise ConfigurationError(
            f"enriched_fields contains {entity!r}: a platform event already contains all its fields. {_NOTHING}"
        )
    return ChannelMember(entity, expression.strip() if isinstance(expression, str) else None, names)


def _names(argument: str, value: object) -> tuple[str, ...]:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    names: tuple[str, ...] = tuple(value) if is_list else ()  # type: ignore[arg-type]
    if not is_list or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"{argument} must be a list of names, not {value!r}. {_NOTHING}")
    if duplicates := [name for name in names if [other.lower() for other in names].count(name.lower()) > 1]:
        raise ConfigurationError(f"{argument} contains {duplicates[0]!r} twice. {_NOTHING}")
    return names


def _by_entity(argument: str, value: object) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"{argument} must be a dict with members of the channel as keys. {_NOTHING}")
    return value or {}


@dataclass(frozen=True)
class EventChannelRecord:
    """Record of a custom channel in the org. Its type, ``data`` or ``event``, cannot change after creation."""

    id: str
    name: str
    type: str
    label: str

    def __str__(self) -> str:
        return f"channel {self.name} ({self.id})"


@dataclass(frozen=True)
class ChannelMemberRecord:
    """Record of a channel member in the org; its channel and entity cannot change after creation."""

    id: str
    name: str
    channel: str
    member: ChannelMember

    def __str__(self) -> str:
        return f"member {self.member.entity} of channel {self.channel} ({self.id})"


class EventChannelClient(ToolingRecordsClient):
    """Client that creates, reads, changes and deletes custom channels and their members.

    Reading needs the user permission "View Setup and Configuration", other calls "Customize Application". Changes
    affect an open subscription within about 10 minutes. Salesforce no longer delivers the events of a removed member:
    callers ask for confirmation, this class does not.
    """

    first_api_version = FIRST_API_VERSION
    needs_version = "filters of custom channels require"
    checked = _MEMBER, _MEMBERS

    def find(self, name: str) -> EventChannelRecord | None:
        """Return the record of the channel with a full name; ``None`` if it does not exist or is hidden."""
        developer_name, what = name.removesuffix("__chn"), f"channel {name}"
        where = f"DeveloperName = {soql_text(developer_name)}"
        for row in self._query(f"SELECT Id, NamespacePrefix FROM {_CHANNEL} WHERE {where}", what):  # noqa: S608
            record = None if row.get("NamespacePrefix") else self._get(_CHANNEL, str(row["Id"]), what)
            if record is not None:
                return _channel(record, name)
        return None

    def create(self, name: str, channel_type: ChannelType, label: str) -> EventChannelRecord:
        """Create a channel without members, and return the stored record."""
        what = f"channel {name}"
        self._post(_CHANNEL, name, {"channelType": channel_type, "label": label}, what)
        record = self.find(name)
        if record is None:
            raise TopicNotFoundError(f"{what}: it was created, but Salesforce does not return it. Run the task again.")
        return record

    def relabel(self, record: EventChannelRecord, label: str) -> None:
        """Change the label of a channel, its only mutable field."""
        self._patch(_CHANNEL, record.id, record.name, {"channelType": record.type, "label": label}, str(record))

    def delete(self, record: EventChannelRecord) -> bool:
        """Delete a channel; return whether it existed until now."""
        return self._delete(_CHANNEL, record.id, str(record))

    def members(self, channel: str) -> Sequence[ChannelMemberRecord]:
        """Return the members of a channel, by entity. Sends one request for each member of any channel of the org.

        Salesforce returns the settings of one record per request, and does not document a query for the channel of a
        member.
        """
        rows = self._query(f"SELECT Id FROM {_MEMBER}", _MEMBERS)  # noqa: S608
        members = (self._get(_MEMBER, str(row["Id"]), f"channel member {row['Id']}") for row in rows)
        records = [_member_record(row) for row in members if row is not None]
        of_channel = [record for record in records if record.channel.lower() == channel.lower()]
        return sorted(of_channel, key=lambda record: record.member.entity)

    def add(self, channel: str, member: ChannelMember) -> None:
        """Add a member to a channel."""
        what = f"member {member.entity} of channel {channel}"
        self._post(_MEMBER, member_name(channel, member.entity), _metadata(channel, member), what)

    def change(self, record: ChannelMemberRecord, member: ChannelMember) -> None:
        """Change filter and enriched fields of a member."""
        self._patch(_MEMBER, record.id, record.name, _metadata(record.channel, member), str(record))

    def remove(self, record: ChannelMemberRecord) -> bool:
        """Remove a member from its channel; return whether it existed until now."""
        return self._delete(_MEMBER, record.id, str(record))


def _metadata(channel: str, member: ChannelMember) -> dict[str, Any]:
    return {
        "eventChannel": channel,
        "selectedEntity": member.entity,
        "filterExpression": member.filter,
        "enrichedFields": [{"name": name} for name in member.enriched_fields],
    }


def _channel(row: Mapping[str, Any], name: str) -> EventChannelRecord:
    metadata = row["Metadata"]
    full_name = str(row.get("FullName") or name)
    return EventChannelRecord(
        str(row["Id"]), full_name, str(metadata.get("channelType") or ""), str(metadata.get("label") or "")
    )


def _member_record(row: Mapping[str, Any]) -> ChannelMemberRecord:
    metadata = row["Metadata"]
    fields = metadata.get("enrichedFields") or ()
    member = ChannelMember(
        str(metadata.get("selectedEntity") or ""),
        str(metadata.get("filterExpression") or "").strip() or None,
        tuple(str(field.get("name")) for field in fields if isinstance(field, Mapping)),
    )
    return ChannelMemberRecord(
        str(row["Id"]),
        str(row.get("FullName") or row.get("DeveloperName") or ""),
        str(metadata.get("eventChannel") or ""),
        member,
    )
