"""Where status documents are kept: the contract, their text, and Airflow Variables as one such place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from airflow_provider_sfstream.exceptions import ReplayStoreError
from airflow_provider_sfstream.monitoring.status import Document, Status, subject_key
from airflow_provider_sfstream.replay_stores.document.airflow_variables import AirflowVariables, Variables

FORMAT, VERSION = "sfstream-status", 1
PREFIX = "sfstream_status."
Step: TypeAlias = Callable[[Document | None], Document]


class StatusStore(Protocol):
    """Keeps the last document of each section of each subject."""

    def change(self, subject: str, section: str, step: Step) -> Document:
        """Replace a section's document by what ``step`` makes of it, of ``None`` where there is none; return that.

        Of two that change one section at once, the change of one may be lost where the store has no transactions.

        :raises ReplayStoreError: if the store cannot be used.
        """
        ...

    def statuses(self) -> list[Status]:
        """Return what is kept, but the sections ``windows``, in no order.

        :raises ReplayStoreError: if the store cannot be used.
        """
        ...

    def close(self) -> None:
        """Release what the store holds open. The store may be used again afterwards."""
        ...


class ListedVariables(Variables, Protocol):
    """Variables whose keys can be listed."""

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with ``prefix``."""
        ...


class VariableStatusStore:
    """One Variable for each section of each subject. Usable inside a task only.

    :param variables: where they are; the Variables of the running Airflow by default.
    """

    def __init__(self, variables: ListedVariables | None = None) -> None:
        # A document that is taken for none is made anew: nothing depends on it.
        self._variables: ListedVariables = AirflowVariables(must_be_certain=False) if variables is None else variables

    def change(self, subject: str, section: str, step: Step) -> Document:
        """Replace a section's document by what ``step`` makes of it; return that."""
        key = variable_key(subject, section)
        text = self._variables.get(key)
        before = None if text is None else status_from_text(text, self._variables.name(key)).document
        status = Status(subject, section, step(before))
        self._variables.set(key, status_to_text(status), f"Status of {subject}, for people: may be deleted at any time")
        return status.document

    def statuses(self) -> list[Status]:
        """Return what is kept, but the sections ``windows``."""
        keys = [key for key in self._variables.keys(PREFIX) if not key.endswith(".windows")]
        texts = {key: self._variables.get(key) for key in keys}
        return [status_from_text(text, self._variables.name(key)) for key, text in texts.items() if text is not None]

    def close(self) -> None:
        """Do nothing: the store holds nothing open."""


def variable_key(subject: str, section: str) -> str:
    """Return the key of the Variable of a section."""
    return f"{PREFIX}{subject_key(subject)}.{section}"


def status_to_text(status: Status) -> str:
    """Return a status as it is kept."""
    return json.dumps({"format": FORMAT, "version": VERSION, **vars(status)}, separators=(",", ":"))


def status_from_text(text: str, name: str) -> Status:
    """Return the status that a text holds.

    :param name: of what holds it, for the message.
    :raises ReplayStoreError: if it is none, or of a version that this package does not know.
    """
    try:
        held = msgspec.json.decode(text)
        if (held["format"], held["version"]) == (FORMAT, VERSION):
            return Status(held["subject"], held["section"], held["document"])
        found = f"{held['format']} {held['version']}"
    except (ValueError, KeyError, TypeError):
        found = "something else"
    raise ReplayStoreError(
        f"{name} holds {found}, not a status of version {VERSION}. Delete it; nothing depends on it."
    )
