"""All tables, as the models define them. No revision before this one was released.

A later revision runs on new tables too, which have its columns already: each of its steps must check what exists. An
upgrade that was killed can then be run again: MySQL commits after every statement that changes a table.
"""

from __future__ import annotations

from alembic import op

from airflow_provider_sfstream.replay_stores.table.models import Base

revision = "0005"
down_revision = None


def upgrade() -> None:
    """Create the missing tables and indexes."""
    database = op.get_bind()
    Base.metadata.create_all(database)
    for table in Base.metadata.sorted_tables:
        for index in table.indexes:  # a killed upgrade may have created the table only
            index.create(database, checkfirst=True)
