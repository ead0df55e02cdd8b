"""Check that a managed subscription delivers the events of a topic.

An administrator can delete a managed subscription and recreate it under the same name on another topic. The stream
itself does not name its topic, but each event names its schema, and a schema names its event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_provider_sfstream.exceptions import ConfigurationError, SalesforceStreamError
from airflow_provider_sfstream.salesforce.schemas import record_name

_CHANGE_EVENT = "changeevent"


def may_deliver(topic: str, event: str) -> bool:
    """Return whether a topic can deliver an event with this API name.

    Exact for the topic of one event. The members of a channel are not known here: only the kind of event is compared,
    platform event or change event.
    """
    kind, name = topic.lower().split("/")[1:]
    event = event.lower()
    if name.endswith("__chn") or name == "changeevents":
        return event.endswith(_CHANGE_EVENT) == (kind == "data")
    return name == event or name.endswith(f"__{event}")  # with the namespace of a package


class TopicCheck:
    """Check of the events of a managed subscription against a topic, once for each schema.

    :param name: the subscription, for messages.
    :param schema: returns the Avro schema JSON of a schema ID.
    :param is_proven: the record of the subscription was read and names the topic. A schema that cannot be fetched
        for the time being is then no reason to fail.
    """

    def __init__(self, name: str, schema: Callable[[str], str], *, is_proven: bool) -> None:
        self._name, self._schema, self._is_proven = name, schema, is_proven
        self._checked: set[str] = set()

    def check(self, topic: str, schema_ids: Iterable[str]) -> None:
        """Check the schemas of events. A schema that this user may not read proves nothing, and passes.

        :raises ConfigurationError: if an event cannot be one of ``topic``.
        :raises SalesforceStreamError: if a schema could not be fetched this time, and nothing else proves the topic.
        """
        for schema_id in set(schema_ids) - self._checked:
            event = self._event(schema_id)
            if event and not may_deliver(topic, event):
                raise ConfigurationError(
                    f"{self._name} delivers events of {event}, and this task drains {topic}: it was deleted and "
                    "recreated on another topic, or the task names the wrong one. Nothing was landed or moved. Correct "
                    "the topic, or recreate the subscription on it: the drain then continues from its own position."
                )
            self._checked.add(schema_id)

    def _event(self, schema_id: str) -> str | None:
        try:
            return record_name(self._schema(schema_id)) if schema_id else None
        except SalesforceStreamError as error:
            if error.retriable and not self._is_proven:
                raise
            return None
