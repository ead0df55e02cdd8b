"""Retention of events by topic and by the volume of a platform event, and of landed windows."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_sfstream.exceptions import ConfigurationError

LONG = timedelta(hours=72)
"""Of high-volume platform events and of change events."""
SHORT = timedelta(hours=24)
"""Of standard-volume platform events, PushTopic events and generic events."""
LEAST_AGE = timedelta(days=4)
"""How long every landed window stays: Salesforce keeps events for 72 hours, and drains look back so far to tell what is
lost from what is quiet. One day more is for clocks, grace and late retries."""

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


def check_age(older_than: timedelta) -> None:
    """Refuse an age at which drains and backfills may still need landed windows.

    :raises ConfigurationError: if it is below :data:`LEAST_AGE`.
    """
    if not isinstance(older_than, timedelta) or older_than < LEAST_AGE:
        raise ConfigurationError(
            f"older_than={older_than!r} must be a timedelta of at least {LEAST_AGE.days} days: until then drains look "
            "back at windows to tell what was lost from what was quiet. Nothing was removed."
        )
