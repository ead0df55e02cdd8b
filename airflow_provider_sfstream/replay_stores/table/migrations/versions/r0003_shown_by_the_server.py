"""Times of the server's last answer, and of its last confirmation that a position was the end of the stream."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_sfstream.replay_stores.table.migrations.steps import TIME, add_column, create_index

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the times, null for existing rows, and the index that finds windows by them."""
    add_column("sfstream_position", sa.Column("contact_at", TIME))
    add_column("sfstream_position", sa.Column("confirmed_at", TIME))
    add_column("sfstream_window", sa.Column("contact_at", TIME))
    # By event time where no contact is known, so that one index has the end of every window.
    create_index("ix_sfstream_window_contact", "sfstream_window", ["stream_key", "contact_at", "last_event_time"])
