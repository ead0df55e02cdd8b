"""Status documents by subject."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from airflow_provider_sfstream.monitoring.status import Document, Status, connection_of

_NO_SUCCESS = frozenset({"failed", "windows", "tables", "catalog"})
"""Sections that do not prove the success of a task."""
_TASK_PARTS = ("dag_id", "task_id", "map_index")
"""Identifiers of a task, without its run."""


class ReportedStatus:
    """Index of the status documents of streams and of folders of tables."""

    def __init__(self, statuses: Iterable[Status]) -> None:
        self._sections: dict[str, dict[str, Document]] = defaultdict(dict)
        self._tables: dict[str, list[str]] = defaultdict(list)
        self._written: dict[str, list[Document]] = defaultdict(list)
        self._allocations: dict[str, list[Document]] = defaultdict(list)
        for status in statuses:
            self._sections[status.subject][status.section] = status.document
            if status.section.startswith("allocation."):
                self._allocations[status.subject].append(status.document)
            if status.section == "tables":
                for uri in status.document.get("streams", ()):
                    self._tables[uri].append(status.subject)
            if "output_url" in status.document:
                self._written[status.document["output_url"]].append(status.document)

    def streams(self) -> list[str]:
        """Return the URIs of the streams with a status."""
        return [uri for uri in self._sections if connection_of(uri) is not None]

    def subjects(self) -> list[str]:
        """Return all subjects with a status, in the order of names."""
        return sorted(self._sections)

    def sections(self, subject: str) -> dict[str, Document]:
        """Return the documents of a subject."""
        return self._sections.get(subject, {})

    def section(self, subject: str, section: str) -> Document:
        """Return a section's document; an empty one if it does not exist."""
        return self.sections(subject).get(section, {})

    def event_logs(self, uri: str) -> list[Document]:
        """Return the documents of a stream in each event log."""
        sections = self._sections.get(uri, {})
        return [document for name, document in sorted(sections.items()) if name.startswith("event_log")]

    def replicas(self, uri: str) -> list[str]:
        """Return the folders of replicas that a stream was applied to."""
        return sorted(self._tables.get(uri, ()))

    def folders(self, uri: str) -> list[str]:
        """Return all folders of tables that a stream was written to."""
        return [document["output_url"] for document in self.event_logs(uri)] + self.replicas(uri)

    def dag_ids(self, uri: str) -> list[str]:
        """Return the DAGs of all tasks with a status of a stream or its replicas, the one that drains it first."""
        dag_ids: dict[str, None] = {}
        for subject in (uri, *self.replicas(uri)):
            for section in sorted(self._sections.get(subject, {}), key=lambda name: name != "drain"):
                task = self.section(subject, section).get("task")
                dag_ids |= {} if task is None else {task["dag_id"]: None}
        return list(dag_ids)

    def owner(self, subject: str) -> str | None:
        """Return the DAG that drains a stream; of another subject, the DAG that wrote its newest status."""
        sections = self.sections(subject)
        signed = [sections["drain"]] if "task" in sections.get("drain", {}) else sections.values()
        newest = max((each for each in signed if "task" in each), key=_time, default=None)
        return None if newest is None else str(newest["task"]["dag_id"])

    def failures(self, subject: str) -> list[Document]:
        """Return the last failure of each task about ``subject``, the newest first, unless the task, or a drain of the
        stream's new events, succeeded later."""
        failed = [each for section, each in self.sections(subject).items() if _kind(section) == "failed"]
        open_ones = [
            each
            for each in failed
            if all(_time(each) > datetime.fromisoformat(at) for at in self._successes(subject, each["task"]))
        ]
        return sorted(open_ones, key=_time, reverse=True)

    def _successes(self, subject: str, task: Mapping[str, Any]) -> Iterator[str]:
        """Yield the times of successes that end the failure of a task."""
        # Several tasks report about one stream or folder: the success of one does not resolve the failure of another.
        for section, document in self._sections[subject].items():
            if _kind(section) in _NO_SUCCESS or "at" not in document or document.get("reason") == "waiting":
                continue
            if section == "drain" and not _is_signed_by(document, task, "dag_id", "run_id"):
                # A cleared run may return earlier windows, and a backfill does not drain new events.
                yield from filter(None, [document.get("drained_at")])
            elif section == "drain" or _is_signed_by(document, task, *_TASK_PARTS):
                yield document["at"]
        yield from (
            document["at"] for document in self._written.get(subject, ()) if _is_signed_by(document, task, *_TASK_PARTS)
        )

    def failed_folders(self) -> list[str]:
        """Return the folders of tables with the failure of a task, and that no reported stream was written to."""
        written = {folder for uri in self.streams() for folder in self.folders(uri)}
        folders = (subject for subject in self._sections if connection_of(subject) is None)
        return sorted(folder for folder in folders if folder not in written and self.failures(folder))

    def allocations(self, uri: str) -> Iterator[tuple[str, float, float]]:
        """Yield the name, the used amount and the maximum of each allocation of the stream's org."""
        for document in self._allocations.get(connection_of(uri) or "", ()):
            yield document["allocation"], document["max"] - document["remaining"], document["max"]


def _kind(section: str) -> str:
    return section.partition(".")[0]


def _is_signed_by(document: Document, task: Mapping[str, Any], *parts: str) -> bool:
    """Return whether the task of a document has these identifiers of another one."""
    signed = document.get("task") or {}
    return all(signed.get(part) == task[part] for part in parts)


def _time(document: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(document["at"])
