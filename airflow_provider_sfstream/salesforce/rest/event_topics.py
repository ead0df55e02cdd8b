"""REST and Tooling API clients for topics of an org and definitions of its platform events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow_provider_sfstream.exceptions import AccessDeniedError, RequestRejectedError, TopicNotFoundError
from airflow_provider_sfstream.salesforce.rest.event_channels import topic_of
from airflow_provider_sfstream.salesforce.rest.tooling import ToolingRecordsClient, soql_text
from airflow_provider_sfstream.salesforce.topics import retention_by_event_type, retention_by_kind

_OBJECT = "CustomObject"


@dataclass(frozen=True)
class EventTopic:
    """A topic of the org: its name, as in drains, and the kind of its events."""

    topic: str
    events: str


@dataclass(frozen=True)
class EventTopics:
    """The topics that the user can see, and the kinds of topics that could not be listed, with the reason."""

    topics: Sequence[EventTopic]
    unseen: Sequence[str]


class EventTopicClient(ToolingRecordsClient):
    """Client that lists topics; custom channels only with the user permission "View Setup and Configuration".

    Names of events are those of describeGlobal (REST API guide, "Describe Global"): platform events end with ``__e``,
    change events with ``ChangeEvent``. Standard platform events have no suffix, so it cannot identify them.
    """

    needs_version = "lists of topics require"

    def all(self) -> EventTopics:
        """Return all topics that the user can see, by kind and name. Sends four requests, more for long lists."""
        kinds: dict[str, Callable[[], Iterator[EventTopic]]] = {
            "events": self._events,
            "custom channels": self._channels,
            "PushTopics": lambda: self._named("PushTopic", "/topic/", "PushTopic"),
            "generic channels": lambda: self._named("StreamingChannel", "", "generic events"),
        }
        topics: list[EventTopic] = []
        unseen: list[str] = []
        for kind, list_topics in kinds.items():
            try:
                topics += sorted(list_topics(), key=lambda topic: topic.topic)
            except (AccessDeniedError, RequestRejectedError, TopicNotFoundError) as error:
                unseen.append(f"{kind}: {error.happened}")
        return EventTopics(topics, unseen)

    def _events(self) -> Iterator[EventTopic]:
        objects = self.request("GET", "sobjects/", what="the org's objects").get("sobjects")
        if not isinstance(objects, list):
            raise RequestRejectedError("the org's objects: the response does not have the documented form.")
        for described in objects:
            name = str(described.get("name"))
            if name.endswith("__e"):
                yield EventTopic(f"/event/{name}", "platform events")
            elif name.endswith("ChangeEvent"):
                yield EventTopic(f"/data/{name}", "change events")

    def _channels(self) -> Iterator[EventTopic]:
        soql = "SELECT Id, DeveloperName, NamespacePrefix, ChannelType FROM PlatformEventChannel"
        for row in self._query(soql, "the org's custom channels"):
            kind = str(row.get("ChannelType"))
            if kind in ("data", "event") and not row.get("NamespacePrefix"):
                yield EventTopic(topic_of(f"{row['DeveloperName']}__chn", kind), "custom channel")

    def _named(self, entity: str, prefix: str, events: str) -> Iterator[EventTopic]:
        soql = f"SELECT Id, Name FROM {entity}"  # noqa: S608
        for row in self._query(soql, f"the org's records of {entity}", "query"):
            yield EventTopic(f"{prefix}{row['Name']}", events)


class EventDefinitionClient(ToolingRecordsClient):
    """Reader of definitions of platform events. The user needs the permission "View Setup and Configuration"."""

    needs_version = "definitions of platform events require"
    checked = _OBJECT, "the definitions of the org's objects"

    def retention(self, topic: str) -> timedelta | None:
        """Return the retention of the events of ``topic``; ``None`` if the definition does not state it, does not exist
        or is hidden from this user.

        Sends one request for a custom platform event, and none for any other topic. If other objects of the org have
        the same developer name (``Order__c`` besides ``Order__e``), it sends one more, and one for each of them.
        """
        by_kind = retention_by_kind(topic)
        return retention_by_event_type(self.event_type(topic.removeprefix("/event/"))) if by_kind is None else by_kind

    def event_type(self, name: str) -> str | None:
        """Return ``HighVolume`` or ``StandardVolume``; ``None`` if the event does not exist or is hidden.

        :param name: of a custom platform event: ``Order__e``, with a namespace ``Shop__Order__e``.
        """
        what = f"the definition of {name}"
        namespace, _, developer_name = name.removesuffix("__e").rpartition("__")
        where = f"DeveloperName = {soql_text(developer_name)}"
        if namespace:
            where += f" AND NamespacePrefix = {soql_text(namespace)}"
        for row in self._definitions(where, what):
            event_type = _event_type(row)
            # Of all objects with this developer name, only the platform event has a volume.
            if event_type is not None and (row.get("NamespacePrefix") or "").lower() == namespace.lower():
                return event_type
        return None

    def _definitions(self, where: str, what: str) -> Iterator[Mapping[str, Any]]:
        try:
            # Salesforce allows Metadata only in queries that return one record.
            yield from self._query(f"SELECT Id, NamespacePrefix, Metadata FROM {_OBJECT} WHERE {where}", what)  # noqa: S608
            return
        except RequestRejectedError:
            rows = self._query(f"SELECT Id, NamespacePrefix FROM {_OBJECT} WHERE {where}", what)  # noqa: S608
            if len(rows) < 2:
                raise
        for row in rows:
            definition = self._get(_OBJECT, str(row["Id"]), what)
            if definition is not None:
                yield {**definition, "NamespacePrefix": row.get("NamespacePrefix")}


def _event_type(row: Mapping[str, Any]) -> str | None:
    metadata = row.get("Metadata")
    value = metadata.get("eventType") if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else None
