"""A position of the Streaming API that aged out on a quiet stream: a possible loss.

An empty poll of that API names no replay ID, so the position of a quiet stream stays at its last event until Salesforce
forgets it. Nothing proves that no event followed it: Salesforce documents sessions that receive nothing for hours
although events are stored (Salesforce Knowledge 005321562). Such an event is lost once its retention ends. Continuing
is therefore a decision of the user, and what is skipped is recorded as an uncertain gap.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_sfstream.exceptions import PositionAgedOutError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import Gap
from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION, is_on_pubsub
from airflow_provider_sfstream.streams.source import EventSource

_MARGIN = timedelta(hours=1)
"""By which Salesforce may remove an event earlier than its retention ends. It decides on a message, never on a loss."""
_REASON = "aged out on a quiet stream"


@dataclass(frozen=True)
class AgedPosition:
    """A position whose age explains that Salesforce refuses it. All times are Salesforce's.

    :param replay_id: the position.
    :param since: the event time of its event, but not after it was received.
    :param received_by: upper bound of the time at which that event was received.
    :param contact_at: upper bound of the last answer to a drain of the stream; ``None`` if it is not known.
    :param earliest_now: lower bound of the present, ``latest_now`` an upper bound.
    """

    replay_id: bytes
    since: datetime
    received_by: datetime
    contact_at: datetime | None
    earliest_now: datetime
    latest_now: datetime

    @property
    def estimate(self) -> str:
        """The loss that is possible, in one clause."""
        answered = "at an unknown time"
        if self.contact_at is not None:
            answered = f"{_hours(self.earliest_now - self.contact_at)} ago"
        silence = _hours(self.earliest_now - self.received_by)
        return f"nothing is known to be lost; {silence} without an event, and Salesforce last answered {answered}"

    def new_gap(self, landed: LandedStream) -> Gap | None:
        """Return the gap to record, ``None`` if one covers it: what was published after that one is still retained.

        :raises SalesforceStreamError: if the replay store cannot be read.
        """
        recorded = [gap.detected_at for gap in landed.store.gaps(landed.stream) if self._is_recorded_as(gap)]
        if recorded and self.latest_now - max(recorded) < landed.retention - _MARGIN:
            return None
        reason = f"{_REASON}: {self.estimate}"
        return Gap(self.replay_id, None, self.since, self.latest_now, reason, uncertain=True)

    def _is_recorded_as(self, gap: Gap) -> bool:
        return gap.after == self.replay_id and gap.uncertain and gap.reason.startswith(_REASON)

    def error(self, landed: LandedStream) -> PositionAgedOutError:
        """Return the error of a run that does not accept the possible loss."""
        stream = landed.stream
        remedy = (
            "To continue from the earliest event, run AcceptReplayLossOperator, or set accept_quiet_aging=True, which "
            "accepts this at any time; either records an uncertain gap."
        )
        if is_on_pubsub(stream.topic):
            remedy = (
                "Drain the topic over the Pub/Sub API instead, which confirms the end of a quiet stream: leave out "
                f"api='streaming'; that begins a new stream at start_from. Where it cannot be used: {remedy}"
            )
        retained = "at most " * (landed.known_retention is None) + _hours(landed.known_retention or LONG_RETENTION)
        return PositionAgedOutError(
            f"{stream}: the position {self.replay_id.hex()} aged out: {self.estimate}. Salesforce retains events for "
            f"{retained}, and this API does not confirm that none was published since. Nothing was "
            f"stored and the position was not moved. {remedy}"
        )


def aged_position(
    landed: LandedStream, replay_id: bytes, previous: Manifest | None, source: EventSource
) -> AgedPosition | None:
    """Return the position ``replay_id`` with its age, if that explains that Salesforce refuses it.

    ``None`` also where the age is not known: where windows are missing, or Salesforce's time was not measured.

    :param previous: the window that ended at the position.
    :raises LandingError: if an earlier manifest cannot be read.
    :raises SalesforceStreamError: if Salesforce's time could not be requested.
    """
    contact_at = None if previous is None else previous.window.contact_at
    received_by, last = contact_at, previous
    while last is not None and last.window.event_count == 0:
        last = landed.manifest(last.window.previous_window_id)
        received_by = received_by if last is None else last.window.contact_at or received_by
    if last is None or last.window.through != replay_id or received_by is None:
        return None
    server_time = source.server_time(time.monotonic)
    if server_time is None:
        return None
    now = time.monotonic()
    if received_by >= server_time.earliest(now) - (landed.known_retention or LONG_RETENTION) + _MARGIN:
        return None
    since = min(last.window.last_event_time or received_by, received_by)
    times = (server_time.earliest(now), server_time.latest(now))
    return AgedPosition(replay_id, since, received_by, contact_at, *times)


def _hours(time: timedelta) -> str:
    hours = max(0.0, time.total_seconds() / 3600)
    return f"{hours:.0f} hours" if hours >= 2 else f"{hours * 60:.0f} minutes"
