"""``/admin/events``: publish to any topic, and list all events ever published."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.bus.event_bus import BusEvent, StoredEvent
from sfstream_localorg.bus.payloads import decode
from sfstream_localorg.cometd.publishing import event_from_request

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_CHUNK = 2_000
_LARGEST_PAGE = 2_000

Body = dict[str, Any]


class EventControls:
    """Handlers that publish and list events."""

    def __init__(self, org: Org) -> None:
        self._org = org

    async def publish(self, request: web.Request, body: Body) -> Any:
        """Publish ``events``, or ``count`` events from a ``template``; large counts need several transactions."""
        make = self._event_factory(body)
        generated = "count" in body
        texts = self._text_fields(body) if generated else frozenset()
        count = int(body["count"]) if generated else len(body["events"])
        replay_ids: list[bytes] = []
        event_ids: list[str | None] = []
        for start in range(0, count, _CHUNK):
            indexes = range(start, min(start + _CHUNK, count))
            given = [_filled_event(body["template"], i, texts) if generated else body["events"][i] for i in indexes]
            events = [make(values) for values in given]
            replay_ids += self._org.bus.publish(events)
            event_ids += [event.event_id for event in events]
            await asyncio.sleep(0)  # so that streams can send between two transactions
        shown = [_shown(replay_id, self._api(body["topic"], None)) for replay_id in replay_ids]
        if generated:
            return {"count": count, "first_and_last_replay_id": shown[:1] + shown[-1:]}
        return {"count": count, "replay_ids": shown, "event_ids": event_ids}

    async def record(self, request: web.Request, body: Body) -> Any:
        """Return one page of the events of a topic on the bus, expired events included.

        With ``api=streaming`` the events have the form of the Streaming API; ``/topic/...`` and ``/u/...`` always do.
        """
        name = request.query["topic"]
        self._org.check_topic(name)
        streaming = self._api(name, request.query.get("api")) == "streaming"
        after = int.from_bytes(bytes.fromhex(request.query.get("after", ""))[:8], "big")
        limit = min(int(request.query.get("limit", _LARGEST_PAGE)), _LARGEST_PAGE)
        events = self._org.bus.record(name, after, limit)
        show = self._streaming_form if streaming else self._pubsub_form
        return {
            "events": [show(event, name) for event in events],
            "next": events[-1].replay_id.hex() if len(events) == limit else None,
        }

    def _event_factory(self, body: Body) -> Callable[[Mapping[str, Any]], BusEvent]:
        name, schema_id = body["topic"], body.get("schema_id")
        self._org.check_topic(name)
        topic = self._org.topics.get(name)
        if topic is None:
            return lambda values: event_from_request(self._org, name, values)
        return lambda values: self._org.platform_event(topic, values, schema_id=schema_id)

    def _text_fields(self, body: Body) -> frozenset[str]:
        """Return the text fields of a platform event."""
        topic = self._org.topics.get(body["topic"])
        if topic is None or topic.event_name is None:
            return frozenset()
        schema_id = body.get("schema_id") or self._org.schemas.latest(topic.event_name) or ""
        if self._org.schemas.get(schema_id) is None:
            return frozenset()
        fields = self._org.schemas.parsed(schema_id)["fields"]
        return frozenset(field["name"] for field in fields if "string" in field["type"])

    def _api(self, name: str, requested: str | None) -> str:
        if requested not in (None, "pubsub", "streaming"):
            raise ValueError(f"api={requested!r} must be 'pubsub' or 'streaming'")
        return "streaming" if self._org.topics.get(name) is None else requested or "pubsub"

    def _pubsub_form(self, event: StoredEvent, topic: str) -> Body:
        return {
            "replay_id": event.replay_id.hex(),
            "event_id": event.event_id,
            "schema_id": event.schema_id,
            "payload": event.payload.hex(),
            "fields": decode(self._org.schemas.parsed(event.schema_id), event.payload),
            "published_at": event.published_at,
            "expired": event.expired,
        }

    def _streaming_form(self, event: StoredEvent, topic: str) -> Body:
        return {
            "replay_id": _shown(event.replay_id, "streaming"),
            "event_id": event.event_id,
            "schema_id": event.schema_id or topic,
            "payload": self._org.event_data(event).hex(),
            "published_at": event.published_at,
            "expired": event.expired,
        }


def _shown(replay_id: bytes, api: str) -> str:
    return (replay_id[:8] if api == "streaming" else replay_id).hex()


def _filled_event(template: Any, index: int, texts: frozenset[str]) -> Any:
    """Replace ``{n}`` in an event template with the index, as text in text fields."""
    filled = _filled(template, index)
    if not texts or not isinstance(filled, Mapping):
        return filled
    return {name: str(index) if name in texts and template[name] == "{n}" else filled[name] for name in filled}


def _filled(template: Any, index: int) -> Any:
    """Replace ``{n}`` in the texts of a template with the index; a text ``"{n}"`` becomes a number."""
    if isinstance(template, Mapping):
        return {name: _filled(value, index) for name, value in template.items()}
    if isinstance(template, str):
        return index if template == "{n}" else template.replace("{n}", str(index))
    return template
