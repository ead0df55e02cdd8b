"""The last status of each stream and table, which tasks write for users."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from airflow_provider_sfstream.replay_stores.table.migrations.steps import TIME, create_table

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table."""
    create_table(
        "sfstream_status",
        sa.Column("subject_key", sa.String(64), nullable=False),
        sa.Column("section", sa.String(64), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("document", sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("subject_key", "section"),
    )
