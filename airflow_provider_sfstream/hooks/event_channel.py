"""Hook of custom channels: their members, filters and enriched fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_sfstream.exceptions import AlreadyExistsError, ConfigurationError, TopicNotFoundError
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook
from airflow_provider_sfstream.salesforce.rest.event_channels import (
    ChannelMember,
    ChannelMemberRecord,
    EventChannelClient,
    EventChannelRecord,
    channel_name,
    members_of,
    topic_of,
    type_of,
)
from airflow_provider_sfstream.salesforce.rest.tooling import check_stored


@dataclass(frozen=True)
class EventChannel:
    """A custom channel of the org: ``name`` (``Sales__chn``), ``topic`` (``/data/Sales__chn``), ``label``, ``members``
    by entity."""

    name: str
    topic: str
    label: str
    members: tuple[ChannelMember, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the channel as JSON has it."""
        members = [member.as_dict() for member in self.members]
        return {"channel": self.name, "topic": self.topic, "label": self.label, "members": members}


@dataclass(frozen=True)
class EventChannelChange:
    """Result of a change: the channel now, and before (``None``: it did not exist)."""

    channel: EventChannel
    before: EventChannel | None

    @property
    def changed(self) -> bool:
        """``True`` after a change."""
        return self.channel != self.before

    def __str__(self) -> str:
        before = {member.entity: member for member in self.before.members} if self.before else {}
        after = {member.entity: member for member in self.channel.members}
        changes = [] if self.before else [f"created with the label {self.channel.label!r}"]
        if self.before and self.before.label != self.channel.label:
            changes.append(f"label {self.before.label!r} -> {self.channel.label!r}")
        changes += [f"added {after[entity]}" for entity in after if entity not in before]
        for entity in sorted(set(before) & set(after)):
            changes += _differences(before[entity], after[entity])
        changes += [f"removed {before[entity]}" for entity in before if entity not in after]
        return f"channel {self.channel.name} ({self.channel.topic}): {'; '.join(changes) or 'no change'}"


class EventChannelHook(SalesforceLoginHook):
    """Create, read, change and delete the org's custom channels: their members, filters and enriched fields.

    Every method may be repeated, also after a partial change: settings that are already as declared are not written.
    Events of a removed member are no longer delivered, not even earlier unread ones, so removals are refused without
    ``confirm_removal=True``.

    Needs API version 56.0 or above. The user needs the permission "View Setup and Configuration" to read, and
    "Customize Application" for all else.

    :param salesforce_conn_id: the Airflow connection.
    """

    def get_conn(self) -> EventChannelClient:
        """Return a new client, connected on first use; the caller closes it (``with hook.get_conn() as client``)."""
        return self._rest_client(EventChannelClient)

    def get(self, channel: str) -> EventChannel:
        """Return the channel with a full name.

        :raises TopicNotFoundError: if the org has none, or hides it from this user.
        """
        name = channel_name(channel)
        with self.get_conn() as client:
            record = client.find(name)
            if record is None:
                raise TopicNotFoundError(
                    f"channel {name}: does not exist in the org, or is hidden from this user. Check the name, the org "
                    "of the connection, and the user's permission 'View Setup and Configuration', or create the "
                    "channel with SalesforceEventChannelOperator. Nothing was changed."
                )
            return _channel(record, client.members(record.name))

    def ensure(
        self,
        channel: str,
        members: Sequence[str],
        *,
        filters: Mapping[str, str] | None = None,
        enriched_fields: Mapping[str, Sequence[str]] | None = None,
        label: str | None = None,
        confirm_removal: bool = False,
    ) -> EventChannelChange:
        """Create a channel with exactly these members, or change the settings that differ.

        :param channel: its full name: ``Sales__chn``.
        :param members: selected entities, all change events or all platform events.
        :param filters: filter expressions, by entity; all events of other entities are delivered.
        :param enriched_fields: names of fields, by entity; other entities have none.
        :param label: label in Salesforce's Setup. ``None``: unchanged; for a new channel its name with spaces.
        :param confirm_removal: required if the channel has other members, or members that get another
            filter, which may exclude more events.
        :raises ConfigurationError: if an argument cannot be used, the channel is of the other type, events would no
            longer be delivered without ``confirm_removal``, or Salesforce does not accept or store a value.
        """
        name, declared = channel_name(channel), members_of(members, filters, enriched_fields)
        channel_type = type_of(declared[0].entity)
        with self.get_conn() as client:
            record = client.find(name)
            existing = [] if record is None else client.members(record.name)
            before = None if record is None else _channel(record, existing)
            if record is not None:
                _check_type(record, channel_type)
            entities = {member.entity for member in declared}
            removed = [row for row in existing if row.member.entity not in entities]
            if removed:
                names = ", ".join(row.member.entity for row in removed)
                check_confirmed(confirm_removal, f"removing {names} from channel {name}")
            old_filters = {row.member.entity: row.member.filter for row in existing}
            filtered = [
                member.entity
                for member in declared
                if member.filter not in (None, old_filters.get(member.entity, member.filter))
            ]
            if filtered:
                check_confirmed(confirm_removal, f"changing the filter of {', '.join(filtered)} on channel {name}")
            if record is None:
                record = _find_or_create(client, name, channel_type, label)
            is_changed = bool(removed)
            if label is not None and label != record.label:
                client.relabel(record, label)
                is_changed = True
            for member in declared:
                is_changed |= _add_or_change(client, record, member, existing)
            for row in removed:
                if client.remove(row):
                    self.log.warning("Removed %s. %s", row, _undelivered(record))
            if before is not None and not is_changed:
                return EventChannelChange(before, before)
            after = _channel(client.find(name) or record, client.members(record.name))
            check_stored(f"channel {name}", _unlike(after, declared, label))
        return EventChannelChange(after, before)

    def delete(self, channel: str, *, confirm_removal: bool = False) -> EventChannel | None:
        """Delete a channel and its members. Return its former settings; ``None`` if it does not exist or is hidden.

        :raises ConfigurationError: without ``confirm_removal``. Nothing was contacted.
        """
        check_confirmed(confirm_removal, f"deleting channel {channel}")
        name = channel_name(channel)
        with self.get_conn() as client:
            record = client.find(name)
            if record is None:
                return None
            members = client.members(record.name)
            for member in members:
                client.remove(member)
            client.delete(record)
        self.log.warning("Deleted %s. %s", record, _undelivered(record))
        return _channel(record, members)

    def test_connection(self) -> tuple[bool, str]:
        """Log in and read the members of channels. Return whether that works, and the failed part otherwise."""
        return self._run_test(self.get_conn, self._test_tooling)


def check_confirmed(confirm_removal: bool, doing: str) -> None:
    """Check that a change after which events are no longer delivered is confirmed."""
    if confirm_removal is not True:
        raise ConfigurationError(
            f"{doing[:1].upper()}{doing[1:]} ends the delivery of events on the channel, possibly also of published "
            "events that no drain has read yet. Drain the channel first, and set confirm_removal=True if you accept "
            "this. Nothing was changed."
        )


def _undelivered(record: EventChannelRecord) -> str:
    return (
        f"Its events are no longer delivered on {topic_of(record.name, record.type)}, including those that no drain "
        "has read. This reaches an open subscription within about 10 minutes. Other topics are not affected."
    )


def _channel(record: EventChannelRecord, members: Sequence[ChannelMemberRecord]) -> EventChannel:
    topic = topic_of(record.name, record.type)
    return EventChannel(record.name, topic, record.label, tuple(row.member for row in members))


def _check_type(record: EventChannelRecord, channel_type: str) -> None:
    if record.type != channel_type:
        names = {"data": "change events", "event": "platform events"}
        raise ConfigurationError(
            f"{record} is for {names.get(record.type, record.type)}, but the requested members are "
            f"{names[channel_type]}. A channel's type cannot be changed: choose another name. Nothing was changed."
        )


def _find_or_create(client: EventChannelClient, name: str, channel_type: Any, label: str | None) -> EventChannelRecord:
    try:
        return client.create(name, channel_type, label or name.removesuffix("__chn").replace("_", " "))
    except AlreadyExistsError:
        # Another client created it meanwhile, or this request did and its response was lost.
        record = client.find(name)
        if record is None:
            raise
        _check_type(record, channel_type)
        return record


def _add_or_change(
    client: EventChannelClient,
    record: EventChannelRecord,
    member: ChannelMember,
    members: Sequence[ChannelMemberRecord],
) -> bool:
    """Give a channel a member with its settings; return whether that changed the channel."""
    existing = _member_of(members, member.entity)
    if existing is None:
        try:
            client.add(record.name, member)
            return True
        except AlreadyExistsError:
            # Member names are unique in the org: it was added meanwhile, or a member of another channel has the name.
            existing = _member_of(client.members(record.name), member.entity)
            if existing is None:
                raise
    if member.equals(existing.member):
        return existing not in members
    client.change(existing, member)
    return True


def _member_of(members: Sequence[ChannelMemberRecord], entity: str) -> ChannelMemberRecord | None:
    return next((row for row in members if row.member.entity == entity), None)


def _unlike(channel: EventChannel, members: Sequence[ChannelMember], label: str | None) -> Iterator[str]:
    """Yield the differences of a channel from its declared members and label."""
    if label not in (None, channel.label):
        yield f"label {channel.label!r} instead of {label!r}"
    stored, declared = ({member.entity: member for member in each} for each in (channel.members, members))
    for entity in sorted({*stored, *declared}):
        if not (entity in stored and entity in declared and declared[entity].equals(stored[entity])):
            yield f"{stored.get(entity, 'no member')} instead of {declared.get(entity, 'no member')}"


def _differences(before: ChannelMember, after: ChannelMember) -> list[str]:
    changes = []
    if before.filter != after.filter:
        changes.append(f"{after.entity} filter {before.filter!r} -> {after.filter!r}")
    if before.enriched_fields != after.enriched_fields:
        old, new = (list(member.enriched_fields) for member in (before, after))
        changes.append(f"{after.entity} enriched fields {old} -> {new}")
    return changes
