"""Hook of custom channels: their members, filters and enriched fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import (
    AlreadyExistsError,
    ConfigurationError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook
from airflow_provider_sfstream.salesforce.event_channels import (
    ChannelMember,
    channel_name,
    members_of,
    topic_of,
    type_of,
)

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.rest.event_channels import (
        ChannelMemberRecord,
        EventChannelClient,
        EventChannelRecord,
    )


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
        return f"channel {self.channel.name} ({self.channel.topic}): {'; '.join(changes) or 'is as it is to be'}"


class EventChannelHook(SalesforceLoginHook):
    """Create, read, change and delete the org's custom channels: their members, filters and enriched fields.

    Every method may be repeated, also after a partial change: settings that are already as declared are not written.
    Events of a removed member are no longer delivered, not even earlier unread ones, so removals are refused without
    ``confirm_removal=True``.

    Understands every field of Airflow's ``salesforce`` connection type, and in its Extra: ``version`` (API version,
    56.0 and up), ``auth_flow``, ``login_url``, ``refresh_token``, ``access_token``, ``proxies``, ``tls_ca`` and
    ``allow_insecure``. The user needs the permission "View Setup and Configuration" to read, and "Customize
    Application" for all else.

    All methods raise errors of :mod:`airflow_provider_sfstream.exceptions`.

    :param salesforce_conn_id: the Airflow connection.
    """

    def get_conn(self) -> EventChannelClient:
        """Return a new client, for the caller to close (``with hook.get_conn() as client``). It connects on first use.

        :raises ConfigurationError: if the connection's fields cannot be used. Nothing was contacted.
        """
        from airflow_provider_sfstream.salesforce.rest.event_channels import EventChannelClient

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
                    f"channel {name}: the org has none, or hides it from this user. Check the name, that it is this "
                    "connection's org, and the user's permission 'View Setup and Configuration'. Create it with "
                    "SalesforceEventChannelOperator. Nothing was changed."
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
        :param filters: filter expressions, by entity; of all others every event is delivered.
        :param enriched_fields: names of fields, by entity; all others have none.
        :param label: label in Salesforce's Setup. ``None``: unchanged; for a new channel its name with spaces.
        :param confirm_removal: required if the channel has other members, or members that get another
            filter, which may exclude more events.
        :raises ConfigurationError: if an argument cannot be used, the channel is of the other type, events would no
            longer be delivered without ``confirm_removal``, or Salesforce does not accept a value.
        """
        name, wanted = channel_name(channel), members_of(members, filters, enriched_fields)
        kind = type_of(wanted[0].entity)
        with self.get_conn() as client:
            record = client.find(name)
            found = [] if record is None else client.members(record.name)
            before = None if record is None else _channel(record, found)
            if record is not None:
                _check_type(record, kind)
            removed = [one for one in found if one.member.entity not in {each.entity for each in wanted}]
            if removed:
                names = ", ".join(one.member.entity for one in removed)
                check_confirmed(confirm_removal, f"removing {names} from channel {name}")
            had = {one.member.entity: one.member.filter for one in found}
            filtered = [one.entity for one in wanted if one.filter not in (None, had.get(one.entity, one.filter))]
            if filtered:
                check_confirmed(confirm_removal, f"giving {', '.join(filtered)} another filter on channel {name}")
            if record is None:
                record = _created(client, name, kind, label)
            if label is not None and label != record.label:
                client.relabel(record, label)
            for member in wanted:
                _have(client, record, member, found)
            for one in removed:
                if client.remove(one):
                    self.log.warning("Removed %s. %s", one, _undelivered(record))
            if before is None or removed or not _is_so(before, wanted, label):
                after = _channel(client.find(name) or record, client.members(record.name))
            else:
                after = before
        return EventChannelChange(after, before)

    def delete(self, channel: str, *, confirm_removal: bool = False) -> EventChannel | None:
        """Delete a channel and its members. Return its former settings; ``None`` if it did not exist.

        :raises ConfigurationError: without ``confirm_removal``. Nothing was contacted.
        """
        check_confirmed(confirm_removal, f"deleting channel {channel}")
        name = channel_name(channel)
        with self.get_conn() as client:
            record = client.find(name)
            if record is None:
                return None
            found = client.members(record.name)
            for one in found:
                client.remove(one)
            client.delete(record)
        self.log.warning("Deleted %s. %s", record, _undelivered(record))
        return _channel(record, found)

    def test_connection(self) -> tuple[bool, str]:
        """Log in and read the members of channels. Return whether all went well, and which part did not."""
        return self._tested(self.get_conn, self._reached_tooling)


def check_confirmed(confirm_removal: bool, doing: str) -> None:
    """Check that a change after which events are no longer delivered is confirmed.

    :param doing: the change, as the begin of a sentence.
    :raises ConfigurationError: if it is not confirmed.
    """
    if confirm_removal is not True:
        raise ConfigurationError(
            f"{doing[:1].upper()}{doing[1:]} ends the delivery of events on the channel, perhaps of some that were "
            "published before and that no drain has read yet. Drain the channel first, and set confirm_removal=True if "
            "you accept this. Nothing was changed."
        )


def _undelivered(record: EventChannelRecord) -> str:
    return (
        f"Its events are no longer delivered on {topic_of(record.name, record.type)}, those included that no drain has "
        "read. An open subscription sees that within about 10 minutes. Other topics are not affected."
    )


def _channel(record: EventChannelRecord, members: Sequence[ChannelMemberRecord]) -> EventChannel:
    topic = topic_of(record.name, record.type)
    return EventChannel(record.name, topic, record.label, tuple(one.member for one in members))


def _check_type(record: EventChannelRecord, kind: str) -> None:
    if record.type != kind:
        names = {"data": "change events", "event": "platform events"}
        raise ConfigurationError(
            f"{record} has {names.get(record.type, record.type)}, and {names[kind]} are asked for. A channel's type "
            "cannot be changed: choose another name. Nothing was changed."
        )


def _is_so(before: EventChannel, wanted: Sequence[ChannelMember], label: str | None) -> bool:
    had = {member.entity: member for member in before.members}
    same = all(member.entity in had and member.equals(had[member.entity]) for member in wanted)
    return same and label in (None, before.label)


def _created(client: EventChannelClient, name: str, kind: Any, label: str | None) -> EventChannelRecord:
    try:
        return client.create(name, kind, label or name.removesuffix("__chn").replace("_", " "))
    except AlreadyExistsError:
        # Created by somebody else since, or by this request where its answer was lost.
        record = client.find(name)
        if record is None:
            raise
        _check_type(record, kind)
        return record


def _have(
    client: EventChannelClient,
    record: EventChannelRecord,
    member: ChannelMember,
    found: Sequence[ChannelMemberRecord],
) -> None:
    existing = next((one for one in found if one.member.entity == member.entity), None)
    if existing is None:
        try:
            client.add(record.name, member)
            return
        except AlreadyExistsError:
            existing = next((one for one in client.members(record.name) if one.member.entity == member.entity), None)
            if existing is None:
                raise
    if not member.equals(existing.member):
        client.change(existing, member)


def _differences(before: ChannelMember, after: ChannelMember) -> list[str]:
    changes = []
    if before.filter != after.filter:
        changes.append(f"{after.entity} filter {before.filter!r} -> {after.filter!r}")
    if before.enriched_fields != after.enriched_fields:
        was, now = (list(one.enriched_fields) for one in (before, after))
        changes.append(f"{after.entity} enriched fields {was} -> {now}")
    return changes
