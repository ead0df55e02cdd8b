"""Columns of a replica's tables, inside a snapshot or in a separate document.

A document is ``{output}/_sfstream/replica/schemas/{table}/{number}-{hash}.json``: ``number`` is that of the first
snapshot that names it, ``hash`` that of its content. It never changes. Each snapshot names the document of the previous
one until the table's columns change, so the snapshots that name a document are consecutive.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import Treatment
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType

FORMAT, VERSION = "sfstream-replica-schema", 1
UPGRADE = "Upgrade airflow-provider-sfstream where the job runs, or set another output_url."
Parsed = TypeVar("Parsed")


def parsed(
    text: str, problem: str, format_: str, versions: Collection[int], build: Callable[[Any], Parsed], remedy: str
) -> Parsed:
    """Return what ``build`` makes of a JSON document.

    :raises ConfigurationError: if the document does not have this format and one of the versions, or is invalid.
    """
    try:
        document = json.loads(text)
        if document["format"] != format_ or document["version"] not in versions:
            raise ValueError(f"format {document['format']!r}, version {document['version']!r}")
        return build(document)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{problem} that this version of the package can read ({error}). {remedy} Nothing was written."
        ) from error


@dataclass(frozen=True)
class TableSchema:
    """Columns of a table, as documented in ``TableState``."""

    columns: dict[str, ColumnType]
    fields: dict[str, str] | None
    hidden: dict[str, Treatment]

    def to_document(self) -> dict[str, Any]:
        columns = [{"name": name, "type": type_} for name, type_ in self.columns.items()]
        return {"columns": columns, "fields": self.fields, "hidden": self.hidden}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> TableSchema:
        columns = {column["name"]: column["type"] for column in document["columns"]}
        fields, hidden = document.get("fields"), document.get("hidden", {})
        return cls(columns, None if fields is None else dict(fields), dict(hidden))

    def to_json(self) -> str:
        document = {"format": FORMAT, "version": VERSION, **self.to_document()}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, where: str) -> TableSchema:
        """Return the columns stored at ``where``; raise a ``ConfigurationError`` if they cannot be read."""
        return parsed(text, f"{where} is not a replica table schema", FORMAT, (VERSION,), cls.of_document, UPGRADE)


def hash_of(text: str) -> str:
    """Return the part of a document's name that depends on its content."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class StoredSchema:
    """Columns of a table in a separate document, which is read at their first use."""

    def __init__(self, name: str, url: str, read: Callable[[str], str]) -> None:
        self.name, self.url, self._read = name, url, read

    @cached_property
    def content(self) -> TableSchema:
        """Columns of the table.

        :raises ConfigurationError: if the document is not valid.
        :raises FileNotFoundError: if it was removed, with the snapshots that named it.
        """
        return TableSchema.from_json(self._read(self.url), self.url)

    def parts(self) -> dict[str, Any]:
        """Return the document's values of a ``TableState``; none of them has read the document yet."""
        return {part: StoredMapping(self, part) for part in ("columns", "fields", "hidden")}


class StoredMapping(Mapping[str, Any]):
    """One mapping of a stored schema, read at its first use."""

    def __init__(self, schema: StoredSchema, part: str) -> None:
        self.schema, self._part = schema, part

    @property
    def _values(self) -> Mapping[str, Any]:
        return getattr(self.schema.content, self._part) or {}

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
