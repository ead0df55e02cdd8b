"""Columns of a replica's tables, each in a separate document.

A document is ``{output}/_sfstream/replica/schemas/{table}/{number}-{hash}.json``: ``number`` is that of the first
snapshot that names it, ``hash`` that of its content. It never changes. Each snapshot names the document of the previous
one until the table's columns change, so the snapshots that name a document are consecutive.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.documents import from_document
from airflow_provider_sfstream.privacy.field_rules import Treatment
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType

FORMAT, VERSION = "sfstream-replica-schema", 1
UPGRADE = "Upgrade airflow-provider-sfstream where the job runs, or set another output_url."
Parsed = TypeVar("Parsed")


def parsed(text: str, problem: str, format_: str, version: int, build: Callable[[Any], Parsed], remedy: str) -> Parsed:
    """Return what ``build`` makes of a JSON document without its format and version.

    :raises ConfigurationError: if the document does not have this format and version, or is invalid.
    """
    try:
        document = json.loads(text)
        if (found := (document.pop("format"), document.pop("version"))) != (format_, version):
            raise ValueError("format {!r}, version {!r}".format(*found))
        return build(document)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{problem} that this version of the package can read ({error}). {remedy} Nothing was written."
        ) from error


@dataclass(frozen=True)
class TableSchema:
    """Columns of a table, as documented in ``TableState``."""

    columns: dict[str, ColumnType]
    fields: dict[str, str]
    hidden: dict[str, Treatment]

    def to_json(self) -> str:
        columns = [{"name": name, "type": type_} for name, type_ in self.columns.items()]
        document = {"format": FORMAT, "version": VERSION, **vars(self), "columns": columns}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, where: str) -> TableSchema:
        """Return the columns stored at ``where``; raise a ``ConfigurationError`` if they cannot be read."""

        def build(document: dict[str, Any]) -> TableSchema:
            columns = {column["name"]: column["type"] for column in document.pop("columns")}
            return replace(from_document(cls, document | {"columns": {}}), columns=columns)

        return parsed(text, f"{where} is not a replica table schema", FORMAT, VERSION, build, UPGRADE)


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
        return getattr(self.schema.content, self._part)  # type: ignore[no-any-return]

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
