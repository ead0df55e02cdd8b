"""Topics of the local org: platform events, change events, and custom channels of either kind."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from sfstream_localorg.bus.payloads import platform_event_schema
from sfstream_localorg.bus.schemas import SchemaRegistry

CHANGE_EVENTS = "/data/ChangeEvents"
_EVENT = re.compile(r"[A-Za-z]\w*", re.ASCII)

Kind = Literal["platform_event", "change_event", "channel"]
Volume = Literal["high", "standard"]


@dataclass(frozen=True)
class Selection:
    """Settings of one member of a custom channel.

    :param developer_name: the developer name of the member's record.
    :param filter_expression: condition that delivered events meet; empty for all events.
    :param enriched_fields: fields that update and delete events carry although they did not change.
    """

    developer_name: str
    filter_expression: str = ""
    enriched_fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class TopicDefinition:
    """A topic. ``event_name`` is the event API name of its schema; it is ``None`` for a channel, which has ``members``.

    ``members`` are topic names. ``fields`` are the custom fields of a platform event, as defined by the user. A custom
    channel may have a ``label``, and ``selections`` with the settings of its members by topic. ``volume`` applies to
    platform events and sets their ``eventType``, ``HighVolume`` or ``StandardVolume``.
    """

    name: str
    kind: Kind
    event_name: str | None = None
    fields: tuple[dict[str, Any], ...] = ()
    members: tuple[str, ...] = ()
    label: str = ""
    selections: Mapping[str, Selection] = field(default_factory=dict)
    volume: Volume = "high"

    @property
    def can_publish(self) -> bool:
        """True for platform events, the only topics that clients may publish to."""
        return self.kind == "platform_event"

    def selection(self, member: str) -> Selection:
        """Return the settings of one member of a channel."""
        names = (self.name.rpartition("/")[2], member.rpartition("/")[2])
        return self.selections.get(member) or Selection("_".join(names).replace("__", "_"))


class TopicRegistry:
    """All topics of one org, stored in its database."""

    def __init__(self, database: sqlite3.Connection, schemas: SchemaRegistry) -> None:
        self._database = database
        self._schemas = schemas
        self._topics: dict[str, TopicDefinition] = {CHANGE_EVENTS: TopicDefinition(CHANGE_EVENTS, "channel")}
        self._channels: dict[str, tuple[str, ...]] = {}
        for (text,) in database.execute("SELECT definition FROM topic ORDER BY name"):
            definition = json.loads(text)
            self._topics[definition["name"]] = _definition(definition)

    def get(self, name: str) -> TopicDefinition | None:
        """Return the topic ``name`` (``/event/Order__e``), ``None`` if it does not exist."""
        return self._topics.get(name)

    def all(self) -> list[TopicDefinition]:
        """Return all topics, sorted by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def schema_id(self, definition: TopicDefinition) -> str:
        """Return the id of a topic's newest schema, for a channel that of its first member; empty without members."""
        if definition.event_name is not None:
            return self._schemas.latest(definition.event_name) or ""
        members = definition.members or tuple(t.name for t in self.all() if t.kind == "change_event")
        first = self.get(members[0]) if members else None
        return self.schema_id(first) if first else ""

    def channels_of(self, name: str) -> tuple[str, ...]:
        """Return the channels that also carry a topic's events: ``/data/ChangeEvents`` and custom channels."""
        if name not in self._channels:
            standard = (CHANGE_EVENTS,) if self._topics[name].kind == "change_event" else ()
            custom = tuple(topic.name for topic in self.all() if name in topic.members)
            self._channels[name] = standard + custom
        return self._channels[name]

    def is_standard_volume(self, name: str) -> bool:
        """Return whether a topic is a standard-volume platform event."""
        topic = self._topics.get(name)
        return topic is not None and topic.volume == "standard"

    def define_platform_event(
        self, name: str, fields: list[dict[str, Any]], volume: str | None = None
    ) -> TopicDefinition:
        """Create a platform event, or change its fields; later events then have a new schema id.

        :param name: ``Order__e``, or the name of a standard event; the topic is ``/event/`` plus this name.
        :param volume: ``high`` or ``standard``; ``None`` for the current volume, or ``high`` for a new event.
        :raises ValueError: if the name, a field or the volume is invalid at Salesforce; nothing was changed.
        """
        former = self.get(f"/event/{name}")
        chosen = volume or ("high" if former is None else former.volume)
        if chosen not in ("high", "standard"):
            raise ValueError(f"{name}: volume={volume!r} must be 'high' or 'standard'")
        if not _EVENT.fullmatch(name) or name.endswith(("__chn", "ChangeEvent")):
            raise ValueError(f"{name!r} is not the name of a platform event, such as Order__e")
        self._schemas.register(platform_event_schema(name, fields))
        topic = TopicDefinition(f"/event/{name}", "platform_event", name, tuple(fields))
        return self._store(replace(topic, volume=cast("Volume", chosen)))

    def define_change_event(self, record_schema: dict[str, Any]) -> TopicDefinition:
        """Create the change-event topic of an entity from its Avro schema, or change its schema.

        :param record_schema: the schema; the topic is ``/data/`` plus its ``name`` (``AccountChangeEvent``).
        :raises ValueError: if the name does not end in ``ChangeEvent`` or the schema is not valid Avro.
        """
        name = str(record_schema.get("name", ""))
        if not _EVENT.fullmatch(name) or not name.endswith("ChangeEvent"):
            raise ValueError(f"{name!r} is not the name of a change event, such as AccountChangeEvent")
        self._schemas.register(record_schema)
        return self._store(TopicDefinition(f"/data/{name}", "change_event", name))

    def define_channel(self, name: str, members: list[str]) -> TopicDefinition:
        """Create a custom channel over platform events (``/event/X__chn``) or over change events (``/data/X__chn``).

        :param members: event names or topics, all of one kind. The channel does not carry events published earlier.
        :raises ValueError: if the name does not end in ``__chn``, or a member does not exist or is of another kind.
        """
        if not _EVENT.fullmatch(name) or not name.endswith("__chn"):
            raise ValueError(f"{name!r} is not the name of a custom channel, such as Orders__chn")
        topics = [self._member(member) for member in members]
        kinds = {topic.kind for topic in topics}
        if len(kinds) != 1 or "channel" in kinds:
            raise ValueError(f"{name}: members must be events that exist, all platform events or all change events")
        prefix = "/event/" if kinds == {"platform_event"} else "/data/"
        return self.put_channel(
            TopicDefinition(prefix + name, "channel", members=tuple(topic.name for topic in topics))
        )

    def put_channel(self, channel: TopicDefinition) -> TopicDefinition:
        """Create or replace a custom channel. The caller has validated its members."""
        return self._store(channel)

    def remove_channel(self, name: str) -> None:
        """Remove a custom channel; clients can no longer subscribe to it."""
        with self._database:
            self._database.execute("DELETE FROM topic WHERE name = ?", (name,))
        del self._topics[name]
        self._channels.clear()

    def load(self, document: Mapping[str, Any]) -> None:
        """Define the topics in ``{"platform_events": [...], "channels": [...]}``.

        :raises ValueError: if the document or an entry is malformed; the entries before it stay defined.
        """
        if not isinstance(document, Mapping) or set(document) - {"platform_events", "channels"}:
            raise ValueError("topics are a mapping: objects, platform_events, channels, push_topics, generic_channels")
        for event in document.get("platform_events") or ():
            name, fields = str(event.get("name", "")), list(event.get("fields") or ())
            self.define_platform_event(name, fields, event.get("volume"))
        for channel in document.get("channels") or ():
            self.define_channel(str(channel.get("name", "")), list(channel.get("members") or ()))

    def _member(self, name: str) -> TopicDefinition:
        for candidate in (name, f"/event/{name}", f"/data/{name}"):
            if candidate in self._topics:
                return self._topics[candidate]
        raise ValueError(f"there is no event {name!r}")

    def _store(self, definition: TopicDefinition) -> TopicDefinition:
        with self._database:
            self._database.execute(
                "INSERT INTO topic VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET definition = excluded.definition",
                (definition.name, json.dumps(asdict(definition))),
            )
        self._topics[definition.name] = definition
        self._channels.clear()
        return definition


def _definition(stored: Mapping[str, Any]) -> TopicDefinition:
    selections = {
        topic: Selection(**{**one, "enriched_fields": tuple(one["enriched_fields"])})
        for topic, one in stored.get("selections", {}).items()
    }
    tuples = {name: tuple(stored[name]) for name in ("fields", "members")}
    return TopicDefinition(**{**stored, **tuples, "selections": selections})


def read_topics_file(path: Path) -> Mapping[str, Any]:
    """Return the document in a ``.json``, ``.yaml`` or ``.yml`` topics file.

    :raises ValueError: if the file cannot be read or parsed.
    """
    try:
        text = path.read_text()
        if path.suffix in (".yaml", ".yml"):
            import yaml  # only users of YAML need PyYAML

            document = yaml.safe_load(text)
        else:
            document = json.loads(text)
    except Exception as error:
        raise ValueError(f"{path} is not a topics file: {error}") from error
    if not isinstance(document, Mapping):
        raise ValueError(f"{path} is not a topics file: it must be a mapping")
    return document
