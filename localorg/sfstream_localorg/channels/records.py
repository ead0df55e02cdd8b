"""Records of custom channels and their members: create, find, change and delete.

The topics store them, so channels created by the admin API have records too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sfstream_localorg.bus.topics import CHANGE_EVENTS, Selection, TopicDefinition, TopicRegistry
from sfstream_localorg.channels.filters import filter_of_event, filter_of_record
from sfstream_localorg.channels.settings import CHANNEL_TYPES
from sfstream_localorg.errors import ApiError
from sfstream_localorg.identifiers import derived
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.text_diffs import LONG_TEXTS

CHANNEL_PREFIX, MEMBER_PREFIX = "0YL", "0v8"
_TAKEN = "The developer name you provided is already in use. Choose a different name."


@dataclass(frozen=True)
class MemberRecord:
    """A member of a channel; ``topic`` is the topic of its entity."""

    channel: TopicDefinition
    topic: str

    @property
    def id(self) -> str:
        """Record id: 18 characters, ``0v8...``."""
        return derived(MEMBER_PREFIX, f"{self.channel.name} {self.topic}")

    @property
    def selection(self) -> Selection:
        """Settings of the member."""
        return self.channel.selection(self.topic)


class ChannelRecords:
    """All custom channels of one org, and their members.

    :param entity: returns the entity of a change event's topic.
    """

    def __init__(self, topics: TopicRegistry, entity: Callable[[str], Entity]) -> None:
        self._topics = topics
        self._entity = entity

    def channels(self) -> list[TopicDefinition]:
        """Return all custom channels, sorted by topic."""
        return [one for one in self._topics.all() if one.kind == "channel" and one.name != CHANGE_EVENTS]

    def members(self) -> Iterator[MemberRecord]:
        """Yield the members of all custom channels."""
        return (MemberRecord(channel, topic) for channel in self.channels() for topic in channel.members)

    def create_channel(self, full_name: str, channel_type: str, label: str) -> TopicDefinition:
        """Create a channel without members.

        :raises ApiError: if a channel of either type has this name.
        """
        if any(full_name.lower() == name_of(one).lower() for one in self.channels()):
            raise ApiError("DUPLICATE_DEVELOPER_NAME", _TAKEN, fields=("DeveloperName",))
        topic = CHANNEL_TYPES[channel_type] + full_name
        return self._topics.put_channel(TopicDefinition(topic, "channel", label=label))

    def change_channel(self, channel: TopicDefinition, channel_type: str, label: str) -> None:
        """Change a channel's label.

        :raises ApiError: if ``channel_type`` differs from the type of the channel.
        """
        if channel_type != type_of(channel):
            raise ApiError("INVALID_INPUT", "You can't change the channelType field of a channel.")
        self._topics.put_channel(replace(channel, label=label))

    def delete_channel(self, channel: TopicDefinition) -> None:
        """Delete a channel and its members."""
        self._topics.remove_channel(channel.name)

    def create_member(
        self, full_name: str, channel_name: str, entity: str, expression: str, fields: tuple[str, ...]
    ) -> MemberRecord:
        """Add a member to a channel.

        :raises ApiError: if Salesforce would refuse it.
        """
        channel = next((one for one in self.channels() if name_of(one) == channel_name), None)
        if channel is None:
            hint = " (ChangeEvents is not modelled by the local org)" if channel_name == "ChangeEvents" else ""
            raise ApiError("INVALID_INPUT", f"The eventChannel field is invalid: {channel_name}{hint}")
        prefix = CHANNEL_TYPES[type_of(channel)]
        topic = self._topics.get(prefix + entity)
        if topic is None or topic.kind == "channel":
            raise ApiError("INVALID_INPUT", f"The selectedEntity field is invalid: {entity}")
        if any(one.selection.developer_name.lower() == full_name.lower() for one in self.members()):
            raise ApiError("DUPLICATE_DEVELOPER_NAME", _TAKEN, fields=("DeveloperName",))
        if topic.name in channel.members:
            raise ApiError("DUPLICATE_VALUE", f"duplicate value found: {entity} is a member of {channel_name} already")
        selection = self._validated(topic, Selection(full_name, expression, fields))
        members, selections = (*channel.members, topic.name), {**channel.selections, topic.name: selection}
        return MemberRecord(self._put(channel, members, selections), topic.name)

    def change_member(
        self, member: MemberRecord, channel_name: str, entity: str, expression: str, fields: tuple[str, ...]
    ) -> None:
        """Change the filter and the enriched fields of a member.

        :raises ApiError: if the channel or the entity differs from the member's, or Salesforce would refuse the change.
        """
        if (channel_name, entity) != (name_of(member.channel), entity_of(member)):
            raise ApiError("INVALID_INPUT", "You can't change the eventChannel and selectedEntity fields of a member.")
        topic = self._topics.get(member.topic)
        if topic is None:
            raise ApiError("INVALID_INPUT", f"The selectedEntity field is invalid: {entity}")
        changed = replace(member.selection, filter_expression=expression, enriched_fields=fields)
        selections = {**member.channel.selections, member.topic: self._validated(topic, changed)}
        self._put(member.channel, member.channel.members, selections)

    def delete_member(self, member: MemberRecord) -> None:
        """Remove a member from its channel."""
        channel = member.channel
        members = tuple(topic for topic in channel.members if topic != member.topic)
        self._put(channel, members, {topic: channel.selection(topic) for topic in members})

    def _put(
        self, channel: TopicDefinition, members: tuple[str, ...], selections: dict[str, Selection]
    ) -> TopicDefinition:
        return self._topics.put_channel(replace(channel, members=members, selections=selections))

    def _validated(self, topic: TopicDefinition, selection: Selection) -> Selection:
        if topic.kind == "platform_event":
            if selection.enriched_fields:
                raise ApiError("INVALID_INPUT", "Enriched fields are supported for change events only.")
            filter_of_event(selection.filter_expression or "CreatedById != null", str(topic.event_name), topic.fields)
            return selection
        entity = self._entity(topic.name)
        if selection.filter_expression:
            filter_of_record(selection.filter_expression, entity)
        known = {field.name: field.type for field in entity.fields}
        for name in selection.enriched_fields:
            if known.get(name, "StringPlusClob") in LONG_TEXTS:
                message = f"The enrichedFields field is invalid: {name} isn't a supported field of {entity.event_name}"
                raise ApiError("INVALID_INPUT", message)
        return selection


def name_of(channel: TopicDefinition) -> str:
    """Return the full name of a channel: ``Sales__chn``."""
    return channel.name.rpartition("/")[2]


def type_of(channel: TopicDefinition) -> str:
    """Return the type of a channel: ``event`` or ``data``."""
    return channel.name.split("/")[1]


def entity_of(member: MemberRecord) -> str:
    """Return the selected entity of a member: ``AccountChangeEvent``."""
    return member.topic.rpartition("/")[2]


def id_of(channel: TopicDefinition) -> str:
    """Return the record id of a channel: 18 characters, ``0YL...``."""
    return derived(CHANNEL_PREFIX, channel.name)
