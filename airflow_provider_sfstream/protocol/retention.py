"""Retention of events by topic and by the volume of a platform event."""

from __future__ import annotations

from datetime import timedelta

LONG = timedelta(hours=72)
"""Of high-volume platform events and of change events."""
SHORT = timedelta(hours=24)
"""Of standard-volume platform events, PushTopic events and generic events."""

_BY_EVENT_TYPE = {"HighVolume": LONG, "StandardVolume": SHORT}


def retention_by_kind(topic: str) -> timedelta | None:
    """Return how long Salesforce retains the events of ``topic``; ``None`` where the event's definition decides it.

    That is so for a custom platform event (``/event/Order__e``) only: one that was defined before Spring '19 may be a
    standard-volume event. Custom channels accept no standard-volume events, and standard platform events are
    high-volume ones (Streaming API guide, "Message Durability"; Platform Events guide, "Group Platform Events into One
    Stream with a Custom Channel").
    """
    if topic.startswith(("/topic/", "/u/")):
        return SHORT
    return None if topic.startswith("/event/") and topic.endswith("__e") else LONG


def retention_by_event_type(event_type: object) -> timedelta | None:
    """Return the retention of platform events with an ``eventType`` of the Metadata API; ``None`` for any other value.

    :param event_type: ``HighVolume`` or ``StandardVolume`` (Metadata API guide, "CustomObject").
    """
    return _BY_EVENT_TYPE.get(event_type) if isinstance(event_type, str) else None
