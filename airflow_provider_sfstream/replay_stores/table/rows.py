"""Between rows and the values that the contract speaks of. Pure."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, cast

from airflow_provider_sfstream.replay_stores.base import Position, PositionReset
from airflow_provider_sfstream.replay_stores.table.models import GapRow, PositionRow, ResetRow, WindowRow
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream, WindowKind


def stream_columns(stream: Stream) -> dict[str, str]:
    """Return the columns that every table begins with."""
    return {
        "stream_key": stream.key,
        "org_id": stream.org_id,
        "api": stream.api,
        "topic": stream.topic,
        "subscription": stream.subscription,
    }


def position_from_row(row: PositionRow | None) -> Position:
    """Return the position of a row; of no row, the position that nothing was recorded for."""
    if row is None:
        return Position()
    return Position(
        row.replay_id, row.fence, row.window_id, row.updated_at, row.updated_by, row.contact_at, row.confirmed_at
    )


def window_to_row(stream: Stream, window: ReplayWindow, *, fence: int | None, recorded_at: datetime) -> WindowRow:
    """Return the row of ``window``, with the position's ``fence`` after it (``None`` for a backfill window)."""
    run = window.run
    return WindowRow(
        **stream_columns(stream),
        window_id=window.window_id,
        kind=window.kind,
        after_replay_id=window.after,
        through_replay_id=window.through,
        event_count=window.event_count,
        first_event_time=window.first_event_time,
        last_event_time=window.last_event_time,
        covered_from=window.covered_from,
        covered_until=window.covered_until,
        contact_at=window.contact_at,
        counts_from=window.counts_from,
        manifest_url=window.manifest_url,
        previous_window_id=window.previous_window_id,
        gap_key=None if window.gap is None else gap_key(window.gap),
        fence=fence,
        run_key=run.key,
        dag_id=run.dag_id,
        task_id=run.task_id,
        run_id=run.run_id,
        run_after=run.run_after,
        map_index=run.map_index,
        try_number=run.try_number,
        recorded_at=recorded_at,
    )


def window_from_row(row: WindowRow, gap: GapRow | None) -> ReplayWindow:
    """Return the window of a row and of the gap row that it names."""
    return ReplayWindow(
        window_id=row.window_id,
        kind=cast(WindowKind, row.kind),
        after=row.after_replay_id,
        through=row.through_replay_id,
        event_count=row.event_count,
        first_event_time=row.first_event_time,
        last_event_time=row.last_event_time,
        manifest_url=row.manifest_url,
        run=RunIdentity(row.dag_id, row.task_id, row.run_id, row.run_after, row.map_index, row.try_number),
        previous_window_id=row.previous_window_id,
        gap=None if gap is None else gap_from_row(gap),
        covered_from=row.covered_from,
        covered_until=row.covered_until,
        contact_at=row.contact_at,
        counts_from=row.counts_from,
    )


def end_order(row: WindowRow) -> tuple[datetime, bool, int, str]:
    """Return what orders windows that end by where they do; of one end, backfill windows come before live ones.

    :raises ValueError: if the row has neither a time of contact nor an event time.
    """
    end = row.contact_at or row.last_event_time
    if end is None:
        raise ValueError(f"window {row.window_id} ends nowhere")
    return end, row.fence is not None, row.fence or 0, row.window_id


def gap_key(gap: Gap) -> str:
    """Return a digest of the whole gap (64 hex digits): equal gaps have equal keys."""
    parts: tuple[Any, ...] = (gap.after, gap.resumed_at, _utc(gap.since), _utc(gap.detected_at), gap.reason)
    if gap.uncertain:  # keys of gaps recorded before revision 0005 stay as they are
        parts = (*parts, gap.uncertain)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def gap_to_row(stream: Stream, gap: Gap) -> GapRow:
    """Return the row of ``gap``."""
    return GapRow(
        **stream_columns(stream),
        gap_key=gap_key(gap),
        after_replay_id=gap.after,
        resumed_at_replay_id=gap.resumed_at,
        since=gap.since,
        detected_at=gap.detected_at,
        reason=gap.reason,
        uncertain=gap.uncertain,
    )


def gap_from_row(row: GapRow) -> Gap:
    """Return the gap of a row."""
    return Gap(row.after_replay_id, row.resumed_at_replay_id, row.since, row.detected_at, row.reason, row.uncertain)


def reset_from_row(row: ResetRow) -> PositionReset:
    """Return the audit record of a row."""
    return PositionReset(row.reset_at, row.reset_by, row.reason, row.from_replay_id, row.to_replay_id)


def _utc(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat()
