"""The replay store in a table of a database: SQLite, PostgreSQL or MySQL, by SQLAlchemy and Alembic."""

from __future__ import annotations

from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.replay_stores.table.urls import sqlalchemy_url

__all__ = ["TableReplayStore", "sqlalchemy_url"]
