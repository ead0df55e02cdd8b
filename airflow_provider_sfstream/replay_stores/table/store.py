"""The replay store in a table: compare-and-set, and an index from time to replay ID."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from sqlalchemy import URL, ColumnElement, CursorResult, Engine, Select, and_, delete, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import InstrumentedAttribute, Session

from airflow_provider_sfstream.exceptions import PositionConflictError, ReplayStoreError
from airflow_provider_sfstream.replay_stores.base import (
    Position,
    PositionReset,
    advanced,
    conflict_message,
    require_kind,
    require_not_at_position,
    require_reset,
)
from airflow_provider_sfstream.replay_stores.table import models, schema
from airflow_provider_sfstream.replay_stores.table.engine import describe, engine_for, reading, writing
from airflow_provider_sfstream.replay_stores.table.models import GapRow, PositionRow, ResetRow, WindowRow
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream

_ATTEMPTS = 5
_Result = TypeVar("_Result")


class TableReplayStore:
    """Store of positions, windows and gaps in tables of a database.

    Guarantee: of any number of concurrent ``advance`` calls from one position exactly one succeeds, and it records
    position, window and gap in one transaction. If the process is killed during the call, none of them is recorded.

    :param engine_or_url: an SQLAlchemy engine, or the URL of a database (see :func:`sqlalchemy_url`).
    :param migrate: create or upgrade the tables on first use. With ``False`` the store only checks them, so that its
        login needs no right to change the schema.
    :param clock: returns the present as an aware time.
    """

    compares_and_sets = True

    def __init__(
        self,
        engine_or_url: Engine | URL | str,
        *,
        migrate: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._engine = engine_for(engine_or_url)
        self._migrate = migrate
        self._clock = clock
        self._is_checked = False
        self._check_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"TableReplayStore({describe(self._engine.url)})"

    def read(self, stream: Stream) -> Position:
        return self._read(lambda session: models.position_from_row(session.get(PositionRow, stream.key)))

    def advance(self, stream: Stream, expected: Position, window: ReplayWindow) -> Position:
        require_kind(stream, window, "live")

        def step(session: Session) -> Position:
            recorded = _position_if_recorded(session, stream, window)
            if recorded is not None:
                return recorded
            new_position = advanced(expected, window, self._clock())
            if not _compare_and_set(session, stream, expected, new_position):
                # Another try of the same run may have recorded the window first.
                recorded = _position_if_recorded(session, stream, window)
                if recorded is None:
                    raise PositionConflictError(conflict_message(stream, expected, _position(session, stream), window))
                return recorded
            self._add_window(session, stream, window, fence=new_position.fence)
            return new_position

        return self._write(stream, step)

    def record_backfill(self, stream: Stream, window: ReplayWindow) -> None:
        require_kind(stream, window, "backfill")

        def step(session: Session) -> None:
            if session.get(WindowRow, (stream.key, window.window_id)) is None:
                self._add_window(session, stream, window, fence=None)

        self._write(stream, step)

    def windows_of_run(self, stream: Stream, run: RunIdentity) -> list[ReplayWindow]:
        return self._windows(stream, WindowRow.run_key == run.key)

    def windows_overlapping(self, stream: Stream, start: datetime, end: datetime) -> list[ReplayWindow]:
        covered = and_(
            WindowRow.covered_from < end,
            WindowRow.covered_until > start,
            WindowRow.covered_from < WindowRow.covered_until,
        )
        counted = and_(WindowRow.contact_at >= start, or_(WindowRow.counts_from.is_(None), WindowRow.counts_from < end))
        occurred = and_(
            WindowRow.contact_at.is_(None), WindowRow.first_event_time < end, WindowRow.last_event_time >= start
        )
        has_event = and_(WindowRow.event_count > 0, or_(counted, occurred))
        return self._windows(stream, or_(covered, has_event))

    def window_before(self, stream: Stream, time: datetime) -> ReplayWindow | None:
        # Two queries, so that each reads only the end of an index range.
        by_contact = _last(stream, WindowRow.contact_at, WindowRow.contact_at <= time)
        no_contact = and_(WindowRow.contact_at.is_(None), WindowRow.last_event_time < time)
        by_events = _last(stream, WindowRow.last_event_time, no_contact)

        def step(session: Session) -> ReplayWindow | None:
            rows = [(row, gap) for query in (by_contact, by_events) for row, gap in session.execute(query)]
            return models.window_from_row(*max(rows, key=lambda pair: models.end_order(pair[0]))) if rows else None

        return self._read(step)

    def record_gap(self, stream: Stream, gap: Gap) -> None:
        self._write(stream, lambda session: _add_gap(session, stream, gap))

    def gaps(self, stream: Stream) -> list[Gap]:
        query = select(GapRow).where(GapRow.stream_key == stream.key).order_by(GapRow.detected_at, GapRow.gap_key)
        return self._read(lambda session: [models.gap_from_row(row) for row in session.scalars(query)])

    def reset(self, stream: Stream, replay_id: bytes | None, *, reason: str, updated_by: str) -> Position:
        require_reset(stream, replay_id, reason, updated_by)

        def step(session: Session) -> Position:
            row = session.get(PositionRow, stream.key, with_for_update=True)
            previous = models.position_from_row(row)
            new_position = Position(replay_id, previous.fence + 1, None, self._clock(), updated_by)
            if not _compare_and_set(session, stream, previous, new_position):
                raise ReplayStoreError(
                    f"{stream}: the position moved during the reset; nothing was changed. Try again."
                )
            session.add(
                ResetRow(
                    **models.stream_columns(stream),
                    fence=new_position.fence,
                    from_replay_id=previous.replay_id,
                    to_replay_id=replay_id,
                    reason=reason,
                    reset_at=new_position.updated_at,
                    reset_by=updated_by,
                )
            )
            return new_position

        return self._write(stream, step)

    def resets(self, stream: Stream) -> list[PositionReset]:
        query = select(ResetRow).where(ResetRow.stream_key == stream.key).order_by(ResetRow.fence)
        return self._read(lambda session: [models.reset_from_row(row) for row in session.scalars(query)])

    def forget_windows(self, stream: Stream, window_ids: Collection[str]) -> None:
        """Delete the rows of windows, in one transaction, but never the window that the position refers to."""
        deletion = delete(WindowRow).where(WindowRow.stream_key == stream.key, WindowRow.window_id.in_(window_ids))

        def step(session: Session) -> None:
            # Locked, so that the position cannot move to one of them meanwhile.
            row = session.get(PositionRow, stream.key, with_for_update=True)
            require_not_at_position(stream, models.position_from_row(row), window_ids)
            session.execute(deletion.execution_options(synchronize_session=False))

        self._write(stream, step)

    def close(self) -> None:
        self._engine.dispose()

    def _windows(self, stream: Stream, condition: ColumnElement[bool]) -> list[ReplayWindow]:
        # Only live windows have a fence, so they precede backfill windows, as the contract requires.
        query = _select(stream, condition).order_by(WindowRow.fence.is_(None), WindowRow.fence, WindowRow.window_id)
        return self._read(lambda session: [models.window_from_row(row, gap) for row, gap in session.execute(query)])

    def _add_window(self, session: Session, stream: Stream, window: ReplayWindow, *, fence: int | None) -> None:
        """Add the row of ``window``, with the position's ``fence`` after it (``None`` for a backfill window)."""
        values = {**vars(window), **vars(window.run)}
        del values["run"], values["gap"]
        row = WindowRow(
            **models.stream_columns(stream),
            **values,
            gap_key=None if window.gap is None else models.gap_key(window.gap),
            fence=fence,
            run_key=window.run.key,
            recorded_at=self._clock(),
        )
        session.add(row)
        if window.gap is not None:
            _add_gap(session, stream, window.gap)

    def _read(self, query: Callable[[Session], _Result]) -> _Result:
        self._check_tables()
        with reading(self._engine) as connection, Session(connection) as session:
            return query(session)

    def _write(self, stream: Stream, step: Callable[[Session], _Result]) -> _Result:
        """Run ``step`` in one transaction; run it again if another transaction inserted the same key meanwhile."""
        self._check_tables()
        for _ in range(_ATTEMPTS):
            try:
                with writing(self._engine) as connection, Session(connection) as session:
                    result = step(session)
                    session.flush()
                return result
            except IntegrityError as error:
                cause = error.orig
        raise ReplayStoreError(
            f"{stream}: the {describe(self._engine.url)} refused the record {_ATTEMPTS} times "
            f"({type(cause).__name__}). Nothing was recorded or moved. Try again; if it persists, check that the "
            "sfstream_ tables were not changed by hand."
        )

    def _check_tables(self) -> None:
        with self._check_lock:
            if self._is_checked:
                return
            check = schema.upgrade if self._migrate else schema.require_current
            check(self._engine)
            self._is_checked = True


def _select(stream: Stream, condition: ColumnElement[bool]) -> Select[WindowRow, GapRow]:
    """Return the query for windows and their gaps."""
    same_gap = and_(GapRow.stream_key == WindowRow.stream_key, GapRow.gap_key == WindowRow.gap_key)
    query = select(WindowRow, GapRow).outerjoin(GapRow, same_gap)
    return query.where(WindowRow.stream_key == stream.key, condition)


def _last(
    stream: Stream, end: InstrumentedAttribute[datetime | None], condition: ColumnElement[bool]
) -> Select[WindowRow, GapRow]:
    """Return the query for the window with the latest ``end`` of those that have a replay ID to continue from."""
    query = _select(stream, and_(condition, WindowRow.through.is_not(None)))
    order = (end.desc(), WindowRow.fence.is_(None), WindowRow.fence.desc(), WindowRow.window_id.desc())
    return query.order_by(*order).limit(1)


def _position(session: Session, stream: Stream) -> Position:
    return models.position_from_row(session.get(PositionRow, stream.key, populate_existing=True))


def _position_if_recorded(session: Session, stream: Stream, window: ReplayWindow) -> Position | None:
    """Return the current position if ``window`` is recorded already.

    :raises PositionConflictError: if another end is recorded for it: two tries of one run were active at the same time.
    """
    row = session.get(WindowRow, (stream.key, window.window_id), populate_existing=True)
    if row is None:
        return None
    position = _position(session, stream)
    if row.through != window.through:
        raise PositionConflictError(conflict_message(stream, Position(window.after), position, window))
    return position


def _compare_and_set(session: Session, stream: Stream, expected: Position, new_position: Position) -> bool:
    """Move the position in one statement if it is still ``expected``, and return whether it was."""
    statement = (
        update(PositionRow)
        .where(
            PositionRow.stream_key == stream.key,
            PositionRow.fence == expected.fence,
            PositionRow.replay_id.is_not_distinct_from(expected.replay_id),
        )
        .values(vars(new_position))
        .execution_options(synchronize_session=False)
    )
    if cast("CursorResult[Any]", session.execute(statement)).rowcount == 1:
        return True
    nothing_expected = expected.fence == 0 and expected.replay_id is None
    if not nothing_expected or session.get(PositionRow, stream.key, populate_existing=True) is not None:
        return False
    session.add(PositionRow(**models.stream_columns(stream), **vars(new_position)))
    session.flush()
    return True


def _add_gap(session: Session, stream: Stream, gap: Gap) -> None:
    key = models.gap_key(gap)
    if session.get(GapRow, (stream.key, key)) is None:
        session.add(GapRow(**models.stream_columns(stream), gap_key=key, **vars(gap)))
