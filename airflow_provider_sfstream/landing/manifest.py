"""Manifest: the JSON document that creates a replay window. Only an erasure changes one."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, get_args

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.salesforce.events import PayloadEncoding
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream
from airflow_provider_sfstream.salesforce.topics import SCHEMA_REFERENCE

VERSION = 1
FORMAT = "sfstream-manifest"
_ENCODINGS = get_args(PayloadEncoding)
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
        """Refuse a window whose files do not hold its events, whether it is read or about to be published.

        :raises ManifestError: if the numbers of rows and events differ.
        """
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

    def to_json(self) -> str:
        """Return the document. Equal manifests have equal documents."""
        window, run = self.window, self.window.run
        document = {
            "format": FORMAT,
            "version": VERSION,
            "stream": {
                "org_id": self.stream.org_id,
                "api": self.stream.api,
                "topic": self.stream.topic,
                "subscription": self.stream.subscription,
            },
            "window_id": window.window_id,
            "kind": window.kind,
            "after": _hex(window.after),
            "through": _hex(window.through),
            "event_count": window.event_count,
            "payload_bytes": self.payload_bytes,
            "payload_encoding": self.payload_encoding,
            "untimed_events": self.untimed_events,
            "late_before": _iso(self.late_before),
            "retention": None if self.retention is None else self.retention.total_seconds(),
            "first_event_time": _iso(window.first_event_time),
            "last_event_time": _iso(window.last_event_time),
            "covered_from": _iso(window.covered_from),
            "covered_until": _iso(window.covered_until),
            "contact_at": _iso(window.contact_at),
            "counts_from": _iso(window.counts_from),
            "previous_window_id": window.previous_window_id,
            "fence": self.fence,
            "gap": _gap_to_document(window.gap),
            "schemas": self.schemas,
            "missing_schemas": {schema_id: vars(missing) for schema_id, missing in self.missing_schemas.items()},
            "files": [vars(file) for file in self.files],
            "stop_reason": self.stop_reason,
            "run": {
                "dag_id": run.dag_id,
                "task_id": run.task_id,
                "run_id": run.run_id,
                "run_after": _iso(run.run_after),
                "map_index": run.map_index,
                "try_number": run.try_number,
            },
            "started_at": _iso(self.started_at),
            "finished_at": _iso(self.finished_at),
            "provider_version": self.provider_version,
        }
        if self.erased:
            document["erased"] = self.erased
        return json.dumps(document, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes, url: str) -> Manifest:
        """Return the manifest read from ``url``.

        :raises ManifestError: if the document is broken, not a manifest, or of an unsupported version.
        """
        try:
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
            run = document["run"]
            window = ReplayWindow(
                window_id=document["window_id"],
                kind=document["kind"],
                after=_bytes(document["after"]),
                through=_bytes(document["through"]),
                event_count=document["event_count"],
                first_event_time=_time(document["first_event_time"]),
                last_event_time=_time(document["last_event_time"]),
                manifest_url=url,
                run=RunIdentity(
                    dag_id=run["dag_id"],
                    task_id=run["task_id"],
                    run_id=run["run_id"],
                    run_after=datetime.fromisoformat(run["run_after"]),
                    map_index=run["map_index"],
                    try_number=run["try_number"],
                ),
                previous_window_id=document["previous_window_id"],
                gap=_gap_from_document(document["gap"]),
                # Absent in manifests of earlier versions: not known.
                covered_from=_time(document.get("covered_from")),
                covered_until=_time(document.get("covered_until")),
                contact_at=_time(document.get("contact_at")),
                counts_from=_time(document.get("counts_from")),
            )
            files = tuple(WindowFile(**file) for file in document["files"])
            if not all(re.fullmatch(r"part-[A-Za-z0-9_-]+\.parquet", file.name) for file in files):
                raise ManifestError(f"{url} names files that no drain writes. It was changed after it was written.")
            if not _WINDOW_ID.fullmatch(window.window_id) or document["payload_encoding"] not in _ENCODINGS:
                raise ManifestError(f"{url} has a window ID or a payload encoding that no drain writes.")
            schemas = dict(document["schemas"])
            # Absent if every schema was available when the window landed.
            missing = {
                schema_id: MissingSchema(**schema) for schema_id, schema in document.get("missing_schemas", {}).items()
            }
            schema_files = [*schemas.values(), *(schema.file for schema in missing.values() if schema.file is not None)]
            if not all(SCHEMA_REFERENCE.fullmatch(name) for name in schema_files):
                raise ManifestError(f"{url} names schemas outside of its stream. It was changed after it was written.")
            return cls(
                stream=Stream(**document["stream"]),
                window=window,
                fence=document["fence"],
                files=files,
                schemas=schemas,
                payload_bytes=document["payload_bytes"],
                stop_reason=document["stop_reason"],
                started_at=datetime.fromisoformat(document["started_at"]),
                finished_at=datetime.fromisoformat(document["finished_at"]),
                provider_version=document["provider_version"],
                payload_encoding=document["payload_encoding"],
                untimed_events=document.get("untimed_events"),
                late_before=_time(document.get("late_before")),
                retention=_seconds(document.get("retention")),
                missing_schemas=missing,
                erased=dict(document.get("erased", {})),
            )
        except ManifestError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ManifestError(
                f"{url} is not a readable manifest ({type(error).__name__}: {error}). It was changed after it was "
                "written, or it is another document. The window's data files were not changed."
            ) from error


def _gap_to_document(gap: Gap | None) -> dict[str, Any] | None:
    if gap is None:
        return None
    return {
        "after": _hex(gap.after),
        "resumed_at": _hex(gap.resumed_at),
        "since": _iso(gap.since),
        "detected_at": _iso(gap.detected_at),
        "reason": gap.reason,
        "uncertain": gap.uncertain,
    }


def _gap_from_document(document: dict[str, Any] | None) -> Gap | None:
    if document is None:
        return None
    return Gap(
        after=_bytes(document["after"]),
        resumed_at=_bytes(document["resumed_at"]),
        since=_time(document["since"]),
        detected_at=datetime.fromisoformat(document["detected_at"]),
        reason=document["reason"],
        uncertain=document.get("uncertain", False),
    )


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _iso(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _seconds(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
