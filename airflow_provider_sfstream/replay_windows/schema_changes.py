"""What the schemas of a window are, compared with those that its stream had before."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from airflow_provider_sfstream.exceptions import SchemaError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.storage import storage_errors
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.schema_changes import SchemaChange, event_of
from airflow_provider_sfstream.salesforce.schemas import parse

log = logging.getLogger(__name__)

KNOWN_FOR = 100
"""Windows before one, in which a schema id is known: publishers may go on with an older schema for a while."""
LONGEST_LOOK = 1_000
"""Windows after which an event that none of them has counts as a new one."""

_NO_EVENT = ""
"""In place of the name of an event, of a schema that nobody can read by."""


def schema_changes(landed: LandedStream, manifests: Iterable[Manifest]) -> list[SchemaChange]:
    """Return how the schemas that are new with these windows differ from those before, of the same event.

    New is a schema id that none of the hundred live windows before has. It is compared with that of the window before
    it that has such an event; of several, with the one that differs least. An event that the stream never had has no
    schema before, and is no change. Windows whose schemas are all known cost one read of a manifest, or none.

    :param manifests: live windows, each compared with those before it; backfill windows, with all that are recorded.
    :raises LandingError: if a manifest or a schema cannot be read.
    """
    comparison = _Comparison(landed)
    changes: dict[str, SchemaChange] = {}
    for manifest in manifests:
        for change in comparison.of(manifest):
            changes.setdefault(change.schema_id, change)
    return list(changes.values())


class _Comparison:
    """Reads each schema once."""

    def __init__(self, landed: LandedStream) -> None:
        self._landed = landed
        self._schemas: dict[str, dict[str, Any] | None] = {}

    def of(self, manifest: Manifest) -> list[SchemaChange]:
        """Return the changes of one window."""
        is_live = manifest.window.kind == "live"
        head = manifest.window.previous_window_id if is_live else self._landed.position().window_id
        if head is None or not manifest.schemas:
            return []
        new, before = self._before(manifest, head)
        found = (self._change(schema_id, before.get(self._event(schema_id), ())) for schema_id in sorted(new))
        return [change for change in found if change]

    def _before(self, manifest: Manifest, head: str) -> tuple[set[str], dict[str, list[str]]]:
        """Return the schema ids of the window that are new, and which ids each event had before, last."""
        new = set(manifest.schemas)
        before: dict[str, list[str]] = {}
        wanted: set[str] | None = None
        for number, earlier in enumerate(self._landed.catalog.chain(manifest.stream, head)):
            new -= earlier.schemas.keys()
            if not new or number >= LONGEST_LOOK:
                break
            if wanted is None:  # read only where something is new
                wanted = {self._event(schema_id) for schema_id in new} - {_NO_EVENT}
            if number >= KNOWN_FOR and wanted <= before.keys():
                break
            of_window: dict[str, list[str]] = {}
            for schema_id in sorted(earlier.schemas):
                of_window.setdefault(self._event(schema_id), []).append(schema_id)
            before = of_window | before  # of two windows the later one
        return new, before

    def _change(self, schema_id: str, before: Iterable[str]) -> SchemaChange | None:
        schema = self._schema(schema_id)
        if schema is None:
            return None
        known = ((each, self._schema(each)) for each in before)
        changes = [SchemaChange.between(each, was, schema_id, schema) for each, was in known if was is not None]
        return min(changes, key=len, default=None)

    def _event(self, schema_id: str) -> str:
        schema = self._schema(schema_id)
        return _NO_EVENT if schema is None else event_of(schema)

    def _schema(self, schema_id: str) -> dict[str, Any] | None:
        """Return a landed schema, ``None`` for one that nobody can read by."""
        if schema_id not in self._schemas:
            landing = self._landed.catalog.landing
            path = landing.schema_path(self._landed.stream, schema_id)
            with storage_errors(f"Schema {schema_id} of {self._landed.stream} could not be read"):
                text = landing.filesystem.cat_file(path).decode()
            try:
                self._schemas[schema_id] = parse(text)
            except SchemaError as error:
                log.warning("Schema %s of %s cannot be compared: %s", schema_id, self._landed.stream, error)
                self._schemas[schema_id] = None
        return self._schemas[schema_id]
