"""What a drain says of schemas that changed, and whether it fails for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import SalesforceStreamError, SchemaChangedError

if TYPE_CHECKING:
    from airflow_provider_sfstream.landing.manifest import Manifest
    from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream

log = logging.getLogger(__name__)


def compared_schemas(landed: LandedStream, manifests: Iterable[Manifest]) -> list[dict[str, Any]] | None:
    """Return what changed in the schemas of landed windows, for a task's result, and log it.

    :return: ``None`` if they could not be compared: the windows are stored and recorded all the same.
    """
    from airflow_provider_sfstream.replay_windows.schema_changes import schema_changes

    try:
        changes = schema_changes(landed, manifests)
    except SalesforceStreamError as error:
        log.warning("%s: whether schemas changed is not known: %s", landed.stream, error)
        return None
    for change in changes:
        log.warning(
            "%s: a schema changed: %s (%s before, %s now)", landed.stream, change, change.before, change.schema_id
        )
    return [change.document() for change in changes]


def schema_change_error(topic: str, changes: list[dict[str, Any]] | None) -> SchemaChangedError | None:
    """Return the error for schemas that changed, or that could not be compared; ``None`` if there is nothing to tell.

    :param changes: as :func:`compared_schemas` returns them.
    """
    done = "All events are stored. Clear the task to go on: it gives its result again and succeeds."
    if changes is None:
        return SchemaChangedError(f"{topic}: whether schemas changed could not be seen. {done}")
    if not changes:
        return None
    return SchemaChangedError(f"{topic}: schemas changed ({'; '.join(map(_said, changes))}). {done}")


def _said(change: dict[str, Any]) -> str:
    said = (
        f"{len(change[kind])} fields {word}: {_names(change[kind])}" for kind, word in _KINDS.items() if change[kind]
    )
    return f"{change['event']}, {', '.join(said)}"


_KINDS = {"added": "added", "removed": "removed", "retyped": "retyped", "became_nullable": "became nullable"}
_NAMED = 10
"""Fields of a kind that an error names. The result has all."""


def _names(fields: list[dict[str, str]]) -> str:
    names = [field["name"] for field in fields[:_NAMED]]
    return " ".join([*names, "..."] if len(fields) > _NAMED else names)
