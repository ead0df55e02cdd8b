"""Status documents by what they are about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from airflow_provider_sfstream.plugins.page.reader import connection_of, tasks_of
from airflow_provider_sfstream.protocol.status import Document, Status

_NO_SUCCESS = frozenset({"failed", "windows", "tables"})
"""Sections that do not say that a task ended well."""


class Known:
    """What is known of streams and of folders of tables."""

    def __init__(self, statuses: Iterable[Status]) -> None:
        self._statuses = list(statuses)
        self._sections: dict[str, dict[str, Document]] = defaultdict(dict)
        self._tables: dict[str, list[str]] = defaultdict(list)
        self._written: dict[str, list[Document]] = defaultdict(list)
        self._allocations: dict[str, list[Document]] = defaultdict(list)
        for status in self._statuses:
            self._sections[status.subject][status.section] = status.document
            if status.section.startswith("allocation."):
                self._allocations[status.subject].append(status.document)
            if status.section == "tables":
                for uri in status.document.get("streams", ()):
                    self._tables[uri].append(status.subject)
            if "output_url" in status.document:
                self._written[status.document["output_url"]].append(status.document)

    def streams(self) -> list[str]:
        """Return the URIs of the streams of which a task has told."""
        return [uri for uri in self._sections if connection_of(uri) is not None]

    def section(self, subject: str, section: str) -> Document:
        """Return a section's document; an empty one where there is none."""
        return self._sections.get(subject, {}).get(section, {})

    def event_logs(self, uri: str) -> list[Document]:
        """Return what became of a stream in each event log."""
        sections = self._sections.get(uri, {})
        return [document for name, document in sorted(sections.items()) if name.startswith("event_log")]

    def replicas(self, uri: str) -> list[str]:
        """Return the folders of replicas that a stream was applied to."""
        return sorted(self._tables.get(uri, ()))

    def folders(self, uri: str) -> list[str]:
        """Return all folders of tables that a stream was written to."""
        return [document["output_url"] for document in self.event_logs(uri)] + self.replicas(uri)

    def dag_ids(self, uri: str) -> list[str]:
        """Return the DAGs that have to do with a stream, the one that drains it first."""
        found: dict[str, None] = {}
        for subject in (uri, *self.replicas(uri)):
            for section in sorted(self._sections.get(subject, {}), key=lambda name: name != "drain"):
                task = self.section(subject, section).get("task")
                found |= {} if task is None else {task["dag_id"]: None}
        return list(found)

    def failure(self, subject: str) -> Document | None:
        """Return the last failure of a task that is about ``subject``, unless one has ended well since."""
        failed = self.section(subject, "failed")
        if not failed:
            return None
        ended_well = [_time(document) for document in self._successes(subject)]
        return failed if all(_time(failed) > at for at in ended_well) else None

    def _successes(self, subject: str) -> Iterator[Document]:
        for section, document in self._sections[subject].items():
            if section not in _NO_SUCCESS and "at" in document and document.get("reason") != "waiting":
                yield document
        yield from self._written.get(subject, ())

    def failed_folders(self) -> list[str]:
        """Return the folders of tables whose last task failed, and that no stream is known to be written to."""
        written = {folder for uri in self.streams() for folder in self.folders(uri)}
        others = (subject for subject in self._sections if connection_of(subject) is None)
        return sorted(subject for subject in others if subject not in written and self.failure(subject))

    def allocations(self, uri: str) -> Iterator[tuple[str, float, float]]:
        """Yield the name, what is used and the maximum of each limit of the stream's org."""
        for document in self._allocations.get(connection_of(uri) or "", ()):
            yield document["allocation"], document["max"] - document["remaining"], document["max"]


def all_dag_ids(statuses: Iterable[Status]) -> set[str]:
    """Return every DAG that documents name."""
    return {task["dag_id"] for status in statuses for task in tasks_of(status)}


def _time(document: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(document["at"])
