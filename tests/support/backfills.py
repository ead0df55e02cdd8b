"""Topics with events of past hours, and the events that backfills of these hours returned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_sfstream.replay_stores.document.airflow_variables import NEW
from airflow_provider_sfstream.replay_stores.document.document import gaps_from_json
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.salesforce.streams import Gap, Stream
from scripts.airflow_stack import AirflowStack
from sfstream_localorg.process import LocalOrg
from tests.support.airflow_names import REPORTS_MISSING_VARIABLES
from tests.support.landed import replay_ids_of

HOUR = timedelta(hours=1)


class PastTopic:
    """A topic of a local org with events of past hours. Hours begin at the schedule ticks of the DAGs that drain it."""

    def __init__(self, airflow: AirflowStack, org: LocalOrg, name: str) -> None:
        self.org = org
        self.topic = f"/event/{name}"
        self._last_tick = last_tick(airflow)
        org.define(name, Number__c="double")

    def hour(self, hours_ago: int) -> datetime:
        """Return the start of the interval ``hours_ago`` intervals before the current one; 1 is the last ended one."""
        return self._last_tick - hours_ago * HOUR

    def publish(self, times: Sequence[datetime]) -> list[bytes]:
        """Publish one event with each of these event times, in this order, and return their replay IDs."""
        return self.org.publish(self.topic, [{"Number__c": 1.0, "CreatedDate": time.isoformat()} for time in times])

    def publish_hours(self, first: int, last: int, minutes: Sequence[int] = (0, 5, 20, 40, 59)) -> None:
        """Publish events at these minutes of each hour from ``first`` to ``last`` hours ago."""
        hours = range(first, last - 1, -1)
        self.publish([self.hour(hour) + timedelta(minutes=minute) for hour in hours for minute in minutes])

    def replay_ids_between(self, start: datetime, end: datetime) -> list[bytes]:
        """Return the replay IDs of the org's recorded events with an event time in ``[start, end)``."""
        return [replay_id for replay_id, time in self._times().items() if start <= time < end]

    def events_of(self, result: Mapping[str, Any]) -> list[bytes]:
        """Return the sorted replay IDs of a drain's result: events of its windows within its event time bounds."""
        start, end = (datetime.fromisoformat(result[name]) for name in ("event_time_from", "event_time_to"))
        inside = set(self.replay_ids_between(start, end))
        replay_ids = [each for window in result["windows"] for each in replay_ids_of(window["manifest_url"])]
        return sorted(replay_id for replay_id in replay_ids if replay_id in inside)

    def stream(self, subscription: str) -> Stream:
        """Return the stream of a subscription to the topic."""
        return Stream(self.org.org_id, "pubsub", self.topic, subscription)

    def _times(self) -> dict[bytes, datetime]:
        return {
            event["replay_id"]: datetime.fromtimestamp(event["fields"]["CreatedDate"] / 1000, UTC)
            for event in self.org.record(self.topic)
        }


class PastPushTopic(PastTopic):
    """A PushTopic of a local org with events of past hours."""

    def __init__(self, airflow: AirflowStack, org: LocalOrg, name: str) -> None:
        self.org = org
        self.topic = f"/topic/{name}"
        self._last_tick = last_tick(airflow)
        org.push_topic(name, "SELECT Id, Name FROM Account")

    def publish(self, times: Sequence[datetime]) -> list[bytes]:
        """Publish one event with each of these event times, in this order, and return their replay IDs."""
        events = [{"sobject": {"Name": str(time)}, "createdDate": time.isoformat()} for time in times]
        return self.org.publish(self.topic, events)

    def stream(self, subscription: str) -> Stream:
        """Return the stream of a subscription to the topic."""
        return Stream(self.org.org_id, "streaming", self.topic, subscription)

    def _times(self) -> dict[bytes, datetime]:
        return {
            event["replay_id"]: datetime.fromisoformat(json.loads(event["payload"])["event"]["createdDate"])
            for event in self.org.record(self.topic)
        }


def last_tick(airflow: AirflowStack) -> datetime:
    """Return the end of the last completed interval of the hourly DAGs."""
    now = datetime.now(UTC)
    tick = now.replace(minute=int(airflow.environment["SFSTREAM_TEST_MINUTE"]), second=0, microsecond=0)
    return tick if tick <= now else tick - HOUR


def live_position(airflow: AirflowStack, stream: Stream) -> dict[str, Any] | None:
    """Return the document in the Variable of a stream's position, or ``None`` if the Variable is missing."""
    text = _variable(airflow, DocumentReplayStore().key(stream))
    return None if text is None else dict(json.loads(text))


def create_variable_of_new_stream(airflow: AirflowStack, stream: Stream, *, gaps: bool = False) -> None:
    """Create the Variable of a stream that was never drained, if Airflow cannot report that a Variable is missing.

    :param gaps: also that of its gaps, which interval runs and accepted losses need.
    """
    if not REPORTS_MISSING_VARIABLES:
        for ending in ("", ".gaps") if gaps else ("",):
            airflow.api("POST", "/variables", json={"key": DocumentReplayStore().key(stream) + ending, "value": NEW})


def recorded_gaps(airflow: AirflowStack, stream: Stream) -> tuple[Gap, ...]:
    """Return the gaps of a stream that were found outside live windows."""
    text = _variable(airflow, DocumentReplayStore().key(stream) + ".gaps")
    return () if text is None else gaps_from_json(text, stream)


def _variable(airflow: AirflowStack, key: str) -> str | None:
    return next((variable["value"] for variable in airflow.variables(key) if variable["key"] == key), None)
