"""Manifest: the JSON document that creates a replay window. Only an erasure changes one."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.landing.documents import document_errors, from_document, to_document
from airflow_provider_sfstream.salesforce.events import PayloadEncoding
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream
from airflow_provider_sfstream.salesforce.topics import SCHEMA_REFERENCE

VERSION = 1
FORMAT = "sfstream-manifest"
_WINDOW_ID = re.compile(r"[A-Za-z0-9_-]{1,120}")
"""Pattern of a window ID, which is also the name of a folder."""


@dataclass(frozen=True)
class WindowFile:
    """One Parquet part of a window. ``name`` is relative to the manifest; ``sha256`` is hex."""

    name: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class MissingSchema:
    """A schema that was unavailable when its window landed, and the reason. ``file`` is its future path, relative to
    the manifest; ``None`` where the events name no schema."""

    file: str | None
    reason: str


@dataclass(frozen=True)
class Manifest:
    """Description of one landed window.

    ``fence`` is the fence of the position that the drain started from, for a commit in a later task. ``payload_bytes``
    counts payloads as received. ``schemas`` maps each schema ID of the window to its Avro schema file. The names of
    that file and of ``files`` are relative to the manifest: join them with the folder of the manifest's URL and resolve
    ``..`` (all windows of a stream share schemas, ``../../../../../schemas/<id>.avsc``), or call :meth:`url_of`. A
    schema ID of JSON payloads may have none. ``missing_schemas`` lists the schemas that were unavailable.
    ``untimed_events`` is the number of events without an event time (``None``: not known). ``late_before`` is the time
    when the window before ended without confirmation: events that count before it were delivered too late for the run
    of that window, and the run that landed this one reads them with its own (``None``: there are no late events).
    ``retention`` is the time that Salesforce retains the events (``None``: not known). ``erased`` is the number of
    events that each erasure has changed, by its ID: no other process ever changes a manifest.
    """

    stream: Stream
    window: ReplayWindow
    fence: int
    files: tuple[WindowFile, ...]
    schemas: dict[str, str]
    payload_bytes: int
    stop_reason: str
    started_at: datetime
    finished_at: datetime
    provider_version: str
    payload_encoding: PayloadEncoding = "avro"
    untimed_events: int | None = None
    late_before: datetime | None = None
    retention: timedelta | None = None
    missing_schemas: dict[str, MissingSchema] = field(default_factory=dict)
    erased: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a window whose files do not hold its events, whether it is read or about to be published."""
        rows = sum(file.rows for file in self.files)
        if rows != self.window.event_count:
            raise ManifestError(
                f"{self.window.manifest_url} counts {self.window.event_count} events but its files hold {rows} rows. "
                "The window cannot be used; the stored position was not moved."
            )

    def url_of(self, name: str) -> str:
        """Return the URL of a file of ``files``, ``schemas`` or ``missing_schemas``."""
        scheme, separator, path = self.window.manifest_url.rpartition("://")
        return f"{scheme}{separator}{posixpath.normpath(posixpath.join(posixpath.dirname(path), name))}"

    def file_sums(self) -> dict[str, str]:
        """Return the SHA-256 (hex) of each file that has rows, by its URL."""
        return {self.url_of(file.name): file.sha256 for file in self.files if file.rows}

    def facts(self, *names: str) -> dict[str, Any]:
        """Return attributes of the manifest and of its window, by name, as JSON values."""
        document = {**to_document(self), **to_document(self.window)}
        return {name: document[name] for name in names}

    def to_json(self) -> str:
        """Return the document. Equal manifests have equal documents."""
        document = {"format": FORMAT, "version": VERSION, **to_document(self), **to_document(self.window)}
        del document["window"], document["manifest_url"]
        if not self.erased:
            del document["erased"]
        return json.dumps(document, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes, url: str) -> Manifest:
        """Return the manifest read from ``url``; raise :class:`ManifestError` if it is no valid manifest."""
        with document_errors(url, "manifest", ", or it is another document. The window's data files were not changed."):
            document = json.loads(text)
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise ManifestError(
                    f"{url} is not a manifest of this package. Use the manifest.json that a drain wrote."
                )
            if document.get("version") != VERSION:
                raise ManifestError(
                    f"{url} is a manifest of version {document.get('version')!r}; this package reads version "
                    f"{VERSION}. Upgrade airflow-provider-sfstream in the environment that reads it."
                )
            document = {"erased": {}, **document, "manifest_url": url}
            document["window"] = {each.name: document[each.name] for each in fields(ReplayWindow)}
            manifest = from_document(cls, {each.name: document[each.name] for each in fields(cls)})
            manifest._check_names()
            return manifest

    def _check_names(self) -> None:
        """Refuse names that no drain writes: they are joined to paths."""
        url = self.window.manifest_url
        if not all(re.fullmatch(r"part-[A-Za-z0-9_-]+\.parquet", file.name) for file in self.files):
            raise ManifestError(f"{url} names files that no drain writes. It was changed after it was written.")
        if not _WINDOW_ID.fullmatch(self.window.window_id):
            raise ManifestError(f"{url} has a window ID that no drain writes.")
        missing_files = [schema.file for schema in self.missing_schemas.values() if schema.file is not None]
        if not all(SCHEMA_REFERENCE.fullmatch(name) for name in [*self.schemas.values(), *missing_files]):
            raise ManifestError(f"{url} names schemas outside of its stream. It was changed after it was written.")
