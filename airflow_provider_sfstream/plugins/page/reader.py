"""What of the status documents somebody may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from airflow_provider_sfstream.monitoring.status import Document, Status, connection_of
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri


@dataclass(frozen=True)
class Reader:
    """Somebody, by the DAGs and the connections that they may read."""

    dag_ids: frozenset[str]
    connection_ids: frozenset[str]

    def may_read(self, task: Mapping[str, Any] | None) -> bool:
        """Tell whether they may read the DAG of a task. ``None`` is a task that was not told."""
        return task is not None and task["dag_id"] in self.dag_ids

    def readable(self, statuses: Iterable[Status]) -> list[Status]:
        """Return what they may see.

        A stream is left out where its connection, or the DAG that drains it, is not for them; of another one, what
        tasks of other such DAGs left of it. A section that no task signed (``windows``, ``tables``) goes with those of
        its subject that one did.
        """
        theirs = [status for status in statuses if self._may_connect(status.subject)]
        signed = [status for status in theirs if "task" in status.document]
        hidden = {s.subject for s in signed if s.section == "drain" and not self.may_read(s.document["task"])}
        shown = [s for s in signed if s.subject not in hidden and self.may_read(s.document["task"])]
        subjects = {status.subject for status in shown}
        shown += [s for s in theirs if "task" not in s.document and s.subject in subjects]
        return [self._without_others(status) for status in shown]

    def _may_connect(self, subject: str) -> bool:
        connection_id = connection_of(subject)
        return connection_id is None or connection_id in self.connection_ids

    def _without_others(self, status: Status) -> Status:
        """Return a status whose lines name no task of a DAG that is not for them, nor where it wrote."""

        def shown(line: Document) -> Document:
            return line if self.may_read(line.get("task")) else {**line, "task": None, "manifest_url": None}

        document = dict(status.document)
        for name in _LISTS.get(status.section, ()):
            document[name] = [shown(line) for line in document.get(name, ())]
        if status.section == "drain" and document.get("window"):
            document["window"] = shown(document["window"])
        return replace(status, document=document)


_LISTS = {"drain": ("gaps",), "windows": ("windows",)}
"""The lists of lines that each name a task."""


@lru_cache(maxsize=10_000)
def parsed(uri: str) -> StreamUri:
    """Return the stream of a URI. Each is asked for many times, and is the same each time."""
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
