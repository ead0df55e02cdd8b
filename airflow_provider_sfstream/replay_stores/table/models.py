"""Tables of the table store, in types that its databases share, and their rows as values of the contract."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Index, LargeBinary, String, Text, TypeDecorator
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeEngine

from airflow_provider_sfstream.replay_stores.base import Position, PositionReset
from airflow_provider_sfstream.salesforce.replay_ids import LONGEST
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream

MYSQL = ("mysql", "mariadb")
"""SQLAlchemy's names of MySQL and MariaDB; MariaDB has either name, depending on the URL."""


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time to the microsecond: always aware in Python, always UTC in the database.

    ``timestamptz`` on PostgreSQL, ``datetime(6)`` on MySQL, text on SQLite.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime]:
        if dialect.name in MYSQL:
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        value = value.astimezone(UTC)
        return value if dialect.name == "postgresql" else value.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Key = String(64)
Name = String(255)
ReplayId = LargeBinary(LONGEST).with_variant(mysql.VARBINARY(LONGEST), *MYSQL)


# Independent of the server's defaults: transactions, text of any script, and binary comparison of keys.
_OPTIONS: dict[str, Any] = {
    f"{dialect}_{name}": value
    for dialect in MYSQL
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}


class Base(DeclarativeBase):
    """Root of the tables. No column of a new row has a database default: this package sets every value."""

    __table_args__: Any = _OPTIONS


class StreamColumns:
    """The stream of a row: the key that queries use, and the columns for readers."""

    stream_key: Mapped[str] = mapped_column(Key, primary_key=True, sort_order=-20)
    org_id: Mapped[str] = mapped_column(Name, sort_order=-19)
    api: Mapped[str] = mapped_column(String(16), sort_order=-18)
    topic: Mapped[str] = mapped_column(Name, sort_order=-17)
    subscription: Mapped[str] = mapped_column(Name, sort_order=-16)


class PositionRow(StreamColumns, Base):
    """The position of a stream. One row for each stream."""

    __tablename__ = "sfstream_position"

    replay_id: Mapped[bytes | None] = mapped_column(ReplayId)
    fence: Mapped[int] = mapped_column(BigInteger)
    window_id: Mapped[str | None] = mapped_column(Key)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_by: Mapped[str] = mapped_column(Text)
    contact_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    confirmed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class WindowRow(StreamColumns, Base):
    """A recorded window. ``fence`` is the position's fence after a live window, and null for a backfill window."""

    __tablename__ = "sfstream_window"
    __table_args__ = (
        Index("ix_sfstream_window_first_event", "stream_key", "first_event_time"),
        Index("ix_sfstream_window_last_event", "stream_key", "last_event_time"),
        Index("ix_sfstream_window_covered_from", "stream_key", "covered_from"),
        Index("ix_sfstream_window_covered_until", "stream_key", "covered_until", "last_event_time"),
        Index("ix_sfstream_window_contact", "stream_key", "contact_at", "last_event_time"),
        Index("ix_sfstream_window_run", "stream_key", "run_key"),
        _OPTIONS,
    )

    window_id: Mapped[str] = mapped_column(Key, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    after: Mapped[bytes | None] = mapped_column("after_replay_id", ReplayId)
    through: Mapped[bytes | None] = mapped_column("through_replay_id", ReplayId)
    event_count: Mapped[int] = mapped_column(BigInteger)
    first_event_time: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_event_time: Mapped[datetime | None] = mapped_column(UtcDateTime)
    manifest_url: Mapped[str] = mapped_column(Text)
    previous_window_id: Mapped[str | None] = mapped_column(Key)
    gap_key: Mapped[str | None] = mapped_column(Key)
    fence: Mapped[int | None] = mapped_column(BigInteger)
    run_key: Mapped[str] = mapped_column(Key)
    dag_id: Mapped[str] = mapped_column(Name)
    task_id: Mapped[str] = mapped_column(Name)
    run_id: Mapped[str] = mapped_column(Name)
    run_after: Mapped[datetime] = mapped_column(UtcDateTime)
    map_index: Mapped[int] = mapped_column()
    try_number: Mapped[int] = mapped_column()
    recorded_at: Mapped[datetime] = mapped_column(UtcDateTime)
    covered_from: Mapped[datetime | None] = mapped_column(UtcDateTime)
    covered_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    contact_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    counts_from: Mapped[datetime | None] = mapped_column(UtcDateTime)


class GapRow(StreamColumns, Base):
    """A span that can no longer be read. ``gap_key`` is a digest of the rest, so that equal gaps share one row."""

    __tablename__ = "sfstream_gap"

    gap_key: Mapped[str] = mapped_column(Key, primary_key=True)
    after: Mapped[bytes | None] = mapped_column("after_replay_id", ReplayId)
    resumed_at: Mapped[bytes | None] = mapped_column("resumed_at_replay_id", ReplayId)
    since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    detected_at: Mapped[datetime] = mapped_column(UtcDateTime)
    reason: Mapped[str] = mapped_column(Text)
    uncertain: Mapped[bool] = mapped_column()


class ResetRow(StreamColumns, Base):
    """The audit record of a reset. ``fence`` is the position's fence after it, and defines the order."""

    __tablename__ = "sfstream_reset"

    fence: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    from_replay_id: Mapped[bytes | None] = mapped_column(ReplayId)
    to_replay_id: Mapped[bytes | None] = mapped_column(ReplayId)
    reason: Mapped[str] = mapped_column(Text)
    reset_at: Mapped[datetime] = mapped_column(UtcDateTime)
    reset_by: Mapped[str] = mapped_column(Text)


class StatusRow(Base):
    """The last status that one kind of task wrote about a stream or a folder of tables, for users."""

    __tablename__ = "sfstream_status"

    subject_key: Mapped[str] = mapped_column(Key, primary_key=True)
    section: Mapped[str] = mapped_column(Key, primary_key=True)
    subject: Mapped[str] = mapped_column(Text)
    document: Mapped[str] = mapped_column(Text().with_variant(mysql.LONGTEXT(), *MYSQL))
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


# The attributes of the rows have the names of the fields of the contract.


def stream_columns(stream: Stream) -> dict[str, str]:
    """Return the first columns of every table."""
    return {"stream_key": stream.key, **vars(stream)}


def _values(row: Base, type_: type[Any]) -> dict[str, Any]:
    """Return the values of the fields of ``type_`` that are columns of the row."""
    return {field.name: getattr(row, field.name) for field in fields(type_) if field.name not in ("run", "gap")}


def position_from_row(row: PositionRow | None) -> Position:
    """Return the position of a row; without a row, the empty position."""
    return Position() if row is None else Position(**_values(row, Position))


def window_from_row(row: WindowRow, gap: GapRow | None) -> ReplayWindow:
    """Return the window of a row and of the gap row that it refers to."""
    run = RunIdentity(**_values(row, RunIdentity))
    return ReplayWindow(**_values(row, ReplayWindow), run=run, gap=None if gap is None else gap_from_row(gap))


def end_order(row: WindowRow) -> tuple[datetime, bool, int, str]:
    """Return the sort key of windows by their end; at the same end, backfill windows sort before live ones.

    :raises ValueError: if the row has neither a time of contact nor an event time.
    """
    end = row.contact_at or row.last_event_time
    if end is None:
        raise ValueError(f"window {row.window_id} has neither a time of contact nor an event time")
    return end, row.fence is not None, row.fence or 0, row.window_id


def gap_key(gap: Gap) -> str:
    """Return a digest of the whole gap (64 hex digits): equal gaps have equal keys."""
    parts: tuple[Any, ...] = (gap.after, gap.resumed_at, _utc(gap.since), _utc(gap.detected_at), gap.reason)
    if gap.uncertain:  # keys of gaps recorded before revision 0005 stay unchanged
        parts = (*parts, gap.uncertain)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def gap_from_row(row: GapRow) -> Gap:
    """Return the gap of a row."""
    return Gap(**_values(row, Gap))


def reset_from_row(row: ResetRow) -> PositionReset:
    """Return the audit record of a row."""
    return PositionReset(**_values(row, PositionReset))


def _utc(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat()
