"""Events of generic channels and PushTopics that no record change causes: pushed over REST or ``/admin``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sfstream_localorg.bus.event_bus import BusEvent
from sfstream_localorg.cometd.payloads import iso_moment, json_event

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_TYPES = ("created", "updated", "deleted", "undeleted")


def generic_event(org: Org, channel: str, payload: Any, created_date: str | int | None = None) -> BusEvent:
    """Build an event of a generic channel.

    :param created_date: ISO 8601 or milliseconds since the epoch; the current time if ``None``.
    """
    return BusEvent(channel, "", json_event(_created(org, created_date), payload=payload))


def event_from_request(org: Org, channel: str, event: Mapping[str, Any]) -> BusEvent:
    """Build an event from a request to ``/admin``.

    :param event: ``payload`` for a generic channel, ``sobject`` and ``type`` for a PushTopic, ``createdDate`` for both;
        or ``payload_json`` for a generic channel, a text that is sent unchanged.
    :raises ValueError: if the event has other keys or invalid values.
    """
    if channel.startswith("/u/") and event.keys() == {"payload_json"}:
        event_json = json_event(_created(org, None), payload=None)
        return BusEvent(channel, "", event_json.removesuffix(b"null}") + str(event["payload_json"]).encode() + b"}")
    body, allowed = ("payload", set()) if channel.startswith("/u/") else ("sobject", {"type"})
    unknown = set(event) - allowed - {body, "createdDate"}
    if unknown or body not in event:
        raise ValueError(f"an event of {channel} is an object with {body!r} and perhaps 'createdDate'")
    if body == "payload":
        return generic_event(org, channel, event["payload"], event.get("createdDate"))
    event_type, sobject = event.get("type", "created"), event["sobject"]
    if event_type not in _TYPES or not isinstance(sobject, dict):
        raise ValueError(f"'type' must be one of {', '.join(_TYPES)}, and 'sobject' an object")
    return BusEvent(channel, "", json_event(_created(org, event.get("createdDate")), type=event_type, sobject=sobject))


def _created(org: Org, given: str | int | None) -> str:
    if given is None:
        return iso_moment(int(org.now() * 1000))
    if isinstance(given, str):
        moment = datetime.fromisoformat(given)
        return iso_moment(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    return iso_moment(int(given))
