"""Positions, windows, gaps and resets."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from airflow_provider_sfstream.replay_stores.table.migrations.steps import REPLAY_ID, TIME, create_index, create_table

revision = "0001"
down_revision = None


# Not imported from the models: a revision must not change when the models change.
def _stream_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("stream_key", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(255), nullable=False),
        sa.Column("api", sa.String(16), nullable=False),
        sa.Column("topic", sa.String(255), nullable=False),
        sa.Column("subscription", sa.String(255), nullable=False),
    ]


def upgrade() -> None:
    """Create the four tables."""
    create_table(
        "sfstream_position",
        *_stream_columns(),
        sa.Column("replay_id", REPLAY_ID),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("window_id", sa.String(64)),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("stream_key"),
    )
    create_table(
        "sfstream_window",
        *_stream_columns(),
        sa.Column("window_id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("after_replay_id", REPLAY_ID),
        sa.Column("through_replay_id", REPLAY_ID),
        sa.Column("event_count", sa.BigInteger(), nullable=False),
        sa.Column("first_event_time", TIME),
        sa.Column("last_event_time", TIME),
        sa.Column("manifest_url", sa.Text(), nullable=False),
        sa.Column("previous_window_id", sa.String(64)),
        sa.Column("gap_key", sa.String(64)),
        sa.Column("fence", sa.BigInteger()),
        sa.Column("run_key", sa.String(64), nullable=False),
        sa.Column("dag_id", sa.String(255), nullable=False),
        sa.Column("task_id", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(255), nullable=False),
        sa.Column("run_after", TIME, nullable=False),
        sa.Column("map_index", sa.Integer(), nullable=False),
        sa.Column("try_number", sa.Integer(), nullable=False),
        sa.Column("recorded_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("stream_key", "window_id"),
    )
    create_index("ix_sfstream_window_first_event", "sfstream_window", ["stream_key", "first_event_time"])
    create_index("ix_sfstream_window_last_event", "sfstream_window", ["stream_key", "last_event_time"])
    create_index("ix_sfstream_window_run", "sfstream_window", ["stream_key", "run_key"])
    create_table(
        "sfstream_gap",
        *_stream_columns(),
        sa.Column("gap_key", sa.String(64), nullable=False),
        sa.Column("after_replay_id", REPLAY_ID),
        sa.Column("resumed_at_replay_id", REPLAY_ID),
        sa.Column("since", TIME),
        sa.Column("detected_at", TIME, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("stream_key", "gap_key"),
    )
    create_table(
        "sfstream_reset",
        *_stream_columns(),
        sa.Column("fence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_replay_id", REPLAY_ID),
        sa.Column("to_replay_id", REPLAY_ID),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("reset_at", TIME, nullable=False),
        sa.Column("reset_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("stream_key", "fence"),
    )
