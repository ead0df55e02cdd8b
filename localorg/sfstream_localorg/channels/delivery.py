"""Delivery of events on custom channels: filters and enrichment."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import fastavro

from sfstream_localorg.bus.event_bus import StoredEvent
from sfstream_localorg.bus.payloads import decode
from sfstream_localorg.bus.schemas import SchemaRegistry
from sfstream_localorg.bus.topics import CHANGE_EVENTS, Selection, TopicDefinition, TopicRegistry
from sfstream_localorg.channels.enrichment import Enrichment
from sfstream_localorg.channels.filters import filter_of_event, filter_of_record
from sfstream_localorg.pubsub import pubsub_api_pb2 as pb
from sfstream_localorg.records.entity import Entity, Record

Deliver = Callable[[Mapping[str, Any], Any], Iterator[Mapping[str, Any]]]
"""Function of an event and its schema that yields the events to deliver."""


class ChannelDelivery:
    """Converter of events on the bus to the events that a custom channel delivers. Other topics are unchanged.

    Filters and enrichment apply at delivery. Therefore a change of a member takes effect immediately, also for events
    already on the bus, and the events of a removed member are not delivered.

    :param entity: returns the entity of a change event's topic.
    :param record: returns the current values of a record by its id, or the last values of a deleted record.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        schemas: SchemaRegistry,
        entity: Callable[[str], Entity],
        record: Callable[[str], Record | None],
    ) -> None:
        self._topics = topics
        self._schemas = schemas
        self._entity = entity
        self._record = record

    def frames(self, topic: str, frames: list[bytes]) -> list[bytes]:
        """Convert serialised frames of the bus to the frames to deliver."""
        channel = self._channel(topic)
        return frames if channel is None else [one for frame in frames for one in self._deliver_frame(channel, frame)]

    def events(self, topic: str, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        """Convert events of the bus to the events to deliver."""
        channel = self._channel(topic)
        if channel is None:
            return events
        return [
            event if payload is event.payload else replace(event, payload=payload)
            for event in events
            for payload in self._delivered_payloads(channel, event.schema_id, event.payload)
        ]

    def _channel(self, topic: str) -> TopicDefinition | None:
        definition = self._topics.get(topic)
        is_custom = definition is not None and definition.kind == "channel" and definition.name != CHANGE_EVENTS
        return definition if is_custom else None

    def _deliver_frame(self, channel: TopicDefinition, frame: bytes) -> Iterator[bytes]:
        response = pb.FetchResponse.FromString(frame)
        event = response.events[0].event
        stored = event.payload
        for payload in self._delivered_payloads(channel, event.schema_id, stored):
            if payload is stored:
                yield frame
            else:
                event.payload = payload
                yield response.SerializeToString()

    def _delivered_payloads(self, channel: TopicDefinition, schema_id: str, payload: bytes) -> Iterator[bytes]:
        name = self._schemas.name(schema_id)
        member = next((topic for topic in channel.members if topic.rpartition("/")[2] == name), None)
        if member is None:
            return
        deliver = self._delivery_function(member, channel.selection(member))
        if deliver is None:
            yield payload
            return
        schema = self._schemas.parsed(schema_id)
        event = decode(schema, payload)
        for delivered in deliver(event, schema):
            yield payload if delivered is event else _encoded(schema, delivered)

    def _delivery_function(self, member: str, selection: Selection) -> Deliver | None:
        """Return the delivery function of a member; ``None`` if all its events are delivered unchanged."""
        expression, fields = selection.filter_expression, selection.enriched_fields
        topic = self._topics.get(member)
        if topic is None or not (expression or fields):
            return None
        if topic.kind == "platform_event":
            matches = filter_of_event(expression, str(topic.event_name), topic.fields).matches
            return lambda event, _: iter([event] if matches(event, {}) else [])
        entity = self._entity(member)
        enrichment = Enrichment(entity, fields, filter_of_record(expression, entity) if expression else None)
        return lambda event, schema: enrichment.delivered(event, schema, self._record)


def _encoded(schema: Any, event: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, event)
    return buffer.getvalue()
