"""Which topics an org has, through the REST and Tooling APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_sfstream.exceptions import AccessDeniedError, RequestRejectedError, TopicNotFoundError
from airflow_provider_sfstream.salesforce.event_channels import topic_of
from airflow_provider_sfstream.salesforce.rest.tooling_records import ToolingRecordsClient


@dataclass(frozen=True)
class EventTopic:
    """A topic of the org: its name, as drains have it, and what its events are."""

    topic: str
    events: str


@dataclass(frozen=True)
class EventTopics:
    """The topics that a user sees, and the kinds of topics that could not be looked for, with the reason."""

    topics: Sequence[EventTopic]
    unseen: Sequence[str]


class EventTopicClient(ToolingRecordsClient):
    """Lists topics. Of custom channels only with the user permission "View Setup and Configuration".

    Names of events are those of describeGlobal (REST API guide, "Describe Global"): platform events end with ``__e``,
    change events with ``ChangeEvent``. Standard platform events have no such ending, and are not told apart there.
    """

    needs_version = "lists topics"

    def all(self) -> EventTopics:
        """Return all topics that the user sees, by kind and name. Takes four requests, more for long lists.

        :raises SalesforceStreamError: if the org cannot be asked.
        """
        kinds: dict[str, Callable[[], Iterator[EventTopic]]] = {
            "events": self._events,
            "custom channels": self._channels,
            "PushTopics": lambda: self._named("PushTopic", "/topic/", "PushTopic"),
            "generic channels": lambda: self._named("StreamingChannel", "", "generic events"),
        }
        topics: list[EventTopic] = []
        unseen: list[str] = []
        for kind, found in kinds.items():
            try:
                topics += sorted(found(), key=lambda topic: topic.topic)
            except (AccessDeniedError, RequestRejectedError, TopicNotFoundError) as error:
                unseen.append(f"{kind}: {error.happened}")
        return EventTopics(topics, unseen)

    def _events(self) -> Iterator[EventTopic]:
        answer = self._rest.request("GET", "sobjects/", what="the org's objects")
        for described in answer.get("sobjects", ()):
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
        for row in self._rows(f"SELECT Name FROM {entity}", f"the org's records of {entity}"):  # noqa: S608
            yield EventTopic(f"{prefix}{row['Name']}", events)

    def _rows(self, soql: str, what: str) -> Iterator[dict[str, Any]]:
        answer = self._rest.request("GET", "query", what=what, parameters={"q": soql})
        yield from answer.get("records", ())
