"""Status documents in Airflow's API server: read from its database's Variables or from the status table, and filtered
by the user's permissions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.replay_store import ReplayStoreHook, status_conn_id
from airflow_provider_sfstream.monitoring.pages import task_page
from airflow_provider_sfstream.monitoring.status import Document, Status, connection_of
from airflow_provider_sfstream.monitoring.status_store import PREFIX, status_from_text, variable_key
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.orm import Session

    from airflow_provider_sfstream.monitoring.table_status import TableStatusStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reader:
    """User, by the DAGs and the connections that they may read."""

    dag_ids: frozenset[str]
    connection_ids: frozenset[str]

    def may_read(self, task: Mapping[str, Any] | None) -> bool:
        """Return whether they may read the DAG of a task; ``None``: the task is unknown."""
        return task is not None and task["dag_id"] in self.dag_ids

    def readable(self, statuses: Iterable[Status]) -> list[Status]:
        """Return the documents that they may read.

        A stream is hidden if the user may not read its connection or the DAG that drains it. Of a visible stream, the
        sections of hidden DAGs are hidden. Sections without a task (``windows``, ``tables``) are visible if another
        section of their subject is.
        """
        permitted = [status for status in statuses if self._may_connect(status.subject)]
        with_task = [status for status in permitted if "task" in status.document]
        hidden = {s.subject for s in with_task if s.section == "drain" and not self.may_read(s.document["task"])}
        shown = [s for s in with_task if s.subject not in hidden and self.may_read(s.document["task"])]
        subjects = {status.subject for status in shown}
        shown += [s for s in permitted if "task" not in s.document and s.subject in subjects]
        return [self._without_hidden_tasks(status) for status in shown]

    def _may_connect(self, subject: str) -> bool:
        connection_id = connection_of(subject)
        return connection_id is None or connection_id in self.connection_ids

    def _without_hidden_tasks(self, status: Status) -> Status:
        """Return a status whose lines name neither the task of a hidden DAG nor the manifest that it wrote."""

        def shown(line: Document) -> Document:
            return line if self.may_read(line.get("task")) else {**line, "task": None, "manifest_url": None}

        document = dict(status.document)
        for name in _LISTS.get(status.section, ()):
            document[name] = [shown(line) for line in document.get(name, ())]
        if status.section == "drain" and document.get("window"):
            document["window"] = shown(document["window"])
        return replace(status, document=document)


_LISTS = {"drain": ("gaps",), "windows": ("windows",)}
"""Names of the lists whose lines name a task, by section."""


@lru_cache(maxsize=10_000)
def parsed(uri: str) -> StreamUri:
    """Return the stream of a URI. Cached, because each request parses the same URIs many times."""
    return StreamUri.parse(uri)


def tasks_of(status: Status) -> Iterator[Mapping[str, Any]]:
    """Yield each task that a document names."""
    document = status.document
    lines = [document] if "window" not in document else [document, document["window"]]
    for name in _LISTS.get(status.section, ()):
        lines += document.get(name, ())
    yield from (line["task"] for line in lines if line.get("task"))


def all_dag_ids(statuses: Iterable[Status]) -> set[str]:
    """Return every DAG that documents name."""
    return {task["dag_id"] for status in statuses for task in tasks_of(status)}


def subjects_named(name: str, statuses: Iterable[Status]) -> list[str]:
    """Return the subject that has this URI or URL, else the streams of this topic."""
    subjects = sorted({status.subject for status in statuses})
    if name in subjects:
        return [name]
    return [subject for subject in subjects if connection_of(subject) is not None and parsed(subject).topic == name]


@dataclass(frozen=True)
class LoadedStatuses:
    """Status documents, and the number of invalid ones."""

    statuses: list[Status]
    unreadable: int = 0


def read_statuses(session: Session, windows_of: str | None = None) -> LoadedStatuses:
    """Return all status documents except the lists of windows, which are most of the stored data.

    :param windows_of: URI of a stream whose list of windows is read too.
    """
    conn_id = status_conn_id()
    loaded = _from_variables(session, windows_of) if conn_id is None else _from_table(conn_id, windows_of)
    valid = [status for status in loaded.statuses if is_valid(status)]
    return LoadedStatuses(valid, loaded.unreadable + len(loaded.statuses) - len(valid))


def is_valid(status: Status) -> bool:
    """Return whether a document names its stream or folder, its tasks and its time.

    Anyone who may write Variables may write a document: an invalid one must not hide the others.
    """
    document = status.document
    try:
        if connection_of(status.subject) is not None:
            parsed(status.subject)
        names = [document.get("output_url", ""), *document.get("streams", ())]
        pages = [task_page(task) for task in tasks_of(status)]
        at = document.get("at")
        utc_offset = at is None or datetime.fromisoformat(at).utcoffset()
    except (ConfigurationError, ValueError, TypeError, KeyError, AttributeError):
        return False
    has_names = all(isinstance(name, str) for name in names)
    return has_names and utc_offset is not None and (not status.section.startswith("failed") or bool(at and pages))


def _from_table(conn_id: str, windows_of: str | None) -> LoadedStatuses:
    store = _store(ReplayStoreHook(conn_id).url())
    windows = [] if windows_of is None else store.statuses(section="windows", subject=windows_of)
    return LoadedStatuses([*store.statuses(), *windows])


@lru_cache(maxsize=4)
def _store(url: URL) -> TableStatusStore:
    """Return the store of a database: one for all requests, since it holds connections open."""
    from airflow_provider_sfstream.monitoring.table_status import TableStatusStore

    return TableStatusStore(url)


def _from_variables(session: Session, windows_of: str | None) -> LoadedStatuses:
    from sqlalchemy import or_, select

    from airflow_provider_sfstream._airflow.database import Variable

    # Not as ORM objects: each would decrypt its value when it is loaded, to mask it in logs, and again when it is read.
    variables = Variable.__table__.c
    keys = ~variables.key.endswith(".windows", autoescape=True)
    if windows_of is not None:
        keys = or_(keys, variables.key == variable_key(windows_of, "windows"))
    query = select(variables.key, variables.val, variables.is_encrypted)
    rows = session.execute(query.where(variables.key.startswith(PREFIX, autoescape=True), keys)).all()
    # Lists of windows are not cached: they are large, and rarely requested twice.
    decrypted = [(_decrypted if key.endswith(".windows") else _cached)(key, *value) for key, *value in rows]
    statuses = [status for status in decrypted if status is not None]
    return LoadedStatuses(statuses, len(rows) - len(statuses))


def _decrypted(key: str, value: str, is_encrypted: bool) -> Status | None:
    """Return the status in a Variable; ``None`` if the Variable is invalid."""
    from airflow_provider_sfstream._airflow.database import get_fernet

    try:
        text = get_fernet().decrypt(value.encode()).decode() if is_encrypted else value
        return status_from_text(text, f"Variable {key}")
    except Exception as error:  # of another Fernet key or program: it must not hide the other statuses
        log.warning("Variable %s: the status cannot be read: %s: %s", key, type(error).__name__, error)
        return None


_cached = lru_cache(maxsize=2_000)(_decrypted)
"""Decryption takes longest of a request, and few values change between two requests."""
