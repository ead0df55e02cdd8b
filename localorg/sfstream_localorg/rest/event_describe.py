"""Describe results of platform events and change events. The fields are those of the newest schema."""

from __future__ import annotations

from typing import Any

from sfstream_localorg.records.fields import FIELD_TYPES
from sfstream_localorg.rest.calls import Call

_DESCRIBED = {kind.doc.rpartition(":")[2]: kind.describe for kind in reversed(FIELD_TYPES.values())}
"""Type in describe results, by type in the schema's ``doc``."""
_SYSTEM = ("CreatedDate", "CreatedById", "ChangeEventHeader")


def event_names(call: Call) -> list[str]:
    """Return the API names of all events, platform events first."""
    topics = sorted(call.org.topics.all(), key=lambda topic: (topic.kind != "platform_event", topic.name))
    return [topic.event_name for topic in topics if topic.event_name is not None]


def event_summary(call: Call, name: str) -> dict[str, Any]:
    """Return the entry of an event in describeGlobal. Clients can only publish platform events, not query them."""
    path = f"{call.base}/sobjects/{name}"
    return {
        "name": name,
        "label": name.removesuffix("__e"),
        "keyPrefix": "e00" if name.endswith("__e") else None,
        "custom": name.endswith("__e"),
        "createable": name.endswith("__e"),
        **dict.fromkeys(("updateable", "deletable", "undeletable", "queryable", "retrieveable"), False),
        "urls": {"sobject": path, "describe": f"{path}/describe", "eventSchema": f"{path}/eventSchema"},
    }


def event_fields(call: Call, name: str) -> list[dict[str, Any]]:
    """Return the describe results of the fields of an event."""
    schema = call.org.schemas.parsed(call.org.schemas.latest(name) or "")
    return [_field(name, field) for field in schema["fields"]]


def _field(event: str, field: dict[str, Any]) -> dict[str, Any]:
    name, kinds = field["name"], str(field.get("doc", "")).split(":")
    nillable = isinstance(field["type"], list)
    return {
        "name": name,
        "label": name.removesuffix("__c").replace("_", " "),
        "type": next((_DESCRIBED[kind] for kind in kinds[1:2] if kind in _DESCRIBED), "string"),
        "custom": name.endswith("__c"),
        "createable": event.endswith("__e") and name not in _SYSTEM,
        "updateable": False,
        "nillable": nillable,
    }
