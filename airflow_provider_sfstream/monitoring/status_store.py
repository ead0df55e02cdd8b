"""Stores of status documents: the interface, the text form, and the store in Airflow Variables."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from airflow_provider_sfstream.exceptions import ReplayStoreError
from airflow_provider_sfstream.monitoring.status import Document, Status, subject_key
from airflow_provider_sfstream.replay_stores.document.airflow_variables import AirflowVariables

FORMAT, VERSION = "sfstream-status", 1
PREFIX = "sfstream_status."
Step: TypeAlias = Callable[[Document | None], Document]


class StatusStore(Protocol):
    """Store of the last document of each section of each subject; a ``ReplayStoreError`` if it cannot be used."""

    def change(self, subject: str, section: str, step: Step) -> Document:
        """Replace a section's document by the result of ``step`` (called with ``None`` if it is new), and return it.

        If two tasks change one section concurrently, one change may be lost in a store without transactions.
        """
        ...

    def statuses(self) -> list[Status]:
        """Return all statuses except the sections ``windows``, in no order."""
        ...

    def forget(self, subject: str) -> int:
        """Delete all sections of a subject, and return their number."""
        ...

    def close(self) -> None:
        """Close the connections of the store. The store may be used again afterwards."""
        ...


class VariableStatusStore(StatusStore):
    """Status store with one Variable for each section of each subject. Usable only inside a task."""

    def __init__(self, variables: AirflowVariables | None = None) -> None:
        # A document that reads as absent is created again, which is harmless.
        self._variables = AirflowVariables(must_be_certain=False) if variables is None else variables

    def change(self, subject: str, section: str, step: Step) -> Document:
        key = variable_key(subject, section)
        text = self._variables.get(key)
        before = None if text is None else status_from_text(text, self._variables.name(key)).document
        status = Status(subject, section, step(before))
        self._variables.set(key, status_to_text(status), f"Status of {subject}, for people: may be deleted at any time")
        return status.document

    def statuses(self) -> list[Status]:
        keys = [key for key in self._variables.keys(PREFIX) if not key.endswith(".windows")]
        texts = {key: self._variables.get(key) for key in keys}
        return [status_from_text(text, self._variables.name(key)) for key, text in texts.items() if text is not None]

    def forget(self, subject: str) -> int:
        keys = self._variables.keys(variable_key(subject, ""))
        for key in keys:
            self._variables.delete(key)
        return len(keys)

    def close(self) -> None:
        """Do nothing: the store has no open connection."""


def variable_key(subject: str, section: str) -> str:
    """Return the key of the Variable of a section."""
    return f"{PREFIX}{subject_key(subject)}.{section}"


def status_to_text(status: Status) -> str:
    """Return the text form of a status."""
    return json.dumps({"format": FORMAT, "version": VERSION, **vars(status)}, separators=(",", ":"))


def status_from_text(text: str, name: str) -> Status:
    """Return the status in a text.

    :raises ReplayStoreError: if it is not a status, or of an unsupported version.
    """
    try:
        stored = msgspec.json.decode(text)
        if (stored["format"], stored["version"]) == (FORMAT, VERSION):
            return Status(stored["subject"], stored["section"], stored["document"])
        content = f"format {stored['format']}, version {stored['version']}"
    except (ValueError, KeyError, TypeError):
        content = "no format and version"
    raise ReplayStoreError(
        f"{name}: invalid status: expected format {FORMAT}, version {VERSION}, got {content}. Delete it; nothing "
        "depends on it."
    )
