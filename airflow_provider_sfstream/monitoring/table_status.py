"""Status store in a table, in the database of the table replay store."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import URL, Engine, delete, inspect, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from airflow_provider_sfstream.monitoring.status import Document, Status, subject_key
from airflow_provider_sfstream.monitoring.status_store import StatusStore, Step, status_from_text, status_to_text
from airflow_provider_sfstream.replay_stores.table import schema
from airflow_provider_sfstream.replay_stores.table.engine import describe, engine_for, reading, writing
from airflow_provider_sfstream.replay_stores.table.models import StatusRow


class TableStatusStore(StatusStore):
    """Status store with one row for each section of each subject, changed in a transaction.

    :param engine_or_url: as for :class:`~airflow_provider_sfstream.replay_stores.table.TableReplayStore`.
    """

    def __init__(self, engine_or_url: Engine | URL | str) -> None:
        self._engine = engine_for(engine_or_url)
        self._is_checked = False

    def __repr__(self) -> str:
        return f"TableStatusStore({describe(self._engine.url)})"

    def change(self, subject: str, section: str, step: Step) -> Document:
        if not self._is_checked:
            schema.upgrade(self._engine)
            self._is_checked = True
        try:
            return self._change(subject, section, step)
        except IntegrityError:  # another task inserted the row meanwhile
            return self._change(subject, section, step)

    def statuses(self, *, section: str | None = None, subject: str | None = None) -> list[Status]:
        """Return the statuses of one section or subject, or all except ``windows``; none without a table."""
        query = select(StatusRow)
        if subject is not None:
            query = query.where(StatusRow.subject_key == subject_key(subject))
        if section is not None:
            query = query.where(StatusRow.section == section)
        elif subject is None:
            query = query.where(StatusRow.section != "windows")
        with reading(self._engine) as connection, Session(connection) as session:
            if not inspect(connection).has_table(StatusRow.__tablename__):
                return []
            texts = [row.document for row in session.scalars(query)]
        return [
            status_from_text(text, f"A row of sfstream_status in the {describe(self._engine.url)}") for text in texts
        ]

    def forget(self, subject: str) -> int:
        with writing(self._engine) as connection:
            if not inspect(connection).has_table(StatusRow.__tablename__):
                return 0
            return connection.execute(delete(StatusRow).where(StatusRow.subject_key == subject_key(subject))).rowcount

    def close(self) -> None:
        self._engine.dispose()

    def _change(self, subject: str, section: str, step: Step) -> Document:
        key = {"subject_key": subject_key(subject), "section": section}
        with writing(self._engine) as connection, Session(connection) as session:
            row = session.get(StatusRow, key, with_for_update=True)
            before = None
            if row is None:
                row = StatusRow(**key)
                session.add(row)
            else:
                before = status_from_text(row.document, f"The row of {subject} in sfstream_status").document
            row.subject = subject
            document = step(before)
            row.document = status_to_text(Status(subject, section, document))
            row.updated_at = datetime.now(UTC)
            session.flush()
            return document
