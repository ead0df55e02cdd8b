"""Differences between the schemas of a window's events and the earlier schemas of its stream: fields added, removed,
retyped, nullable.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_provider_sfstream.exceptions import SchemaError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.storage import storage_errors
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.schemas import parse, salesforce_type

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SchemaChange:
    """Differences between a schema and the earlier schema of the same event.

    Fields are named by their path, including those of compound fields (``BillingAddress.City``). A type is Avro's,
    without null, and in parentheses the Salesforce type that the schema names, if any: ``long (DateTime)``. The order
    of fields is no difference, nor is a field that is no longer nullable: neither affects readers of its values.

    :param event: the event's API name, for example ``Order__e``.
    :param schema_id: ID of the new schema.
    :param before: ID of the earlier schema.
    :param added: type by field.
    :param removed: former type, by field.
    :param retyped: former and new type, by field.
    :param became_nullable: type by field, of those that were not nullable before and are now.
    """

    event: str
    schema_id: str
    before: str
    added: Mapping[str, str]
    removed: Mapping[str, str]
    retyped: Mapping[str, tuple[str, str]]
    became_nullable: Mapping[str, str]

    @classmethod
    def between(cls, before_id: str, before: dict[str, Any], schema_id: str, schema: dict[str, Any]) -> SchemaChange:
        """Return the change from one schema to another.

        :param before: and ``schema``, as returned by :func:`~airflow_provider_sfstream.salesforce.schemas.parse`.
        """
        old_fields, new_fields = fields_of(before), fields_of(schema)
        common = sorted(old_fields.keys() & new_fields.keys())
        return cls(
            event=event_of(schema),
            schema_id=schema_id,
            before=before_id,
            added={name: new_fields[name].type for name in sorted(new_fields.keys() - old_fields.keys())},
            removed={name: old_fields[name].type for name in sorted(old_fields.keys() - new_fields.keys())},
            retyped={
                n: (old_fields[n].type, new_fields[n].type) for n in common if old_fields[n].type != new_fields[n].type
            },
            became_nullable={
                n: new_fields[n].type for n in common if new_fields[n].nullable and not old_fields[n].nullable
            },
        )

    def __len__(self) -> int:
        """Return the number of differences; 0, and so false, for schemas that differ only in their texts."""
        return len(self.added) + len(self.removed) + len(self.retyped) + len(self.became_nullable)

    def __str__(self) -> str:
        declared = [
            *(f"{name} added ({type_})" for name, type_ in self.added.items()),
            *(f"{name} removed ({type_})" for name, type_ in self.removed.items()),
            *(f"{name} retyped from {was} to {now}" for name, (was, now) in self.retyped.items()),
            *(f"{name} became nullable ({type_})" for name, type_ in self.became_nullable.items()),
        ]
        return f"{self.event}: {', '.join(declared) or 'no field differs'}"

    def document(self) -> dict[str, Any]:
        """Return the change as a JSON object."""
        return {
            "event": self.event,
            "schema_id": self.schema_id,
            "before": self.before,
            "added": [{"name": name, "type": type_} for name, type_ in self.added.items()],
            "removed": [{"name": name, "type": type_} for name, type_ in self.removed.items()],
            "retyped": [{"name": name, "from": was, "to": now} for name, (was, now) in self.retyped.items()],
            "became_nullable": [{"name": name, "type": type_} for name, type_ in self.became_nullable.items()],
        }


def event_of(schema: Mapping[str, Any]) -> str:
    """Return the API name of the event that a parsed schema describes."""
    return str(schema.get("name", "")).rpartition(".")[2]


class Field(NamedTuple):
    """Compared attributes of a field."""

    type: str
    nullable: bool


def fields_of(schema: dict[str, Any]) -> dict[str, Field]:
    """Return each field of a parsed schema by its path."""
    return dict(_Fields().of_record(schema, ""))


class _Fields:
    """Iterator over the fields of a schema; a record that is named again yields its fields there, too."""

    def __init__(self) -> None:
        self._records: dict[str, dict[str, Any]] = {}

    def of_record(self, record: dict[str, Any], path: str) -> Iterator[tuple[str, Field]]:
        self._records[event_of(record)] = record
        for field in record["fields"]:
            name = f"{path}{field['name']}"
            all_branches = list(self._branches(field["type"]))
            branches = [branch for branch in all_branches if branch != "null"]
            declared = salesforce_type(field)
            type_ = "|".join(map(_name, branches)) + (f" ({declared})" if declared else "")
            yield name, Field(type_, nullable="null" in all_branches)
            for branch in branches:
                if isinstance(branch, dict) and branch.get("type") == "record":
                    yield from self.of_record(branch, f"{name}.")

    def _branches(self, avro: Any) -> Iterable[Any]:
        """Yield the types that a value may have, including null; names of records are replaced by the records."""
        for each in avro if isinstance(avro, list) else [avro]:
            if isinstance(each, dict) and isinstance(each.get("type"), dict | list):
                yield from self._branches(each["type"])
            else:
                yield self._records.get(each.rpartition(".")[2], each) if isinstance(each, str) else each


def _name(avro: Any) -> str:
    """Return a type as one word; that of an array or a map includes the type of its values."""
    if isinstance(avro, str):
        return avro
    if isinstance(avro, list):
        return "|".join(_name(each) for each in avro if each != "null")
    kind = avro.get("logicalType") or avro["type"]
    item_type = avro.get("items", avro.get("values"))
    return _name(kind) if item_type is None else f"{_name(kind)}<{_name(item_type)}>"


KNOWN_FOR = 100
"""Number of earlier windows that make a schema ID known: publishers may continue with an older schema for a while."""
LONGEST_POLL = 1_000
"""Number of windows after which an event that none of them has counts as a new one."""

_NO_EVENT = ""
"""Placeholder for the event name of an unreadable schema."""


def schema_changes(landed: LandedStream, manifests: Iterable[Manifest]) -> list[SchemaChange]:
    """Return the differences of schemas that are new with these windows from the earlier ones of the same event.

    A schema ID is new if none of the hundred live windows before has it. It is compared with that of the nearest window
    before it that has an event of the same name; of several, with the one that differs least. An event that is new to
    the stream has no earlier schema, and is no change. Windows with known schemas only cost at most one manifest read.

    :param manifests: live windows, each compared with those before it; backfill windows, with all that are recorded.
    :raises LandingError: if a manifest or a schema cannot be read.
    """
    comparison = _Comparison(landed)
    changes: dict[str, SchemaChange] = {}
    for manifest in manifests:
        for change in comparison.changes_of(manifest):
            changes.setdefault(change.schema_id, change)
    return list(changes.values())


class _Comparison:
    """Comparison of windows, which reads each schema once."""

    def __init__(self, landed: LandedStream) -> None:
        self._landed = landed
        self._schemas: dict[str, dict[str, Any] | None] = {}

    def changes_of(self, manifest: Manifest) -> list[SchemaChange]:
        """Return the changes of one window."""
        is_live = manifest.window.kind == "live"
        head = manifest.window.previous_window_id if is_live else self._landed.position().window_id
        if head is None or not manifest.schemas:
            return []
        new, before = self._before(manifest, head)
        changes = (self._change(schema_id, before.get(self._event(schema_id), ())) for schema_id in sorted(new))
        return [change for change in changes if change]

    def _before(self, manifest: Manifest, head: str) -> tuple[set[str], dict[str, list[str]]]:
        """Return the new schema IDs of the window, and the latest earlier IDs of each event."""
        new = set(manifest.schemas)
        before: dict[str, list[str]] = {}
        events: set[str] | None = None
        for number, earlier in enumerate(self._landed.catalog.chain(manifest.stream, head)):
            new -= earlier.schemas.keys()
            if not new or number >= LONGEST_POLL:
                break
            if events is None:  # schemas are read only if one is new
                events = {self._event(schema_id) for schema_id in new} - {_NO_EVENT}
            if number >= KNOWN_FOR and events <= before.keys():
                break
            ids_by_event: dict[str, list[str]] = {}
            for schema_id in sorted(earlier.schemas):
                ids_by_event.setdefault(self._event(schema_id), []).append(schema_id)
            before = ids_by_event | before  # a later window has precedence
        return new, before

    def _change(self, schema_id: str, before: Iterable[str]) -> SchemaChange | None:
        schema = self._schema(schema_id)
        if schema is None:
            return None
        earlier = ((id_, self._schema(id_)) for id_ in before)
        changes = [SchemaChange.between(id_, old, schema_id, schema) for id_, old in earlier if old is not None]
        return min(changes, key=len, default=None)

    def _event(self, schema_id: str) -> str:
        schema = self._schema(schema_id)
        return _NO_EVENT if schema is None else event_of(schema)

    def _schema(self, schema_id: str) -> dict[str, Any] | None:
        """Return a landed schema, ``None`` if it is unreadable."""
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
