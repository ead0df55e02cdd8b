"""Formats of landed payloads, and table names of events without a schema.

An Avro schema describes ``avro`` and ``json`` events. The other formats are self-described: a ``push_topic`` event has
a record's fields, a ``generic`` event the content that its publisher sent, and an ``event`` (a platform or change
event) lacks the schema because Salesforce did not provide it.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

Format = Literal["avro", "json", "push_topic", "generic", "event"]

WITH_SCHEMA: tuple[Format, ...] = ("avro", "json")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,119}")
_SEGMENT = r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)*"
_GENERIC = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_LONGEST = 120


def own_format(topic: str) -> Format:
    """Return the format of a topic's JSON payloads without a schema."""
    if topic.startswith("/topic/"):
        return "push_topic"
    return "generic" if topic.startswith("/u/") else "event"


def table_of_topic(topic: str) -> str:
    """Return the table of self-described events: one for each channel, regardless of the topic's filter.

    ``/topic/InvoiceUpdates?Status='Open'`` becomes ``InvoiceUpdates``, ``/event/Order__e`` becomes ``Order__e`` and
    ``/u/notifications/Orders`` becomes ``u_notifications__Orders``. Other names keep their safe characters, followed by
    ``___`` and eight hex digits of their SHA-256: two channels of a kind never share a table.
    """
    channel = topic.partition("?")[0]
    kind, _, name = channel.lstrip("/").partition("/")
    if kind == "u":
        table = "u_" + name.replace("/", "__")
        readable = _GENERIC.fullmatch(name) is not None
    else:
        table = name
        readable = _NAME.fullmatch(name) is not None and not name.startswith("u_") and "___" not in name
    if readable and len(table) <= _LONGEST:
        return table
    safe = re.sub(r"[^A-Za-z0-9]+", "_", f"{kind}/{name}").strip("_")[:100]
    return f"{safe if safe[:1].isalpha() else 'u'}___{hashlib.sha256(channel.encode()).hexdigest()[:8]}"
