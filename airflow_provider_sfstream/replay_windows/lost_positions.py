"""A position that can no longer be read: acceptance of the loss at it, and the window that continues after it.

A loss is accepted by an act of its own that the next drain of the stream goes by. What is accepted is recorded as a gap
after the position that can no longer be read. It holds for that position only: a loss at any other one stops a drain as
before.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from datetime import datetime
from typing import Literal, cast

from airflow_provider_sfstream.exceptions import ConfigurationError, ReplayIdLostError
from airflow_provider_sfstream.replay_windows.aged_positions import aged_position
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.landing import NewWindow
from airflow_provider_sfstream.salesforce.streams import Gap
from airflow_provider_sfstream.streams.recovery import OnInvalidReplay
from airflow_provider_sfstream.streams.source import EventSource, StartFrom
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.streams.watch.look import look

log = logging.getLogger(__name__)

GoOnFrom = Literal["earliest", "latest"]

_ACCEPTED = re.compile(r"accepted by .*, to go on from (earliest|latest): ", re.DOTALL)


def accept_loss(
    landed: LandedStream, source: EventSource, *, go_on_from: GoOnFrom, reason: str, accepted_by: str, now: datetime
) -> Gap:
    """Record that what cannot be read after the position is lost, if Salesforce shows that it cannot be read.

    The position stays. Accepting the loss at one position again changes nothing and returns what was recorded. The gap
    is uncertain where the position aged out on a quiet stream of the Streaming API.

    :param go_on_from: ``"earliest"``: with the oldest event that Salesforce still has; ``"latest"``: with new ones.
    :raises ConfigurationError: there is no position, it can still be read, or no reason is given. Nothing was recorded.
    :raises SalesforceStreamError: it could not be found out. Nothing was recorded.
    """
    stream, position = landed.stream, landed.position()
    if not reason.strip():
        raise ConfigurationError(f"{stream}: the reason is empty. Say why the loss is accepted; nothing was recorded.")
    if position.replay_id is None:
        raise ConfigurationError(f"{stream}: no position is recorded, so none can be lost. Nothing was recorded.")
    before = _accepted_at(landed, position.replay_id)
    if before is not None:
        return before
    found = look(source, stream.topic, position.replay_id, WakeUpConditions())
    if found is None or found.reason is not WakeUpReason.REPLAY_LOST:
        raise ConfigurationError(
            f"{stream}: Salesforce still reads the position {position.replay_id.hex()}, so nothing is lost. Nothing "
            "was recorded. Clear the drain that failed."
        )
    last = landed.manifest(position.window_id)
    since = position.confirmed_at if last is None else last.window.last_event_time or last.window.covered_until
    text = f"accepted by {accepted_by}, to go on from {go_on_from}: {reason}"
    aged = None if source.confirms_positions else aged_position(landed, position.replay_id, last, source)
    gap = Gap(position.replay_id, None, since, detected_at=now, reason=text, uncertain=aged is not None)
    landed.store.record_gap(stream, gap)
    return gap


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

    After a position that aged out on a quiet stream it continues from the earliest event whatever policy accepts that:
    a start at the latest event fails on a quiet stream, and could skip events.

    :param error: of a drain of ``new`` whose policy is ``"fail"``, or that lost its position too often.
    :param policy: ``on_invalid_replay`` of the run.
    :raises PositionAgedOutError: the position aged out on a quiet stream, and that is not accepted.
    :raises ReplayIdLostError: ``error``, if no loss is accepted.
    """
    if policy == "fail":
        policy = _accepted_policy(landed, new.start) or "fail"
    aged = None
    if not source.confirms_positions and error.replay_id is not None and error.replay_id == new.start:
        aged = aged_position(landed, error.replay_id, new.previous, source)
    if aged is not None and (accept_quiet_aging or policy != "fail"):
        log.warning("%s: the position %s aged out: %s.", landed.stream, aged.replay_id.hex(), aged.estimate)
        return replace(
            new,
            start=StartFrom.EARLIEST,
            on_invalid_replay=policy,
            gap=aged.new_gap(landed),
            unbroken_since=landed.unbroken_since(),
        )
    if policy != "fail" and policy != new.on_invalid_replay:
        return replace(new, on_invalid_replay=policy)
    if aged is None:
        raise error
    raise aged.error(landed) from error


def _accepted_policy(landed: LandedStream, position: bytes | StartFrom) -> GoOnFrom | None:
    """Return the start that was accepted for when ``position`` cannot be read; ``None`` if none was."""
    gap = _accepted_at(landed, position) if isinstance(position, bytes) else None
    match = None if gap is None else _ACCEPTED.match(gap.reason)
    return None if match is None else cast("GoOnFrom", match[1])


def _accepted_at(landed: LandedStream, replay_id: bytes) -> Gap | None:
    at_position = (gap for gap in landed.store.gaps(landed.stream) if gap.after == replay_id)
    return next((gap for gap in at_position if _ACCEPTED.match(gap.reason)), None)
