"""A topic whose events happened in past hours, and what backfills of its hours gave, compared with the org's record."""

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
from tests.support.airflow_names import TELLS_OF_ABSENCE
from tests.support.landed import replay_ids_of

HOUR = timedelta(hours=1)


class PastTopic:
    """A topic of a local org on which events happened in past hours, by the ticks of the DAGs that drain it."""

    def __init__(self, airflow: AirflowStack, org: LocalOrg, name: str) -> None:
        self.org = org
        self.topic = f"/event/{name}"
        self._last_tick = last_tick(airflow)
        org.define(name, Number__c="double")

    def hour(self, hours_ago: int) -> datetime:
        """Return when the interval began that is so many before the present one; 1 is the last that has ended."""
        return self._last_tick - hours_ago * HOUR

    def publish(self, times: Sequence[datetime]) -> list[bytes]:
        """Publish an event for each time, in the given order; return their replay IDs."""
        return self.org.publish(self.topic, [{"Number__c": 1.0, "CreatedDate": time.isoformat()} for time in times])

    def publish_hours(self, first: int, last: int, minutes: Sequence[int] = (0, 5, 20, 40, 59)) -> None:
        """Publish events at these minutes of each hour from ``first`` to ``last`` hours ago."""
        hours = range(first, last - 1, -1)
        self.publish([self.hour(hour) + timedelta(minutes=minute) for hour in hours for minute in minutes])

    def happened(self, start: datetime, end: datetime) -> list[bytes]:
        """Return the replay IDs of what happened in ``[start, end)``, as the org recorded it."""
        return [replay_id for replay_id, time in self._times().items() if start <= time < end]

    def events_of(self, result: Mapping[str, Any]) -> list[bytes]:
        """Return the replay IDs that a drain's result gives: those of its windows, filtered by its bounds, in order."""
        start, end = (datetime.fromisoformat(result[name]) for name in ("event_time_from", "event_time_to"))
        inside = set(self.happened(start, end))
        replay_ids = [each for window in result["windows"] for each in replay_ids_of(window["manifest_url"])]
        return sorted(replay_id for replay_id in replay_ids if replay_id in inside)

    def stream(self, subscription: str) -> Stream:
        """Return the place of a consumer on the topic."""
        return Stream(self.org.org_id, "pubsub", self.topic, subscription)

    def _times(self) -> dict[bytes, datetime]:
        return {
            event["replay_id"]: datetime.fromtimestamp(event["fields"]["CreatedDate"] / 1000, UTC)
            for event in self.org.record(self.topic)
        }


class PastPushTopic(PastTopic):
    """A PushTopic on which events happened in past hours."""

    def __init__(self, airflow: AirflowStack, org: LocalOrg, name: str) -> None:
        self.org = org
        self.topic = f"/topic/{name}"
        self._last_tick = last_tick(airflow)
        org.push_topic(name, "SELECT Id, Name FROM Account")

    def publish(self, times: Sequence[datetime]) -> list[bytes]:
        """Publish an event for each time, in the given order; return their replay IDs."""
        events = [{"sobject": {"Name": str(time)}, "createdDate": time.isoformat()} for time in times]
        return self.org.publish(self.topic, events)

    def stream(self, subscription: str) -> Stream:
        """Return the place of a consumer on the topic."""
        return Stream(self.org.org_id, "streaming", self.topic, subscription)

    def _times(self) -> dict[bytes, datetime]:
        return {
            event["replay_id"]: datetime.fromisoformat(json.loads(event["payload"])["event"]["createdDate"])
            for event in self.org.record(self.topic)
        }


def last_tick(airflow: AirflowStack) -> datetime:
    """Return when the last interval of the hourly DAGs ended."""
    now = datetime.now(UTC)
    tick = now.replace(minute=int(airflow.environment["SFSTREAM_TEST_MINUTE"]), second=0, microsecond=0)
    return tick if tick <= now else tick - HOUR


def live_position(airflow: AirflowStack, stream: Stream) -> dict[str, Any] | None:
    """Return all that the Variable of a stream's position says, ``None`` where there is none."""
    text = _variable(airflow, DocumentReplayStore().key(stream))
    return None if text is None else dict(json.loads(text))


def say_that_it_is_new(airflow: AirflowStack, stream: Stream) -> None:
    """Make the Variable of a stream that was never drained, where Airflow cannot tell that there is none."""
    if not TELLS_OF_ABSENCE:
        airflow.api("POST", "/variables", json={"key": DocumentReplayStore().key(stream), "value": NEW})


def recorded_gaps(airflow: AirflowStack, stream: Stream) -> tuple[Gap, ...]:
    """Return the gaps that no live window found."""
    text = _variable(airflow, DocumentReplayStore().key(stream) + ".gaps")
    return () if text is None else gaps_from_json(text, stream)


def _variable(airflow: AirflowStack, key: str) -> str | None:
    return next((variable["value"] for variable in airflow.variables(key) if variable["key"] == key), None)
