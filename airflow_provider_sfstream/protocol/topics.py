"""Topic names: which exist, which API carries them, and how they appear in paths."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from airflow_provider_sfstream.exceptions import InvalidTopicError

Api = Literal["pubsub", "streaming"]

RETENTION: dict[Api, timedelta] = {"pubsub": timedelta(hours=72), "streaming": timedelta(hours=24)}
"""How long Salesforce keeps events at least (Pub/Sub API guide, "Event message durability"; Streaming API guide)."""

_NAME = r"[A-Za-z][A-Za-z0-9_]*"
_PUBSUB = re.compile(rf"/(?:event|data)/{_NAME}")
_STREAMING = re.compile(rf"/topic/{_NAME}(?:\?[^\s#]+)?|/u/[^\s?#]+")
_LONGEST = 255


@dataclass(frozen=True)
class Topic:
    """A topic that can be subscribed to, and the API that carries it by default.

    Public names: ``/event/Order__e``, ``/event/Orders__chn``, ``/data/AccountChangeEvent``,
    ``/data/ChangeEvents`` and ``/data/Sales__chn`` on the Pub/Sub API; ``/topic/MyPushTopic`` and
    ``/u/MyChannel`` on the Streaming API only.
    """

    name: str
    api: Api

    @classmethod
    def parse(cls, name: str) -> Topic:
        """Return the topic called ``name``.

        :raises InvalidTopicError: if Salesforce cannot have a topic of this name. Nothing was contacted.
        """
        if isinstance(name, str) and len(name) <= _LONGEST:
            if _PUBSUB.fullmatch(name):
                return cls(name, "pubsub")
            if _STREAMING.fullmatch(name) and ".." not in name:
                return cls(name, "streaming")
        raise InvalidTopicError(
            f"{name!r} is not a topic name. Use /event/Name__e or /event/Name__chn (platform events), "
            "/data/NameChangeEvent, /data/ChangeEvents or /data/Name__chn (change events), /topic/Name "
            "(PushTopic) or /u/Name (generic events). Nothing was read or moved."
        )


def slug(text: str) -> str:
    """Return ``text`` as one safe path segment: no separator, never ``.`` or ``..``, distinct for distinct texts.

    Plain names stay as they are and ``/event/Order__e`` becomes ``event.Order__e``. Anything else keeps its safe
    characters and gets ``~`` and eight hex digits of its SHA-256, so that two names never share a path.
    """
    if re.fullmatch(r"[A-Za-z0-9_-]{1,120}", text):
        return text
    if re.fullmatch(r"/[a-z]+/[A-Za-z0-9_-]{1,110}", text):
        return text[1:].replace("/", ".")
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:100]
    return f"{safe}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"
