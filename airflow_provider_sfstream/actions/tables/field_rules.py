"""Operators' arguments about fields that may not be stored as they come, and the key of hashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE, FieldRules


class HidesFields:
    """For operators whose tables may not hold all fields as they come."""

    exclude_fields: Sequence[str]
    mask_fields: Sequence[str]
    hash_fields: Sequence[str]
    hash_conn_id: str | None

    def given_rules(self) -> FieldRules:
        """Return the rules of the arguments, without the key.

        :raises ConfigurationError: naming the argument that cannot be used.
        """
        return FieldRules.of(self.exclude_fields, self.mask_fields, self.hash_fields)

    def rules(self) -> FieldRules:
        """Return the rules of the arguments, with the key.

        :raises ConfigurationError: if hashes are asked for, and there is no key for them.
        """
        return self.given_rules().with_key(hash_key(self.hash_conn_id))

    def submitted_rules(self) -> FieldRules:
        """Return the rules for a driver; without ``hash_conn_id``, it has the key from elsewhere.

        :raises ConfigurationError: if the connection has no key.
        """
        return self.rules() if self.hash_conn_id else self.given_rules()


def hash_key(hash_conn_id: str | None) -> str | None:
    """Return the password of an Airflow connection, ``None`` where none is named, or it has none.

    :raises ConfigurationError: if there is no such connection.
    """
    if not hash_conn_id:
        return None
    from airflow.sdk import Connection

    from airflow_provider_sfstream._airflow import AirflowNotFoundException

    try:
        connection: Any = Connection.get(hash_conn_id)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"There is no Airflow connection hash_conn_id={hash_conn_id!r}, whose password is the key of hashes. Make "
            "it; nothing was written."
        ) from None
    password: str | None = connection.password
    return password


def rule_arguments(rules: FieldRules) -> list[str]:
    """Return rules as arguments of an application. The key is not among them: ``ps`` shows these."""
    return [part for name, how in rules.items() for part in (f"--{how}-field", name)]


@contextmanager
def key_in_environment(rules: FieldRules) -> Iterator[None]:
    """Give the key to the processes that are started meanwhile."""
    import os

    if not rules.key:
        yield
        return
    os.environ[HASH_KEY_VARIABLE] = rules.key.decode()
    try:
        yield
    finally:
        del os.environ[HASH_KEY_VARIABLE]
