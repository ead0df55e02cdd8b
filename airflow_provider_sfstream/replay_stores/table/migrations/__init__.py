"""The Alembic migrations of the table store."""
