"""Accepting that events are lost, by an act of its own that the next drain of the stream goes by.

What is accepted is recorded as a gap after the position that can no longer be read. It holds for that position only: a
loss at any other one stops a drain as before.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, cast

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.protocol.streams import Gap
from airflow_provider_sfstream.reading.source import EventSource
from airflow_provider_sfstream.runs.landed_stream import LandedStream
from airflow_provider_sfstream.stores.base import Position
from airflow_provider_sfstream.watch.conditions import WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.watch.look import look

GoOnFrom = Literal["earliest", "latest"]

_ACCEPTED = re.compile(r"accepted by .*, to go on from (earliest|latest): ", re.DOTALL)


def accept_loss(
    landed: LandedStream, source: EventSource, *, go_on_from: GoOnFrom, reason: str, accepted_by: str, now: datetime
) -> Gap:
    """Record that what cannot be read after the position is lost, if Salesforce shows that it cannot be read.

    The position stays. Accepting the loss at one position again changes nothing and returns what was recorded.

    :param go_on_from: ``"earliest"``: with the oldest event that Salesforce still has; ``"latest"``: with new ones.
    :raises ConfigurationError: there is no position, it can still be read, or no reason is given. Nothing was recorded.
    :raises SalesforceStreamError: it could not be found out. Nothing was recorded.
    """
    stream, position = landed.stream, landed.position()
    if not reason.strip():
        raise ConfigurationError(f"{stream}: the reason is empty. Say why the loss is accepted; nothing was recorded.")
    if position.replay_id is None:
        raise ConfigurationError(f"{stream}: no position is recorded, so none can be lost. Nothing was recorded.")
    before = _accepted_at(landed, position)
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
    gap = Gap(after=position.replay_id, resumed_at=None, since=since, detected_at=now, reason=text)
    landed.store.record_gap(stream, gap)
    return gap


def accepted_policy(landed: LandedStream, position: Position) -> GoOnFrom | None:
    """Return where to go on from when ``position`` cannot be read, if somebody accepted that; else ``None``."""
    gap = _accepted_at(landed, position)
    match = None if gap is None else _ACCEPTED.match(gap.reason)
    return None if match is None else cast("GoOnFrom", match[1])


def _accepted_at(landed: LandedStream, position: Position) -> Gap | None:
    at_position = (gap for gap in landed.store.gaps(landed.stream) if gap.after == position.replay_id)
    return next((gap for gap in at_position if _ACCEPTED.match(gap.reason)), None)
