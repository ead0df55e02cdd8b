"""Topics: their names, APIs and path segments, and the retention of their events."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidTopicError

Api = Literal["pubsub", "streaming"]
APIS: tuple[Api, ...] = get_args(Api)

CHANGE_EVENT = "ChangeEvent"
"""The suffix of the name of every object's change event."""

_NAME = r"[A-Za-z][A-Za-z0-9_]*"
_PUBSUB = re.compile(rf"/(?:event|data)/{_NAME}")
_STREAMING = re.compile(rf"/topic/{_NAME}(?:\?[^\s#]+)?|/u/[^\s?#]+")
_LONGEST = 255
SCHEMA_REFERENCE = re.compile(r"(?:\.\./){5}schemas/[A-Za-z0-9_~.-]{1,140}\.avsc")
"""Valid path of a schema file in a manifest: a file of its own stream, relative to the folder of the manifest."""
LONG_RETENTION = timedelta(hours=72)
"""Retention of high-volume platform events and of change events."""
SHORT_RETENTION = timedelta(hours=24)
"""Retention of standard-volume platform events, PushTopic events and generic events."""
LEAST_WINDOW_AGE = timedelta(days=4)
"""Minimum age of windows to delete: Salesforce retains events for 72 hours, and drains read windows of that time to
distinguish lost events from a quiet stream. One more day allows for clocks, grace and late retries."""
_BY_EVENT_TYPE = {"HighVolume": LONG_RETENTION, "StandardVolume": SHORT_RETENTION}


@dataclass(frozen=True)
class Topic:
    """A topic that can be subscribed to, and the API to read it with.

    Public names: ``/event/Order__e``, ``/event/Orders__chn``, ``/data/AccountChangeEvent``,
    ``/data/ChangeEvents`` and ``/data/Sales__chn`` on both APIs; ``/topic/MyPushTopic``, with a filter too
    (``/topic/MyPushTopic?Status='Open'``), and ``/u/MyChannel`` on the Streaming API only.
    """

    name: str
    api: Api

    @classmethod
    def parse(cls, name: str, api: str | None = None) -> Topic:
        """Return the topic called ``name``.

        :param api: the API to read it with: ``"pubsub"`` or ``"streaming"``. ``None``: the Pub/Sub API wherever it
            carries the topic.
        """
        if api not in (None, *APIS):
            raise InvalidTopicError(f"api={api!r} must be 'pubsub', 'streaming' or None. Nothing was read or moved.")
        if isinstance(name, str) and len(name) <= _LONGEST:
            if _PUBSUB.fullmatch(name):
                return cls(name, "streaming" if api == "streaming" else "pubsub")
            if _STREAMING.fullmatch(name) and ".." not in name:
                if api == "pubsub":
                    raise InvalidTopicError(
                        f"{name} is on the Streaming API only: omit api='pubsub'. Nothing was read or moved."
                    )
                return cls(name, "streaming")
        raise InvalidTopicError(
            f"{name!r} is not a topic name. Use /event/Name__e or /event/Name__chn (platform events), "
            "/data/NameChangeEvent, /data/ChangeEvents or /data/Name__chn (change events), /topic/Name "
            "(PushTopic) or /u/Name (generic events). Nothing was read or moved."
        )


def is_on_pubsub(topic: str) -> bool:
    """Return whether the Pub/Sub API carries ``topic`` too: platform and change events, and channels of them."""
    return _PUBSUB.fullmatch(topic) is not None


def channel_of(topic: str) -> str:
    """Return the name of the channel behind a topic: without the filter that a PushTopic's name may have."""
    return topic.partition("?")[0]


def change_event_of(entity: str) -> str:
    """Return the name of an object's change event: ``ContactChangeEvent``, ``Visit__ChangeEvent`` of ``Visit__c``."""
    return f"{entity[:-1] if entity.lower().endswith('__c') else entity}{CHANGE_EVENT}"


def can_carry_changes(topic: str, entity: str) -> bool:
    """Return whether a topic can carry an object's change events: its own topic, or a channel of change events.

    Salesforce's names are case-insensitive.
    """
    name = topic.lower()
    is_own = name == f"/data/{change_event_of(entity)}".lower()
    return name.startswith("/data/") and (is_own or not name.endswith(CHANGE_EVENT.lower()))


def slug(text: str) -> str:
    """Return ``text`` as one safe path segment: no separator, never ``.`` or ``..``, distinct for distinct texts.

    Plain names are unchanged and ``/event/Order__e`` becomes ``event.Order__e``. Other texts become their safe
    characters with ``~`` and eight hex digits of the SHA-256, so that two names never share a path.
    """
    if re.fullmatch(r"[A-Za-z0-9_-]{1,120}", text):
        return text
    if re.fullmatch(r"/[a-z]+/[A-Za-z0-9_-]{1,110}", text):
        return text[1:].replace("/", ".")
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:100]
    # surrogatepass: a text from JSON can contain unpaired surrogates, which UTF-8 cannot encode.
    return f"{safe}~{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"


def retention_by_kind(topic: str) -> timedelta | None:
    """Return the retention of the events of ``topic``; ``None`` if the event's definition determines it.

    The definition determines it only for custom platform events (``/event/Order__e``): one defined before Spring '19
    may be a standard-volume event. Custom channels accept no standard-volume events, and standard platform events are
    high-volume ones (Streaming API guide, "Message Durability"; Platform Events guide, "Group Platform Events into One
    Stream with a Custom Channel").
    """
    if topic.startswith(("/topic/", "/u/")):
        return SHORT_RETENTION
    return None if topic.startswith("/event/") and topic.endswith("__e") else LONG_RETENTION


def retention_by_event_type(event_type: object) -> timedelta | None:
    """Return the retention of platform events with an ``eventType`` of the Metadata API (guide: "CustomObject"), if
    known."""
    return _BY_EVENT_TYPE.get(event_type) if isinstance(event_type, str) else None


def check_age(older_than: timedelta) -> None:
    """Raise for an age at which drains and backfills may still need landed windows."""
    if not isinstance(older_than, timedelta) or older_than < LEAST_WINDOW_AGE:
        raise ConfigurationError(
            f"older_than={older_than!r} must be a timedelta of at least {LEAST_WINDOW_AGE.days} days: until then "
            "drains read windows to distinguish lost events from a quiet stream. Nothing was deleted."
        )
