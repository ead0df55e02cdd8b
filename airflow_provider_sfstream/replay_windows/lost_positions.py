"""A position that can no longer be read: acceptance of the loss at it, and the window that continues after it.

A loss is accepted by a separate action of the user, which the next drain of the stream applies. It is recorded as a gap
after the position that can no longer be read. It applies to that position only: a loss at any other one stops a drain
as before.

A position of the Streaming API ages out on a quiet stream. An empty poll of that API names no replay ID, so the
position stays at the stream's last event until Salesforce removes that event. Nothing proves that no event followed it:
Salesforce documents sessions that receive no event for hours although events are stored (Salesforce Knowledge
005321562). An event that followed is lost once its retention ends. Continuing is therefore a decision of the user, and
the skipped span is recorded as an uncertain gap.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, cast

from airflow_provider_sfstream.exceptions import ConfigurationError, PositionAgedOutError, ReplayIdLostError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.landing import NewWindow
from airflow_provider_sfstream.salesforce.streams import Gap
from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION, is_on_pubsub
from airflow_provider_sfstream.streams.recovery import OnInvalidReplay
from airflow_provider_sfstream.streams.source import EventSource, StartFrom
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.streams.watch.poll import poll

log = logging.getLogger(__name__)

RestartFrom = Literal["earliest", "latest"]

_ACCEPTED = re.compile(r"accepted by .*?, to go on from (earliest|latest): ", re.DOTALL)
_MARGIN = timedelta(hours=1)
"""Time by which Salesforce may remove an event before its retention ends. It affects a message, never a loss."""
_REASON = "aged out on a quiet stream"


def accept_loss(
    landed: LandedStream, source: EventSource, *, start_from: RestartFrom, reason: str, accepted_by: str, now: datetime
) -> Gap:
    """Record the loss of the events after the position, if Salesforce confirms that the position cannot be read.

    The position does not move. A repeated call for the same position has no effect and returns the recorded gap. The
    gap is uncertain if the position aged out on a quiet stream of the Streaming API.

    :param start_from: ``"earliest"``: the oldest event that Salesforce still retains; ``"latest"``: new events.
    :raises ConfigurationError: there is no position, it can still be read, or no reason is given. Nothing was recorded.
    """
    stream, position = landed.stream, landed.position()
    if not reason.strip():
        raise ConfigurationError(
            f"{stream}: the reason is empty. Nothing was recorded. Set the reason why the loss is accepted."
        )
    if position.replay_id is None:
        raise ConfigurationError(f"{stream}: no position is recorded, so none can be lost. Nothing was recorded.")
    earlier_gap = _accepted_at(landed, position.replay_id)
    if earlier_gap is not None:
        return earlier_gap
    observation = poll(source, stream.topic, position.replay_id, WakeUpConditions())
    if observation is None or observation.reason is not WakeUpReason.REPLAY_LOST:
        raise ConfigurationError(
            f"{stream}: Salesforce does not refuse the position {position.replay_id.hex()}, so no loss is shown. "
            "Nothing was recorded. Clear the drain that failed."
        )
    last = landed.manifest(position.window_id)
    since = last_stored_at(landed, position)
    gap_reason = f"accepted by {accepted_by}, to go on from {start_from}: {reason}"
    old_position = None if source.confirms_positions else aged_position(landed, position.replay_id, last, source)
    gap = Gap(position.replay_id, None, since, detected_at=now, reason=gap_reason, uncertain=old_position is not None)
    landed.store.record_gap(stream, gap)
    return gap


def last_stored_at(landed: LandedStream, position: Position) -> datetime | None:
    """Return the time of the last stored event, at most the time when it was received; without one, the time for which
    the end was confirmed; ``None`` if neither is known."""
    last = landed.manifest(position.window_id)
    while last is not None and last.window.event_count == 0:
        last = landed.manifest(last.window.previous_window_id)
    times = () if last is None else (last.window.last_event_time, last.window.contact_at)
    return min((time for time in times if time), default=position.confirmed_at)


def is_unaccepted_loss(landed: LandedStream, position: Position, error: ReplayIdLostError) -> bool:
    """Return whether ``error`` is about the recorded position, and nobody has accepted the loss at it."""
    lost = error.replay_id
    return lost is not None and lost == position.replay_id and _accepted_at(landed, lost) is None


def listed_losses(gaps: Sequence[Gap]) -> list[Gap]:
    """Return gaps for a list: an accepted loss once, as accepted, up to the event at which the drain after it resumed.

    Acceptance and drain each record a gap after the same position. The one of the drain begins at a proven time, which
    may precede the last stored event by days.
    """
    listed: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: gap.detected_at):
        same = [n for n, loss in enumerate(listed) if loss.after == gap.after and _ACCEPTED.match(loss.reason)]
        if not same:
            listed.append(gap)
            continue
        loss = listed[same[0]]
        is_uncertain = loss.uncertain and gap.uncertain
        listed[same[0]] = replace(loss, resumed_at=gap.resumed_at or loss.resumed_at, uncertain=is_uncertain)
    return listed


def without_position(
    new: NewWindow,
    landed: LandedStream,
    source: EventSource,
    error: ReplayIdLostError,
    *,
    policy: OnInvalidReplay,
    accept_quiet_aging: bool,
) -> NewWindow:
    """Return ``new`` with a start or a policy with which it can be landed, if the loss at its position is accepted.

    After a position that aged out on a quiet stream it continues from the earliest event under any accepting policy: a
    start at the latest event fails on a quiet stream, and could skip events.

    :param error: error of a drain of ``new`` whose policy is ``"fail"``, or that lost its position too often.
    :param policy: ``on_invalid_replay`` of the run.
    :raises PositionAgedOutError: the position aged out on a quiet stream, and that is not accepted.
    :raises ReplayIdLostError: ``error``, if no loss is accepted.
    """
    accepted = None
    if policy == "fail" and isinstance(new.after, bytes):
        accepted = _accepted_at(landed, new.after)
        policy = "fail" if accepted is None else _accepted_policy(accepted)
    old_position = None
    if not source.confirms_positions and error.replay_id is not None and error.replay_id == new.after:
        old_position = aged_position(landed, error.replay_id, new.previous, source)
    if old_position is not None and (accept_quiet_aging or policy != "fail"):
        log.warning(
            "%s: the position %s aged out: %s.",
            landed.stream,
            old_position.replay_id.hex(),
            old_position.estimate,
        )
        return replace(
            new,
            after=StartFrom.EARLIEST,
            on_invalid_replay=policy,
            gap=old_position.new_gap(landed, accepted),
            unbroken_since=landed.unbroken_since(),
        )
    if policy != "fail" and policy != new.on_invalid_replay:
        return replace(new, on_invalid_replay=policy, accepted=accepted)
    if old_position is None:
        raise error
    raise old_position.error(landed) from error


def _accepted_policy(accepted: Gap) -> RestartFrom:
    return cast("RestartFrom", _ACCEPTED.match(accepted.reason)[1])  # type: ignore[index]


def _accepted_at(landed: LandedStream, replay_id: bytes) -> Gap | None:
    at_position = (gap for gap in landed.store.gaps(landed.stream) if gap.after == replay_id)
    return next((gap for gap in at_position if _ACCEPTED.match(gap.reason)), None)


@dataclass(frozen=True)
class AgedPosition:
    """A position that is so old that Salesforce refuses it. All times are Salesforce's.

    :param replay_id: the position.
    :param since: the event time of its event, at most the time when it was received.
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
        """Return a description of the possible loss, as one clause."""
        answer_age = "at an unknown time"
        if self.contact_at is not None:
            answer_age = f"{_hours(self.earliest_now - self.contact_at)} ago"
        quiet_time = _hours(self.earliest_now - self.received_by)
        return f"nothing is known to be lost; {quiet_time} without an event, and Salesforce last answered {answer_age}"

    def new_gap(self, landed: LandedStream, accepted: Gap | None) -> Gap | None:
        """Return the gap to record; ``None`` if a recorded one covers it: later events are still retained.

        :param accepted: the gap of the user who accepted the loss.
        """
        detection_times = [gap.detected_at for gap in landed.store.gaps(landed.stream) if self._is_recorded_as(gap)]
        if detection_times and self.latest_now - max(detection_times) < landed.retention - _MARGIN:
            return None
        reason = f"{_REASON}: {self.estimate}{'' if accepted is None else f'; {accepted.reason}'}"
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
                "Drain the topic over the Pub/Sub API instead, which confirms the end of a quiet stream: remove "
                f"api='streaming'; this starts a new stream at start_from. If that API cannot be used: {remedy}"
            )
        retained = "at most " * (landed.known_retention is None) + _hours(landed.known_retention or LONG_RETENTION)
        error = PositionAgedOutError(
            f"{stream}: the position {self.replay_id.hex()} aged out: {self.estimate}. Salesforce retains events for "
            f"{retained}, and this API does not confirm that none was published since. Nothing was "
            f"stored and the position was not moved. {remedy}"
        )
        error.replay_id = self.replay_id
        return error


def aged_position(
    landed: LandedStream, replay_id: bytes, previous: Manifest | None, source: EventSource
) -> AgedPosition | None:
    """Return the position ``replay_id`` with its age, if the age explains that Salesforce refuses it.

    ``None`` also if the age is not known: if windows are missing, or Salesforce's time was not measured.

    :param previous: the window that ended at the position.
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
