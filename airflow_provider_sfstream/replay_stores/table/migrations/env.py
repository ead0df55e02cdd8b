"""The Alembic environment, run for every command. The caller passes a connection in an open transaction."""

from __future__ import annotations

from alembic import context

from airflow_provider_sfstream.replay_stores.table.models import Base
from airflow_provider_sfstream.replay_stores.table.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
