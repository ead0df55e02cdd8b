"""SQL of the position tables and of the compare-and-set in each database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import select
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect
from sqlalchemy.schema import CreateIndex, CreateTable

from airflow_provider_sfstream.replay_stores.table.models import Base, PositionRow, UtcDateTime, WindowRow


def ddl(table: str, dialect: object) -> str:
    return str(CreateTable(Base.metadata.tables[table]).compile(dialect=dialect))  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", [mysql.dialect(), MariaDBDialect()])
def test_mysql_keeps_microseconds_and_can_compare_replay_ids(dialect: object) -> None:
    position = ddl("sfstream_position", dialect)

    assert "replay_id VARBINARY(64)" in position
    assert "updated_at DATETIME(6) NOT NULL" in position
    condition = select(PositionRow).where(PositionRow.replay_id.is_not_distinct_from(b"x"))
    assert "replay_id <=> %s" in str(condition.compile(dialect=dialect))  # type: ignore[arg-type]


def test_mysql_keys_fit_its_limit() -> None:
    longest = 3072 // 4  # characters of four bytes in an InnoDB key
    for table in Base.metadata.tables.values():
        for index in [table.primary_key, *table.indexes]:
            assert sum(getattr(column.type, "length", None) or 8 for column in index.columns) <= longest
    for index in Base.metadata.tables["sfstream_window"].indexes:
        str(CreateIndex(index).compile(dialect=mysql.dialect()))


def test_postgresql_keeps_the_time_zone() -> None:
    assert "first_event_time TIMESTAMP WITH TIME ZONE" in ddl("sfstream_window", postgresql.dialect())
    condition = select(WindowRow).where(WindowRow.through.is_not_distinct_from(None))
    assert "IS NOT DISTINCT FROM" in str(condition.compile(dialect=postgresql.dialect()))


@pytest.mark.parametrize("dialect", [mysql.dialect(), postgresql.dialect(), sqlite.dialect()])
def test_times_are_utc_in_every_database(dialect: object) -> None:
    elsewhere = timezone(timedelta(hours=5, minutes=45))
    time = datetime(2026, 11, 20, 3, 0, 0, 123456, elsewhere)
    column = UtcDateTime()

    bound = column.process_bind_param(time, dialect)  # type: ignore[arg-type]

    assert bound is not None
    assert bound.replace(tzinfo=None) == datetime(2026, 11, 19, 21, 15, 0, 123456)  # noqa: DTZ001
    read = column.process_result_value(bound, dialect)  # type: ignore[arg-type]
    assert read == time
    assert read is not None
    assert read.tzinfo is UTC


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        UtcDateTime().process_bind_param(datetime(2026, 11, 20), sqlite.dialect())  # noqa: DTZ001
