"""Reads of Airflow Variables that distinguish a missing Variable from a failed read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from airflow_provider_sfstream._airflow import delete_variable, get_variable, set_variable, variable_keys
from airflow_provider_sfstream.exceptions import ReplayStoreError

NEW = "new"
"""The value of a Variable that a user created to confirm that no position was recorded."""


class Variables(Protocol):
    """Storage of texts by key. Tests can use a dict with these methods."""

    def name(self, key: str) -> str:
        """Return the name of the place of ``key``, for messages: ``the Variable 'key'``."""

    def get(self, key: str) -> str | None:
        """Return the value; ``None`` only if the Variable certainly does not exist."""

    def set(self, key: str, value: str, description: str) -> None:
        """Create or replace the Variable."""


class AirflowVariables:
    """The Variables of the running Airflow: of its API server inside a task, of its database at the command line.

    The SDK answers "not found" also when the API server or a secrets backend failed. This class must not restart a
    stream because of that. So a Variable counts as absent only if the list of keys, which does report failures, lacks
    it. Airflow before 3.3 has no list of keys. There a Variable counts as absent only if a user created it with the
    value ``new``.

    :param must_be_certain: whether an uncertain read is an error. With ``False``, a Variable that reads as absent
        counts as absent where Airflow has no list of keys.
    """

    def __init__(self, *, must_be_certain: bool = True) -> None:
        self._must_be_certain = must_be_certain

    def name(self, key: str) -> str:
        return f"the Variable {key!r}"

    def get(self, key: str) -> str | None:
        """Return the value; ``None`` only if the Variable certainly does not exist.

        :raises ReplayStoreError: if it cannot be read, or reads as absent although it exists or may exist.
        """
        with _variable_errors("read", key):
            value = get_variable(key)
            keys = variable_keys(key) if value is None else []
        if value == NEW:
            return None
        if keys is None and self._must_be_certain:
            raise ReplayStoreError(
                f"The Variable {key!r} does not exist or could not be read; Airflow before 3.3 does not report which. "
                "Nothing was read from Salesforce or moved. If the Variable never existed, confirm that once: airflow "
                f"variables set {key} {NEW}. Otherwise retry. replay_store='landing' and 'table' do not need this step."
            )
        if keys is not None and key in keys:
            raise ReplayStoreError(
                f"The Variable {key!r} exists but could not be read (Airflow logs the cause). Nothing was read from "
                "Salesforce or moved. Retry; if the error persists, check the API server and the secrets backends."
            )
        return value

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with ``prefix``.

        :raises ReplayStoreError: if they cannot be listed.
        """
        with _variable_errors("list", prefix):
            keys = variable_keys(prefix)
        if keys is None:
            raise ReplayStoreError(
                f"The Variables that begin with {prefix!r} cannot be listed: this requires Airflow 3.3 or later. "
                "Store status in a table: set [sfstream] status_conn_id. No position was moved."
            )
        return keys

    def set(self, key: str, value: str, description: str) -> None:
        with _variable_errors("write", key):
            set_variable(key, value, description)

    def delete(self, key: str) -> None:
        """Delete the Variable.

        :raises ReplayStoreError: if it cannot be deleted.
        """
        with _variable_errors("delete", key):
            delete_variable(key)


@contextmanager
def _variable_errors(verb: str, key: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the SDK passes on any exception of its transport, backends and models
        raise ReplayStoreError(
            f"Could not {verb} the Variable {key!r} ({type(error).__name__}: {error}). The next try reads the "
            "position, which may have moved, and continues from it. The store works only inside a task and at the "
            "command line of sfstream: check that the code runs there, and that it has access to Variables."
        ) from error
