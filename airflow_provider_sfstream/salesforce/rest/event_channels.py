"""Tooling API client for records of custom channels and their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_sfstream.exceptions import TopicNotFoundError
from airflow_provider_sfstream.salesforce.event_channels import ChannelMember, ChannelType, member_name
from airflow_provider_sfstream.salesforce.rest.tooling import ToolingRecordsClient, soql_text

FIRST_API_VERSION = 56
"""The first API version with filters (Metadata API guide, "PlatformEventChannelMember")."""

_CHANNEL = "PlatformEventChannel"
_MEMBER = "PlatformEventChannelMember"
_MEMBERS = "the members of the org's channels"


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
        records = [_member(row) for row in members if row is not None]
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


def _member(row: Mapping[str, Any]) -> ChannelMemberRecord:
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
