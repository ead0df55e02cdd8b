"""Channels that only the Streaming API has: PushTopics and generic channels. Records define them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sfstream_localorg.bus.event_bus import BusEvent
from sfstream_localorg.cometd.push_topics import PushTopic
from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.change_events import Change
from sfstream_localorg.records.record_store import StoredRecord

if TYPE_CHECKING:
    from sfstream_localorg.records.entities import Entities

PUSH_TOPIC = "PushTopic"
STREAMING_CHANNEL = "StreamingChannel"
_GENERIC_NAME = re.compile(r"/u/[^\s?#*]{1,77}")
_TOPIC_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


class StreamingChannels:
    """Index of PushTopics and generic channels, updated when their records change."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self._push_topics: dict[str, PushTopic] = {}
        self._ids: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._ids.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._ids.values()

    def push_topic(self, channel: str) -> PushTopic | None:
        """Return the active PushTopic of the channel ``/topic/...``, ``None`` if there is none."""
        return next((topic for topic in self._push_topics.values() if topic.channel == channel), None)

    def generic_channel(self, record_id: str) -> str | None:
        """Return the name (``/u/...``) of the generic channel of a record id, ``None`` if there is none."""
        name = self._ids.get(record_id)
        return name if name is not None and name.startswith("/u/") else None

    def record_id(self, name: str) -> str | None:
        """Return the record id of a channel (``/topic/...``, ``/u/...``), ``None`` if there is none."""
        return next((record_id for record_id, known in self._ids.items() if known == name), None)

    def check(self, record: StoredRecord, others: Iterable[StoredRecord]) -> None:
        """Validate a record before it is written, if it defines a channel.

        :raises ApiError: if its name is a duplicate or malformed, or its query is invalid for a PushTopic.
        """
        if record.is_deleted or record.entity not in (PUSH_TOPIC, STREAMING_CHANNEL):
            return
        name = str(record.content["Name"])
        if record.entity == PUSH_TOPIC:
            PushTopic.from_record(record.content, self._entities)
        pattern = _TOPIC_NAME if record.entity == PUSH_TOPIC else _GENERIC_NAME
        if not pattern.fullmatch(name):
            raise ApiError("INVALID_FIELD", f"Invalid channel name: {name}", fields=("Name",))
        taken = self._ids | {other.id: _channel(other) for other in others if other.entity == record.entity}
        for record_id, known in taken.items():
            if record_id != record.id and known.lower() == _channel(record).lower():
                message = f"duplicate value found: Name duplicates value on record with id: {record_id}"
                raise ApiError("DUPLICATE_VALUE", message, fields=("Name",))

    def events(self, changes: Sequence[Change], timestamp: int) -> list[BusEvent]:
        """Return the PushTopic events of one transaction.

        :param timestamp: milliseconds since the epoch.
        """
        made = (topic.event(change, timestamp) for change in changes for topic in self._push_topics.values())
        return [event for event in made if event is not None]

    def written(self, records: Iterable[StoredRecord]) -> None:
        """Update the index from records that were written, or that exist when the org starts."""
        for record in records:
            if record.entity not in (PUSH_TOPIC, STREAMING_CHANNEL):
                continue
            self._ids.pop(record.id, None)
            self._push_topics.pop(record.id, None)
            if not record.is_deleted:
                self._ids[record.id] = _channel(record)
                if record.entity == PUSH_TOPIC and record.content.get("IsActive"):
                    self._push_topics[record.id] = PushTopic.from_record(record.content, self._entities)


def _channel(record: StoredRecord) -> str:
    name = str(record.content["Name"])
    return f"/topic/{name}" if record.entity == PUSH_TOPIC else name
