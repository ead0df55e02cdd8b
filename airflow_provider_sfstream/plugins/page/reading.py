"""Reading status documents in Airflow's API server: from its database's Variables, or from the status table."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.replay_store import ReplayStoreHook
from airflow_provider_sfstream.hooks.status import status_conn_id
from airflow_provider_sfstream.monitoring.pages import task_page
from airflow_provider_sfstream.monitoring.status import Status, connection_of
from airflow_provider_sfstream.monitoring.status_store import PREFIX, status_from_text, variable_key
from airflow_provider_sfstream.plugins.page.reader import parsed, tasks_of

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.orm import Session

    from airflow_provider_sfstream.monitoring.table_status import TableStatusStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Read:
    """What was read, and how many documents are none."""

    statuses: list[Status]
    unreadable: int = 0


def read_statuses(session: Session, windows_of: str | None = None) -> Read:
    """Return all status documents but the lists of windows, which are most of all that is kept.

    :param session: of Airflow's metadata database.
    :param windows_of: the stream of which the windows are read too.
    :raises ReplayStoreError: if the database of ``[sfstream] status_conn_id`` cannot be read.
    """
    conn_id = status_conn_id()
    read = _from_variables(session, windows_of) if conn_id is None else _from_table(conn_id, windows_of)
    sound = [status for status in read.statuses if is_sound(status)]
    return Read(sound, read.unreadable + len(read.statuses) - len(sound))


def is_sound(status: Status) -> bool:
    """Return whether a document says which stream or folder, which tasks and which time it is of.

    Anyone who may write Variables may write a document: an invalid one must not hide the others.
    """
    document = status.document
    try:
        if connection_of(status.subject) is not None:
            parsed(status.subject)
        named = [document.get("output_url", ""), *document.get("streams", ())]
        pages = [task_page(task) for task in tasks_of(status)]
        at = document.get("at")
        zone = at is None or datetime.fromisoformat(at).utcoffset()
    except (ConfigurationError, ValueError, TypeError, KeyError, AttributeError):
        return False
    has_names = all(isinstance(name, str) for name in named)
    return has_names and zone is not None and (status.section != "failed" or bool(at and pages))


def _from_table(conn_id: str, windows_of: str | None) -> Read:
    store = _store(ReplayStoreHook(conn_id).url())
    windows = [] if windows_of is None else store.statuses(section="windows", subject=windows_of)
    return Read([*store.statuses(), *windows])


@lru_cache(maxsize=4)
def _store(url: URL) -> TableStatusStore:
    """Return the store of a database: one for all requests, since it holds connections open."""
    from airflow_provider_sfstream.monitoring.table_status import TableStatusStore

    return TableStatusStore(url)


def _from_variables(session: Session, windows_of: str | None) -> Read:
    from airflow.models.variable import Variable
    from sqlalchemy import or_, select

    # Not as ORM objects: making one decrypts its value, to mask it in logs, and decrypts it again to read it.
    variables = Variable.__table__.c
    wanted = ~variables.key.endswith(".windows", autoescape=True)
    if windows_of is not None:
        wanted = or_(wanted, variables.key == variable_key(windows_of, "windows"))
    query = select(variables.key, variables.val, variables.is_encrypted)
    rows = session.execute(query.where(variables.key.startswith(PREFIX, autoescape=True), wanted)).all()
    # Lists of windows are large, and seldom asked for twice.
    found = [(_decrypted if key.endswith(".windows") else _remembered)(key, *value) for key, *value in rows]
    statuses = [status for status in found if status is not None]
    return Read(statuses, len(rows) - len(statuses))


def _decrypted(key: str, value: str, is_encrypted: bool) -> Status | None:
    """Return the status that a Variable holds; ``None`` if it holds none."""
    from airflow.models.crypto import get_fernet

    try:
        text = get_fernet().decrypt(value.encode()).decode() if is_encrypted else value
        return status_from_text(text, f"Variable {key}")
    except Exception as error:  # of another key, or written by somebody else: the others are shown
        log.warning("Variable %s holds no status that can be read: %s: %s", key, type(error).__name__, error)
        return None


_remembered = lru_cache(maxsize=2_000)(_decrypted)
"""Decrypting takes longest, and between two looks few of the values have changed."""
