"""The time from which the events of a window count, and gaps without a known loss of events."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_sfstream.replay_stores.table.migrations.steps import TIME, add_column

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns: null for existing windows, false for existing gaps."""
    add_column("sfstream_window", sa.Column("counts_from", TIME))
    add_column("sfstream_gap", sa.Column("uncertain", sa.Boolean(), nullable=False, server_default=sa.false()))
