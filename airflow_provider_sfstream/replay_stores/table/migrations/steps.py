"""Idempotent steps of migrations, so that an upgrade that was killed can be run again.

MySQL commits after every statement that changes a table, so each step first checks whether it is already done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql
from sqlalchemy.sql.schema import SchemaItem

_MYSQL = ("mysql", "mariadb")

REPLAY_ID = sa.LargeBinary(64).with_variant(mysql.VARBINARY(64), *_MYSQL)
"""The type of columns with a replay ID."""

TIME = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *_MYSQL)
"""The type of columns with a point in time, in microseconds."""

# Independent of the server's defaults: transactions, text of any script, and binary comparison of keys.
_OPTIONS: dict[str, Any] = {
    f"{dialect}_{name}": value
    for dialect in _MYSQL
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}


def create_table(name: str, *columns: SchemaItem) -> None:
    """Create a table unless it exists."""
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *columns, **_OPTIONS)


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Add a column unless the table has it."""
    if column.name not in {existing["name"] for existing in sa.inspect(op.get_bind()).get_columns(table)}:
        op.add_column(table, column)


def create_index(name: str, table: str, columns: Sequence[str]) -> None:
    """Create an index unless the table has it."""
    if name not in {existing["name"] for existing in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, columns)
