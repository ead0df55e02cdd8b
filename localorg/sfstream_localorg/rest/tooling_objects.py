"""CustomObject records through the Tooling API: custom objects and platform events, read only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.bus.topics import TopicDefinition
from sfstream_localorg.errors import not_found
from sfstream_localorg.identifiers import derived
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.rest.calls import Answer, Call, route
from sfstream_localorg.rest.tooling_query import ToolingObject, tooling_entity

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

CUSTOM_OBJECT = ToolingObject(
    tooling_entity(
        "CustomObject",
        "01I",
        **{"DeveloperName": "Text", "NamespacePrefix": "Text", "ManageableState": "StaticEnum", "Language": "Text"},
        **{"Description": "Text", "FullName": "Text", "Metadata": "Text"},
    ),
    first_version=37,
)
_EVENT_TYPES = {"high": "HighVolume", "standard": "StandardVolume"}


def routes(org: Org) -> list[web.RouteDef]:
    """Return the route of one record."""
    return [route(org, "GET", f"/tooling/sobjects/{CUSTOM_OBJECT.entity.name}/{{record_id}}", _get)]


def records(org: Org) -> Sequence[StoredRecord]:
    """Return all records in stored form, for queries."""
    return list(_records(org))


async def _get(call: Call) -> Answer:
    CUSTOM_OBJECT.require(call)
    found = [one for one in records(call.org) if one.id == call.record_id()]
    if not found:
        raise not_found()
    return 200, CUSTOM_OBJECT.shown(found[0], base=call.base)


def _records(org: Org) -> Iterator[StoredRecord]:
    for topic in org.topics.all():
        if topic.event_name is not None and topic.event_name.endswith("__e"):
            yield _record(topic.event_name, _event_metadata(topic))
    for entity in org.sobjects.entities:
        if entity.name.endswith("__c"):
            yield _record(entity.name, {"eventType": None, "publishBehavior": None, "sharingModel": "ReadWrite"})


def _event_metadata(topic: TopicDefinition) -> dict[str, Any]:
    return {"eventType": _EVENT_TYPES[topic.volume], "publishBehavior": "PublishImmediately", "sharingModel": None}


def _record(full_name: str, own: dict[str, Any]) -> StoredRecord:
    developer_name = full_name.rpartition("__")[0]
    label = developer_name.replace("_", " ")
    metadata = {"deploymentStatus": "Deployed", "description": None, "label": label, "pluralLabel": label, **own}
    content = {
        "DeveloperName": developer_name,
        "NamespacePrefix": None,
        "ManageableState": "unmanaged",
        "Language": "en_US",
        "Description": None,
        "FullName": full_name,
        "Metadata": metadata,
    }
    return StoredRecord(derived("01I", full_name), CUSTOM_OBJECT.entity.name, content, 0)
