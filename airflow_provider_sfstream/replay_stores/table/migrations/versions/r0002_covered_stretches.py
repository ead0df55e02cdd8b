"""The time span that each window covers."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_sfstream.replay_stores.table.migrations.steps import TIME, add_column, create_index

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the two times, null for existing windows, and the indexes that find windows by them."""
    add_column("sfstream_window", sa.Column("covered_from", TIME))
    add_column("sfstream_window", sa.Column("covered_until", TIME))
    create_index("ix_sfstream_window_covered_from", "sfstream_window", ["stream_key", "covered_from"])
    # By event time where no span is known, so that one index has the end of every window.
    end = ["stream_key", "covered_until", "last_event_time"]
    create_index("ix_sfstream_window_covered_until", "sfstream_window", end)
